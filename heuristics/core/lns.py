"""Improves plans by ruin and recreate (Schrimpf et al. 2000; large neighbourhood search, Shaw 1998) in compiled steps.

The search begins with ``search.start``, or else with the greedy plan.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import best_segments
from provision.heuristics.core import greedy
from provision.heuristics.core.greedy import problem_of
from provision.heuristics.core.schedule import SCHEDULE
from provision.heuristics.core.walk import Walk
from provision.models.base.clock import TimeIsUpError
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.method import ISOLATED, Method, needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Progress, Search

NAME = "lns"


def solve(instance: Instance, search: Search) -> Outcome:
    """Search until the time or ``iterations`` are over, or a bound is met.

    A search without ``iterations`` also ends after many steps without progress (``Schedule.patience``).
    """
    refused = proved_infeasible(instance, best_segments(instance))
    if refused and not instance.policy.share_slices:
        return refused
    limited = search.parameters.get("iterations") is not None
    most, patience = (search.positive("iterations", int), math.inf) if limited else (math.inf, SCHEDULE.patience)
    search = replace(search, start=first_plan(instance, search))
    try:
        walk = begun(instance, search, patience)
    except TimeIsUpError:
        plan = search.start or greedy.unshared(instance, search)
        return Outcome("unknown" if plan is None else "feasible", "time_limit", plan, build_seconds=search.elapsed_s)
    build_seconds = search.elapsed_s
    termination = walk.go(search, most)
    plan, reason = walk.plan(NAME), refused.reason if refused else "no plan found; more time, or master, may find one"
    return Outcome("unknown" if plan is None else "feasible", termination, plan, reason=reason if plan is None else "",
                   build_seconds=build_seconds)


def first_plan(instance: Instance, search: Search) -> Plan | None:
    """The plan of the Search; if it has none, the greedy plan of isolated segments. None if replicas share whole GPUs;
    a walk then begins in the same way as greedy.
    """
    if search.start is not None or not needs(instance) <= greedy.MIXED:
        return search.start
    return greedy.solve(instance, search.apart()).plan


def begun(instance: Instance, search: Search, patience: float) -> Walk:
    """A Walk from the plan of the Search, or from none; for ``patience`` see Walk. Raises TimeIsUpError if the walk
    cannot begin in time.
    """
    draw = np.random.default_rng(search.seed)
    return Walk(problem_of(instance), search.start, search.bound or 0.0, draw, search.within(), patience)


def walking(progress: Progress) -> Callable[[float], bool]:
    """A function that improves the best plan by ruin and recreate for some seconds, a turn. It returns True if the time
    ended the turn, and False if the walk ran out of patience or of GPUs to try (`Walk`); the next turn then has full
    patience again.

    The walk begins in the first turn, and goes on from the best plan where another search found it.
    """
    walks = list[Walk]()

    def turn(seconds: float) -> bool:
        instance, search = progress.instance, replace(progress.search, start=progress.plan, bound=progress.bound)
        try:
            if not walks:
                walks.append(begun(instance, search, SCHEDULE.patience))
            elif progress.plan is not None and objective_of(instance).better(progress.value, walks[0].value):
                walks[0].go_on_from(progress.plan, search.bound or 0.0, search.within())
        except TimeIsUpError:
            return False
        walk = walks[0]
        if walk.ended:
            walk.idle = 0
        ended = walk.go(replace(search.apart(seconds), bound=progress.bound))
        progress.offer(walk.plan(NAME))
        return ended == "time_limit"

    return turn


METHODS = (
    Method(
        name=NAME,
        summary="ruin and recreate over shared GPUs and slices, from the greedy plan or a given one",
        run=solve,
        source="this package; Schrimpf et al. 2000",
        features=ISOLATED | {"share_slices", "random_slices", "max_replicas", "interference", "random_interference",
                             "gpulets", "random_turns", "other_sharing"},
        parameters={"iterations": None},
    ),
)
