"""Plans with the greedy method: a good plan at once, for every way of sharing.

Isolated segments are mixed by a linear program and packed exactly (`mixing`). If replicas share slices, GPUs are filled
one after the other: each GPU is of the type and partition that carry most for their price, and every slice gets
whatever is worth most on it. Some steps of ruin and recreate then look for a cheaper plan (`walk`). Before that comes a
plan in which replicas share nothing, which is there at once. For throughput, isolated segments fill the rest of the
fleet: every GPU gets the partition with the most throughput that has slots for what it holds. Replicas that share
slices stay on few GPUs.

Where replicas share slices, a workload can be split over replicas in two ways: at the many rates for which there are
roles, or into a few equal parts before the search begins.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from provision.formulations.search.assemble import Layout, assemble
from provision.formulations.search.feasibility import late, proved_infeasible
from provision.formulations.search.problem import Group, Problem, in_parts
from provision.formulations.search.segments import Segments, best_segments, partitions_of
from provision.heuristics.core.mixing import mixed
from provision.heuristics.core.schedule import SCHEDULE
from provision.heuristics.core.walk import Walk, assembled
from provision.models.base.clock import Deadline, TimeIsUpError
from provision.models.base.objects import uncollected
from provision.models.plans.plan import Plan
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import ISOLATED, Method, needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Search
from provision.models.traffic.rules import FULL_BATCHES

NAME = "greedy"
MIXED = ISOLATED | {"tokens", "share_slices", "random_slices", "max_throughput", "full_batches"}
"""The features of instances whose plans of isolated segments are mixed by a linear program."""


def solve(instance: Instance, search: Search) -> Outcome:
    """Plan an instance as the module's docstring describes."""
    segments = best_segments(instance)
    refused = proved_infeasible(instance, segments)
    if refused and not instance.policy.share_slices:  # a workload that no slice serves alone may still share a slice
        return refused
    build_seconds, bound = search.elapsed_s, None
    if needs(instance) <= MIXED and not refused:
        plan, bound = _mixed(instance, search.within())
        if plan is not None:
            search.report(Incumbent(objective_of(instance).value(plan), bound, plan))
    elif instance.objective == THROUGHPUT:
        plan = _served(instance, search)
    else:
        plan = _walked(instance, search)
    if plan is not None and objective_of(instance).proved(objective_of(instance).value(plan), bound):
        return Outcome("optimal", "proved", plan, bound, build_seconds=build_seconds)
    if plan is None:
        reason = "greedy found no plan on this fleet; auto may, or prove that there is none"
        return Outcome("unknown", "completed", bound=bound, reason=refused.reason if refused else reason,
                       build_seconds=build_seconds)
    return Outcome("feasible", "completed", plan, bound, build_seconds=build_seconds)


@uncollected()
def _mixed(instance: Instance, until: Deadline) -> tuple[Plan | None, float | None]:
    """The plan of mixed replica sets, and a bound on all plans, which is None if replicas may share slices."""
    segments = best_segments(instance)
    layouts, bound = mixed(instance, segments, until)
    if layouts is not None and instance.objective == THROUGHPUT:
        layouts = filled(instance, segments, layouts)
    plan = None if layouts is None else assemble(instance, segments, layouts, NAME)
    return plan, bound if needs(instance) <= ISOLATED | {"tokens"} else None


def _served(instance: Instance, search: Search) -> Plan | None:
    """The plan that carries all rates on few GPUs; None if none was found, if its replicas would be late where all of
    them run at their full throughput, or under the latency rule ``full_batches``, which is for throughput only.
    """
    if instance.policy.latency_budget == FULL_BATCHES:
        return None
    found = _walked(instance.replace(objective="min_gpus"), search)
    return instance.adopted(found) if found is not None and not late(instance, found) else None


def _walked(instance: Instance, search: Search) -> Plan | None:
    """The cheapest plan after some steps of ruin and recreate, or ``search.start`` if it is as cheap; None if there is
    no plan.
    """
    known = search.start if search.start is not None else unshared(instance, search)
    if known is not None and not search.left_s:
        return known
    try:
        found = _in_portions(problem_of(instance), search)
    except TimeIsUpError:
        return known
    plans = [plan for plan in (known, found) if plan is not None]
    return min(plans, key=lambda plan: objective_of(instance).value(plan), default=None)


