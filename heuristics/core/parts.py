"""Makes the Problem for the methods that build plans replica by replica (greedy, ruin and recreate).

A workload can be split over replicas in two ways: at the many rates for which there are roles, or into a few equal
parts before the search begins.
"""

import math
from collections.abc import Iterator

import numpy as np

from provision.formulations.search.problem import Group, Problem
from provision.formulations.search.segments import best_segments
from provision.models.base.arrays import Floats
from provision.models.base.tolerances import DUST
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of

FEW_GROUPS = 16
"""With more groups than this, on slices that replicas always share (``_always_shares``), workloads are divided into
equal parts. Otherwise they are split at the rates of roles.
"""
RATIO = 1.15
"""The ratio between successive rates at which workloads may be split in the second Problem of ``problems_of``."""


def problem_of(instance: Instance) -> Problem:
    """Make the Problem of an instance.

    With more than FEW_GROUPS groups, on slices that replicas always share, every workload is divided into the fewest
    equal parts. Each part is then planned like a workload with one replica.
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
    """Whether there are more than FEW_GROUPS groups."""
    return len(problem.groups) > FEW_GROUPS


def _rates(problem: Problem, workload_class: tuple[tuple[str, ...], float]) -> frozenset[float]:
    """Rates from the least to the highest rate of the roles of a workload class, each at most RATIO times the one
    before.
    """
    known = [role.rate_rps for role in problem.roles if role.workload_class == workload_class and role.rate_rps > 0]
    if not known:
        return frozenset()
    wide = math.log(max(known) / min(known))
    return frozenset((min(known) * np.exp(np.linspace(0, wide, math.ceil(wide / math.log(RATIO)) + 1))).tolist())


def in_parts(problem: Problem) -> list[Group]:
    """Divide the workloads of groups into parts, and return groups of parts with one replica each.

    A workload that is divided into n parts is n members of its group. Workloads of which a GPU may carry only a part
    stay as they are: nothing would keep their parts on different GPUs.
    """
    most_rps, found = _part_rps(problem), list[Group]()
    for group in problem.groups:
        if group.cap_rps < group.rate_rps:
            found.append(group)
            continue
        for member in group.members:
            needed = math.ceil(group.rate_rps / most_rps[member] * (1 - DUST)) if most_rps[member] > 0 else 1
            pieces = int(min(max(needed, group.least, 1), group.most))
            found.append(group._replace(rate_rps=group.rate_rps / pieces, least=1, most=1, members=(member,) * pieces))
    alike: dict[Group, list[int]] = {}
    for group in found:
        alike.setdefault(group._replace(members=()), []).extend(group.members)
    return [group._replace(members=tuple(members)) for group, members in alike.items()]


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


def _part_rps(problem: Problem) -> Floats:
    """(workloads,), the rate (requests/s) up to which one replica alone on a slice carries a workload; 0 if none does.

    If max_replicas is set, it is the rate on the fastest slice type. Otherwise it is the rate on the slice type with
    the least price per request/s, if possible among GPUs without a limited count.
    """
    instance = problem.instance
    segments = best_segments(instance)
    if not segments.slice_types:
        return np.zeros(len(instance.workloads))
    rps, entries = segments.throughput_rps, [instance.fleet[slice_type.entry] for slice_type in segments.slice_types]
    price = np.array([objective_of(instance).weight(entry) for entry in entries])
    cost = np.divide(price, rps, out=np.full_like(rps, np.inf), where=rps > 0)
    endless = np.where([entry.count is None for entry in entries], cost, np.inf)
    chosen = np.where(np.isfinite(endless).any(axis=1), endless.argmin(axis=1), cost.argmin(axis=1))
    free = [one.max_replicas is None for one in instance.workloads]
    return np.where(free, rps[np.arange(len(rps)), chosen], rps.max(axis=1))
