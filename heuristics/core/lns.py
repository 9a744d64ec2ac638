"""Improves plans by ruin and recreate (Schrimpf et al. 2000; large neighbourhood search, Shaw 1998) in compiled steps.

The search begins with ``search.start``, or else with the greedy plan.
"""

import numpy as np

from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import best_segments
from provision.heuristics.core import greedy
from provision.heuristics.core.parts import problem_of
from provision.heuristics.core.walk import SCHEDULE, Walk
from provision.models.base.clock import Stopwatch
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.method import ISOLATED, Method, needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Search, Termination

NAME = "lns"
CHUNK_S = 0.1
"""The approximate time that compiled steps run before the clock and Ctrl-C are checked."""


def solve(instance: Instance, search: Search) -> Outcome:
    """Search until the time or ``iterations`` are over, or a bound is met; Ctrl-C ends with the best plan so far.

    A search without ``iterations`` also ends after many steps without progress (``RuinSchedule.patience``).
    """
    refused = proved_infeasible(instance, best_segments(instance))
    if refused and not instance.policy.share_slices:
        return refused
    patience = SCHEDULE.patience if search.parameters.get("iterations") is None else np.inf
    walk = Walk(problem_of(instance), search.start or _greedy(instance, search), search.bound or 0.0,
                np.random.default_rng(search.seed), patience)
    build_seconds = search.elapsed_s
    termination = _walked(walk, instance, search)
    plan, reason = walk.plan(NAME), refused.reason if refused else "no plan found; more time, or master, may find one"
    return Outcome("unknown" if plan is None else "feasible", termination, plan, reason=reason if plan is None else "",
                   build_seconds=build_seconds)


def _greedy(instance: Instance, search: Search) -> Plan | None:
    """The greedy plan of isolated segments. None if the instance has shared slices; the walk then begins in the same
    way as greedy.
    """
    return greedy.solve(instance, search).plan if needs(instance) <= greedy.MIXED else None


def _walked(walk: Walk, instance: Instance, search: Search) -> Termination:
    """Walk until a plan is proven, the time or ``iterations`` are over, or nothing is left to try; return why it ended.
    """
    limited = search.parameters.get("iterations") is not None
    left, steps = search.positive("iterations", int) if limited else np.inf, 1
    _tell(walk, search)
    try:
        while left > 0 and not walk.ended and not objective_of(instance).proved(walk.value, search.bound):
            if not search.left_s:
                return "time_limit"
            many, step = int(min(steps, left)), Stopwatch()
            if walk.step(many):
                _tell(walk, search)
            left -= many
            steps = max(int(many * min(CHUNK_S / step.elapsed_s, 2)), 1)
    except KeyboardInterrupt:
        return "stopped"
    return "completed"


def _tell(walk: Walk, search: Search) -> None:
    """Report the value of the best plan so far and the bound."""
    search.report(Incumbent(walk.value, search.bound))


METHODS = (
    Method(
        name=NAME,
        summary="ruin and recreate over shared GPUs and slices, from the greedy plan or a given one",
        run=solve,
        compiled=True,
        source="this package; Schrimpf et al. 2000",
        features=ISOLATED | {"share_slices", "random_slices", "max_replicas", "interference", "random_interference",
                             "gpulets", "random_turns", "other_sharing"},
        parameters={"iterations": None},
    ),
)
