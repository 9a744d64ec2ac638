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
from provision.heuristics.core.walk import Walk
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method, needs
from provision.models.problem.search import Outcome, Progress, Search, Termination

WALK_S, BOUND_S, LONGEST_S, LONGER = 0.4, 4.0, 32.0, 2
"""The seconds of ruin and recreate before the bound, of the first bound and of the walk after it, those of the longest
bound, and the factor from one to the next. They do not depend on the time limit.
"""
OFFER_S = 0.1
"""The seconds after which the first plan of ruin and recreate is offered."""
CUT = 0.9
"""A bound that took less than this fraction of its time was not cut off, so more time cannot raise it."""
STEPS = 100_000
"""The most iterations of ruin and recreate."""


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

    The two take turns, each longer than the last. The walk of ruin and recreate goes on where it stopped; a bound that
    was cut off is begun again. Ctrl-C returns the best plan so far.
    """
    progress, bounded = Progress(instance, search), is_relaxed(instance)
    refused = never_served(instance)
    if refused:
        return replace(refused, build_seconds=search.elapsed_s)
    try:
        walk, seconds, cut = lns.begun(instance, search, math.inf), BOUND_S, bounded
        _walked(walk, progress, OFFER_S)
        ended = _walked(walk, progress, WALK_S - OFFER_S)
        while bounded and ended != "stopped" and not progress.proved and search.left_s and seconds <= LONGEST_S:
            if cut:
                before_s = search.elapsed_s
                bound = further_bound(instance, min(seconds, search.left_s))
                if math.isinf(bound):
                    reason = "the fleet has too few GPUs, even with slices shared; allow more"
                    return Outcome("infeasible", "proved", reason=reason)
                progress.prove(bound or None)
                cut = search.elapsed_s - before_s >= seconds * CUT
            ended = _walked(walk, progress, seconds)
            if ended == "completed" and not cut:
                break
            seconds *= LONGER
    except KeyboardInterrupt:
        ended = "stopped"
    return progress.outcome(ended, "no plan found; more time may find one")


def _walked(walk: Walk, progress: Progress, seconds: float) -> Termination:
    """Go on with ruin and recreate for some seconds, and offer its plan; return why it ended."""
    walk.bound = progress.bound or 0.0
    ended = lns.walked(walk, replace(progress.search.apart(seconds), bound=progress.bound), STEPS)
    progress.offer(walk.plan(lns.NAME))
    return ended


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
