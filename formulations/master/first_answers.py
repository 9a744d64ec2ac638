"""A plan and a bound soon, where closed networks share slices: before columns, whose roles know rates only in steps.

The plan is that of ruin and recreate, which divides rates freely. Its slices are columns afterwards.
"""

import math
from dataclasses import replace
from time import perf_counter

from provision.formulations.isolated.shared_relaxation import further_bound, is_relaxed, most_alone_or_shared
from provision.formulations.search.feasibility import refusal
from provision.formulations.search.segments import best_segments
from provision.heuristics.core import lns
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs
from provision.models.problem.search import Outcome, Progress, Search, Termination

FIRST_S, FIRST_SHARE = 1.0, 0.1
"""Seconds, and part of the time left, that ruin and recreate may take at most before the bound."""
BOUND_SHARE, PLAN_SHARE = 0.6, 0.8
"""Parts of the time left that the bound may take, and then ruin and recreate."""
STEPS = 100_000
"""Steps of ruin and recreate after the bound."""


def shares_networks(instance: Instance) -> bool:
    """Whether slices may be shared as closed networks, and ruin and recreate can plan all that is asked for."""
    asked = needs(instance)
    return "share_slices" in asked and asked <= lns.METHODS[0].features


def first_answers(instance: Instance, search: Search) -> Outcome:
    """Plan an instance whose slices networks share; Ctrl-C returns the best plan so far."""
    progress, relaxed = Progress(instance, search), is_relaxed(instance)
    refused = refusal(instance, most_alone_or_shared(instance) if relaxed else best_segments(instance), search.started)
    if refused:
        return refused
    try:
        ended = _walked(progress, min(FIRST_S, FIRST_SHARE * search.left_s))
        if relaxed and ended != "stopped" and not progress.proved:
            bound = further_bound(instance, search.left_s * BOUND_SHARE)
            if math.isinf(bound):
                reason = "the fleet has too few GPUs, even with slices shared; allow more"
                return Outcome("infeasible", "proved", reason=reason)
            progress.prove(bound or None)
            if not progress.proved:
                ended = _walked(progress, search.left_s * PLAN_SHARE)
    except KeyboardInterrupt:
        ended = "stopped"
    return progress.outcome(ended, "no plan found; more time may find one")


def _walked(progress: Progress, limit_s: float) -> Termination:
    """Offer the plan of ruin and recreate; returns why it ended."""
    search = replace(progress.search, time_limit_s=limit_s, start=progress.plan, bound=progress.bound,
                     report=lambda news: None, parameters={"iterations": STEPS}, started=perf_counter())
    found = lns.solve(progress.instance, search)
    progress.offer(found.plan)
    return found.termination