def unshared(instance: Instance, search: Search) -> Plan | None:
    """The plan of the instance whose replicas have slices of their own, reported; None if it has none, or if replicas
    may not share slices anyway.
    """
    alone = without_sharing(instance)
    seconds = max(search.left_s, SCHEDULE.least_s)
    plan = None if alone == instance else solve(alone, search.apart(seconds)).plan
    if plan is None:
        return None
    plan = instance.adopted(plan)
    search.report(Incumbent(objective_of(instance).value(plan), None, plan))
    return plan


def without_sharing(instance: Instance) -> Instance:
    """The instance in which every replica has a slice of its own."""
    fleet = tuple(entry.model_copy(update={"mps": False}) for entry in instance.fleet)
    return instance.replace(fleet=fleet).with_policy(share_slices=False)


def _in_portions(problem: Problem, search: Search) -> Plan | None:
    """The plan of a problem whose portions are planned one after the other; None if there is no plan of a portion.

    Raises TimeIsUpError if the time is over before.
    """
    until = search.within()
    several, draw = portions(problem, SCHEDULE.portion), np.random.default_rng(search.seed)
    walks, taken = list[Walk](), list[int]()
    for one in several:
        walk = Walk(one, None, search.bound or 0.0 if len(several) == 1 else 0.0, draw, until, taken=taken)
        walk.go(replace(search.apart(), bound=walk.bound), SCHEDULE.few_steps)
        if walk.best is None:
            return None
        walks.append(walk)
        taken += walk.best.entry.tolist()
    return assembled(problem, walks, NAME)


def filled(instance: Instance, segments: Segments, layouts: Sequence[Layout]) -> list[Layout]:
    """Extend layouts that carry all rates to all GPUs of the fleet: free slots are filled with segments of the best
    workload of their slice type.

    Parameters
    ----------
    instance, segments
        The problem and its segments; workloads may have any number of replicas.
    layouts
        Layouts on no more GPUs than there are.
    """
    used = np.bincount([layout.entry for layout in layouts], minlength=len(instance.fleet))
    empty = [Layout(at, ()) for at, entry in enumerate(instance.fleet) for _ in range((entry.count or 0) - used[at])]
    partitions, best = partitions_of(instance, segments), segments.throughput_rps.argmax(axis=0)
    most_rps, found = segments.throughput_rps.max(axis=0), list[Layout]()
    for entry, held in (*layouts, *empty):
        slots = partitions.slots - np.bincount([slice_type for slice_type, _ in held], minlength=len(best)).astype(int)
        free = slots[(partitions.entry == entry) & (slots >= 0).all(axis=1)]
        added = np.where(most_rps > 0, free[(free @ most_rps).argmax()], 0) if len(free) else np.zeros(len(best), int)
        further = np.repeat(np.arange(len(best)), added).tolist()
        found.append(Layout(entry, (*held, *((slice_type, int(best[slice_type])) for slice_type in further))))
    return found


def problem_of(instance: Instance) -> Problem:
    """Make the Problem of an instance.

    With more than ``SCHEDULE.groups`` groups and one GPU type, on slices that replicas always share, every workload is
    divided into the fewest equal parts. Each part is then planned like a workload with one replica.
    """
    problem = Problem(instance)
    shares = any(one.data.sharing == "always" for one in problem.shareable)
    divided = shares and len(problem.groups) > SCHEDULE.groups and len(problem.pools) == 1
    return Problem(instance, in_parts(problem)) if divided else problem


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


METHODS = (
    Method(
        name=NAME,
        summary="replica sets mixed by a linear program, shared slices filled by worth (the fast default)",
        run=solve,
        source="this package",
        features=MIXED | {"max_replicas", "interference", "random_interference", "gpulets", "random_turns",
                          "other_sharing"},
    ),
)
