"""Many workloads that share whole GPUs under interference: a bound by prices of replicas and ruin and recreate take
turns, and one plan of parts of workloads comes in between.

Bounds and plans of parts take hardly longer for 100,000 workloads than for 2,000 (`provision.formulations.values`).
Greedy plans what the plan of parts leaves.
"""

import math

from provision.formulations.pricing.rates import MOST_NAMED
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import best_segments
from provision.formulations.values import bound
from provision.formulations.values.plan import plan_of_parts
from provision.heuristics.core import greedy, lns
from provision.models.problem.instance import Instance
from provision.models.problem.search import Outcome, Progress, Search
from provision.solving.repair import mended
from provision.solving.schedule import SCHEDULE
from provision.solving.steps import narrower, of_others

NAME = "large"


def applies(instance: Instance) -> bool:
    """Whether an instance has more workloads than patterns name one by one, and prices of replicas prove a bound."""
    return len(instance.workloads) > MOST_NAMED and bound.applies(instance)


def vast(instance: Instance) -> bool:
    """Whether an instance has so many different workloads that greedy and ruin and recreate take very long."""
    slos = {(one.models, one.slo_ms) for one in instance.workloads}
    return len(slos) > SCHEDULE.walked or len(set(instance.workloads)) > SCHEDULE.vast


def solve(instance: Instance, search: Search) -> Outcome:
    """Plan and bound an instance in turns until the plan is proven, nothing is left to try, or the time is over. Before
    come a first bound and, unless a plan is known, greedy on narrower instances and on the whole. The plan of parts
    comes after the first turn.
    """
    refused = proved_infeasible(instance, best_segments(instance))
    if refused:
        return refused
    progress, bounds, parts, going = Progress(instance, search), bound.value_bound(instance), True, True
    walk = None if vast(instance) else lns.walking(progress)
    bounds.prove(progress, 0.0)  # the first round always runs
    if walk is not None and math.isfinite(bounds.proof.bound):
        if search.start is None:
            progress.offer(of_others(narrower)(instance, search.apart()).plan)
            progress.offer(greedy.solve(instance, search.apart()).plan)
        walk(SCHEDULE.walk_s)
    while not progress.enough and search.left_s > 0 and (going or parts) and math.isfinite(bounds.proof.bound):
        going = bounds.prove(progress, SCHEDULE.values_s)
        if walk is not None and not progress.enough:
            going |= walk(SCHEDULE.walks_s)
        if parts and not progress.enough:
            gpus = plan_of_parts(instance, search.within(SCHEDULE.parts_s), progress.value)
            progress.offer(mended(instance, instance.plan_of(NAME, gpus), search) if gpus else None)
            parts = False
    if math.isinf(bounds.proof.bound):
        return Outcome("infeasible", "proved", reason=bounds.proof.too_small)
    if progress.plan is None:
        progress.offer(greedy.solve(instance, search.apart()).plan)
    return progress.outcome("proved" if progress.proved else "completed" if search.left_s > 0 else "time_limit",
                            "no plan found; more time may find one")
