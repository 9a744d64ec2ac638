"""Large instances under interference: a plan of classes of similar workloads, and a bound by prices of replicas.

Both take about the same time for 2,000 workloads and for 100,000 (`provision.formulations.values`). Workloads with
limits on their replicas, and the last few that are left over, are planned by greedy.
"""

import math
from collections.abc import Sequence

from provision.formulations.search.segments import best_segments
from provision.formulations.values import bound
from provision.formulations.values.classes import classes_of
from provision.formulations.values.plan import LargePlan
from provision.formulations.values.schedule import SCHEDULE, Size
from provision.heuristics.core import greedy
from provision.models.base.clock import Stopwatch
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.search import Outcome, Progress, Search
from provision.solving.steps import valid_for

NAME = "large"


def applies(instance: Instance) -> bool:
    """Whether an instance can be planned in this way: most workloads may have any number of replicas, too."""
    free = sum(one.max_replicas is None for one in instance.workloads)
    return bound.applies(instance) and 2 * free > len(instance.workloads)


def solve(instance: Instance, search: Search) -> Outcome:
    """Plan and bound an instance in turns: ever more classes, until a plan fails, its program promises none that is
    cheaper, or the time is over; and before each plan a bound, for as long as the next plan may take. Without a plan,
    greedy makes one.
    """
    progress, bounds = Progress(instance, search), bound.value_bound(instance)
    free, sizes, seconds = _free(instance), list(SCHEDULE.sizes), SCHEDULE.turn_s
    while not progress.enough and search.left_s > 0 and (bounds.prove(progress, seconds) or sizes):
        if sizes and not progress.enough:
            watch = Stopwatch()
            plan = planned(instance, free, sizes.pop(0), search, progress.value)
            progress.offer(plan)
            seconds = max(SCHEDULE.turn_s, watch.elapsed_s * SCHEDULE.longer)
            if plan is None or 2 * seconds > search.left_s:  # a bound comes before the next plan
                sizes.clear()
    if progress.plan is None:
        progress.offer(greedy.solve(instance, search.apart()).plan)
    return progress.outcome("proved" if progress.proved else "completed" if search.left_s > 0 else "time_limit")


def _free(instance: Instance) -> list[int]:
    """The workloads, by index, that may be split freely and need few replicas."""
    most_rps = best_segments(instance).throughput_rps.max(axis=1, initial=0.0).tolist()
    return [at for at, (one, rps) in enumerate(zip(instance.workloads, most_rps, strict=True))
            if one.max_replicas is None and one.min_replicas <= 1 and one.max_share_per_gpu == 1
            and 0 < instance.planned_rps(one) <= SCHEDULE.full * rps]


def planned(instance: Instance, free: Sequence[int], size: Size, search: Search, known: float | None = None
            ) -> Plan | None:
    """Plan the workloads ``free`` in classes of similar workloads, and all that are left by greedy.

    Returns None if ``free`` is empty, no valid plan is found, or the program's value is not below ``known``, a value of
    the objective.
    """
    if not free:
        return None
    several = classes_of(instance, free, min(size.classes, max(len(free) // SCHEDULE.members, 1)))
    plan = LargePlan(instance, several, size.ranges)
    below = math.inf if known is None else known / (plan.problem.dearest * plan.problem.unit)
    plan.run(search.within(search.left_s * SCHEDULE.plan_share), below)
    if plan.value >= below:
        return None
    left = set(range(len(instance.workloads))) - {at for served in plan.served.values() for _, at, _ in served}
    gpus = plan.planned()
    if left:
        rest = instance.replace(workloads=[instance.workloads[at] for at in sorted(left)])
        found = greedy.solve(rest, search.apart())
        if found.plan is None:
            return None
        gpus += found.plan.gpus
    return valid_for(instance, instance.plan_of(NAME, gpus))
