"""The master program as a method. If closed networks share slices, it begins with a plan and a bound that need no
columns.

The plan comes from ruin and recreate, which divides rates freely, while roles know only the rates of a grid. Its slices
become columns of the master program.
"""

import math
from dataclasses import replace

from provision.formulations.isolated.shared_relaxation import further_bound, is_relaxed, never_served
from provision.formulations.master import solve as master
from provision.heuristics.core import lns
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method, needs
from provision.models.problem.search import Outcome, Progress, Search, Termination

FIRST_S, FIRST_SHARE = 1.0, 0.1
"""The most seconds, and the largest part of the remaining time, that ruin and recreate may take before the bound."""
BOUND_SHARE, PLAN_SHARE = 0.6, 0.8
"""The part of the remaining time that the bound may take, and the part of the time then left that ruin and recreate may
take.
"""
STEPS = 100_000
"""The most iterations of ruin and recreate after the bound."""


def solve(instance: Instance, search: Search) -> Outcome:
    """Plan an instance by the master program; Ctrl-C returns the best plan so far."""
    if search.start is not None or not shares_networks(instance):
        return master.solve(instance, search, solve)
    found = first_answers(instance, search)
    if found.status in ("optimal", "infeasible") or found.termination == "stopped":
        return found
    return master.solve(instance, replace(search, start=found.plan, bound=found.bound), solve)


def shares_networks(instance: Instance) -> bool:
    """Whether the instance lets workloads share slices (``policy.share_slices``), and ruin and recreate supports all
    its features.
    """
    asked = needs(instance)
    return "share_slices" in asked and asked <= lns.METHODS[0].features


def first_answers(instance: Instance, search: Search) -> Outcome:
    """Plan an instance whose slices closed networks share, by ruin and recreate and a bound without columns.

    Ctrl-C returns the best plan so far.
    """
    progress, relaxed = Progress(instance, search), is_relaxed(instance)
    refused = never_served(instance)
    if refused:
        return replace(refused, build_seconds=search.elapsed_s)
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
    """Run ruin and recreate and offer its plan; return why it ended."""
    search = progress.search.anew(time_limit_s=limit_s, start=progress.plan, bound=progress.bound,
                                  report=lambda news: None, parameters={"iterations": STEPS})
    found = lns.solve(progress.instance, search)
    progress.offer(found.plan)
    return found.termination


METHODS = (
    Method(
        name=master.NAME,
        summary="one program for every way of sharing: column generation over patterns and replica sets, proven",
        run=solve,
        compiled=True,
        exact=True,
        source="this package; Gilmore and Gomory 1961, Farley 1990",
        features=frozenset(
            {"several_gpu_types", "limited_counts", "with_mig", "without_mig", "without_mps", "min_replicas",
             "max_replicas", "max_share_per_gpu", "variants", "interference", "share_slices", "gpulets",
             "other_sharing", "random_interference", "random_turns", "random_slices", "isolated_data", "tokens",
             "max_throughput", "full_batches"}),
    ),
)
