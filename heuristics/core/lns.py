"""Ruin and recreate (Schrimpf et al. 2000; large neighbourhood search, Shaw 1998) on plans, in steps of compiled code.

A walk takes the steps: ``shared_walk`` over GPUs that replicas share under interference, ``slice_walk`` over slices of
GPUs, each of which one replica has to itself or replicas share as closed networks. It begins with ``search.start`` or
the greedy plan.
"""

from typing import Any, Protocol

import numpy as np

from provision.formulations.pricing.mps.shared_plans import (
    FEATURES,
    Pattern,
    SharedProblem,
    is_shared,
    plan_shared,
    shared_problem,
)
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import best_segments
from provision.heuristics.core import greedy
from provision.heuristics.core.shared_walk import SharedWalk
from provision.heuristics.core.slice_walk import SCHEDULE, SliceWalk
from provision.models.base.clock import Stopwatch
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.method import ISOLATED, Method, needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Search, Termination

NAME = "lns"
CHUNK_S = 0.1
"""About how long compiled steps run before the clock and Ctrl-C are checked."""


class Walk(Protocol):
    """Plans being improved."""

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to try."""
        ...

    @property
    def value(self) -> float | None:
        """The objective of the best plan so far; None without one within the fleet."""
        ...

    def step(self, steps: int) -> bool:
        """Take this number of steps; returns whether there is a better plan."""
        ...


def solve(instance: Instance, search: Search) -> Outcome:
    """Search until the time or ``iterations`` are over, or a bound is met; Ctrl-C returns the best plan so far.

    On slices a search without ``iterations`` also ends when it has made no progress for long (``patience``).
    """
    return _on_gpus(instance, search) if is_shared(instance) else _on_slices(instance, search)


def _on_gpus(instance: Instance, search: Search) -> Outcome:
    """Plan GPUs that replicas share under interference."""
    def patterns(problem: SharedProblem) -> tuple[list[Pattern], dict[str, Any]]:
        walk = SharedWalk(problem, search.start, np.random.default_rng(search.seed))
        ended = _walked(walk, instance, search)
        return walk.best, {"status": "feasible", "termination": ended}

    return plan_shared(instance, search, NAME, patterns, shared_problem)


def _on_slices(instance: Instance, search: Search) -> Outcome:
    """Plan slices that hold one replica, or several as closed networks."""
    segments = best_segments(instance)
    refused = proved_infeasible(instance, segments)
    if refused and not instance.policy.share_slices:
        return refused
    start = search.start or _greedy(instance, search)
    patience = SCHEDULE.patience if search.parameters.get("iterations") is None else np.inf
    walk = SliceWalk(instance, segments, start, search.bound or 0.0, np.random.default_rng(search.seed), patience)
    build_seconds = search.elapsed_s
    termination = _walked(walk, instance, search)
    plan, reason = walk.plan(NAME), refused.reason if refused else "no plan found; more time, or master, may find one"
    return Outcome("unknown" if plan is None else "feasible", termination, plan, reason=reason if plan is None else "",
                   build_seconds=build_seconds)


def _greedy(instance: Instance, search: Search) -> Plan | None:
    """The greedy plan, where greedy can do all that is asked for and finds one."""
    asked = needs(instance)
    return greedy.solve(instance, search).plan if asked <= greedy.METHODS[0].features else None


def _walked(walk: Walk, instance: Instance, search: Search) -> Termination:
    """Walk until a plan is proven, the time or ``iterations`` are over, or nothing is left to try: why it ended."""
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
    """Report the best so far."""
    search.report(Incumbent(walk.value, search.bound))


METHODS = (
    Method(
        name=NAME,
        summary="ruin and recreate over shared GPUs and slices, from the greedy plan or a given one",
        run=solve,
        compiled=True,
        source="this package; Schrimpf et al. 2000",
        features=FEATURES | ISOLATED | {"share_slices", "random_slices", "max_replicas"},
        parameters={"iterations": None},
    ),
)
