"""Makes the Problem for the methods that build plans replica by replica (greedy, ruin and recreate).

A workload can be split over replicas in two ways: at the many rates for which there are roles, or into a few equal
parts before the search begins.
"""

import math
from collections.abc import Iterator

import numpy as np

from provision.formulations.search.problem import Group, Problem
from provision.formulations.search.regrouping import in_parts
from provision.heuristics.core.schedule import GREEDY
from provision.models.problem.instance import Instance


def problem_of(instance: Instance) -> Problem:
    """Make the Problem of an instance.

    With more than ``GREEDY.groups`` groups, on slices that replicas always share, every workload is divided into the
    fewest equal parts. Each part is then planned like a workload with one replica.
    """
    problem = Problem(instance)
    return Problem(instance, in_parts(problem)) if _always_shares(problem) and _many(problem) else problem


def problems_of(instance: Instance) -> Iterator[Problem]:
    """Yield the Problem of an instance. If it has few groups, and workloads that may be split, also yield a Problem in
    which they may be split at more rates.

    Neither Problem always gives the better plan: with more rates, slices are filled more completely, but replicas carry
    smaller parts.
    """
    problem = problem_of(instance)
    yield problem
    if _always_shares(problem) and not _many(problem) and any(group.most > 1 for group in problem.groups):
        yield Problem(instance, finer={one: _rates(problem, one) for one in problem.classes})


def _always_shares(problem: Problem) -> bool:
    """Whether some performance data describes replicas that share a slice with whatever else is on it (MPS, turns)."""
    return any(one.data.sharing == "always" for one in problem.shareable)


def _many(problem: Problem) -> bool:
    """Whether there are many groups."""
    return len(problem.groups) > GREEDY.groups


def _rates(problem: Problem, workload_class: tuple[tuple[str, ...], float]) -> frozenset[float]:
    """Rates from the least to the highest rate of the roles of a workload class, each at most ``GREEDY.ratio`` times
    the one before.
    """
    known = [role.rate_rps for role in problem.roles if role.workload_class == workload_class and role.rate_rps > 0]
    if not known:
        return frozenset()
    wide = math.log(max(known) / min(known))
    return frozenset((min(known) * np.exp(np.linspace(0, wide, math.ceil(wide / math.log(GREEDY.ratio)) + 1))).tolist())


def portions(problem: Problem, most: int) -> list[Problem]:
    """Divide a problem into problems of about equal size, each with at most ``most`` workloads or parts of workloads.

    Every portion gets a similar mix of models, SLOs and rates, so that each has workloads that fill its GPUs well.
    """
    number = math.ceil(sum(len(group.members) for group in problem.groups) / most)
    if number <= 1:
        return [problem]
    found: list[list[Group]] = [[] for _ in range(number)]
    first = 0
    for group in sorted(problem.groups, key=lambda one: (one.models, one.slo_ms, one.rate_rps)):
        for at in range(min(number, len(group.members))):
            found[(first + at) % number].append(group._replace(members=group.members[at::number]))
        first += len(group.members)
    return [Problem(problem.instance, groups) for groups in found]
