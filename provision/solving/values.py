"""Large instances under interference: a plan of classes of similar workloads, and a bound by prices of replicas.

Both take about the same time for 2,000 workloads and for 100,000 (`provision.formulations.values`). Workloads with
limits on their replicas, and the last few that are left over, are planned by greedy.
"""

from collections.abc import Sequence

from provision.formulations.search.segments import best_segments
from provision.formulations.values.bound import ClassBounds
from provision.formulations.values.classes import classes_of
from provision.formulations.values.plan import LargePlan
from provision.formulations.values.schedule import SCHEDULE
from provision.heuristics.core import greedy
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.search import Outcome, Progress, Search
from provision.verification.verify import verify

NAME = "large"


def applies(instance: Instance) -> bool:
    """Whether an instance can be planned in this way, and most workloads may have any number of replicas."""
    free = sum(one.max_replicas is None for one in instance.workloads)
    return ClassBounds.applies(instance) and 2 * free > len(instance.workloads)


def solve(instance: Instance, search: Search) -> Outcome:
    """Plan and bound an instance."""
    progress, size = Progress(instance, search), max(one for one in SCHEDULE.sizes if one.least_s <= search.left_s)
    bounds = ClassBounds(instance, search.seed)
    bounds.prove(progress, SCHEDULE.first_s)
    progress.offer(planned(instance, _free(instance), size.plan_classes, size.plan_ranges, search))
    bounds.prove(progress, search.left_s)
    return progress.outcome("proved" if progress.proved else "completed" if search.left_s > 0 else "time_limit")


def _free(instance: Instance) -> list[int]:
    """The workloads, by index, that may be split freely and need few replicas."""
    most_rps = best_segments(instance).throughput_rps.max(axis=1, initial=0.0).tolist()
    return [at for at, (one, rps) in enumerate(zip(instance.workloads, most_rps, strict=True))
            if one.max_replicas is None and one.min_replicas <= 1 and one.max_share_per_gpu == 1
            and 0 < instance.planned_rps(one) <= SCHEDULE.full * rps]


def planned(instance: Instance, free: Sequence[int], classes: int, ranges: int, search: Search) -> Plan | None:
    """Plan the workloads ``free`` in about ``classes`` classes of similar workloads, and all that are left by greedy.

    Returns None if ``free`` is empty or no valid plan is found.
    """
    if not free:
        return None
    several = classes_of(instance, free, min(classes, max(len(free) // SCHEDULE.members, 1)))
    plan = LargePlan(instance, several, ranges, search.seed)
    plan.run(search.within(search.left_s * SCHEDULE.plan_share))
    left = set(range(len(instance.workloads))) - set(free) | {at for waiting in plan.left for _, at in waiting}
    gpus = plan.planned()
    if left:
        rest = instance.replace(workloads=[instance.workloads[at] for at in sorted(left)])
        found = greedy.solve(rest, search.apart())
        if found.plan is None:
            return None
        gpus += found.plan.gpus
    made = instance.plan_of(NAME, gpus)
    return made if verify(instance, made).ok else None
