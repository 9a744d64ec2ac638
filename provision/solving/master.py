"""The master program as a method. If closed networks share slices, it begins with a plan and a bound that need no
columns; isolated slices of a limited fleet are planned at once by the program in whole numbers.

The first plan of shared slices comes from ruin and recreate, which takes turns with the master program.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from provision.formulations.master import solve as master
from provision.formulations.master.fullest import FullFleet
from provision.formulations.master.plans import rated_plan
from provision.formulations.master.relaxations import merged_bounds
from provision.formulations.pricing.shared_mig.shared_relaxation import (
    further_bound,
    is_relaxed,
    least_units,
    never_served,
)
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import best_segments
from provision.formulations.search.type_counts import TypeCounts
from provision.heuristics.core import lns
from provision.heuristics.core.mixing import cuts_of
from provision.models.base.clock import Stopwatch
from provision.models.base.tolerances import MISSING, SOLVER
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import SHARED, Method, needs
from provision.models.problem.search import Outcome, Progress, Search
from provision.solving import values
from provision.solving.schedule import SCHEDULE
from provision.solving.steps import GREEDY, Step

TOO_SMALL = "the fleet has too few GPUs; allow more, or ask for lower rates or fewer replicas"


def solve(instance: Instance, search: Search) -> Outcome:
    """Plan an instance by the master program, after the steps that are quicker where they apply."""
    progress = Progress(instance, search)
    for step in _first_steps(instance, search.start is not None):
        found = step(instance, search)
        if found.status in ("optimal", "infeasible"):
            return found
        progress.offer(found.plan)
        progress.prove(found.bound)
        search = replace(search, start=progress.plan, bound=progress.bound)
    if values.applies(instance):
        return values.solve(instance, search)
    return master.solve(instance, search, solve, lns.walking if needs(instance) <= lns.METHODS[0].features else None)


def _first_steps(instance: Instance, begun: bool) -> Iterator[Step]:
    """Yield the steps before column generation; ``begun`` tells whether a plan is known.

    If no slices are shared, these are the program in whole numbers where the fleet is limited, greedy, which mixes
    replica sets by prices of slices, and the bound that such prices prove. If closed networks share slices and no plan
    is known, it is a plan and a bound that need no columns.
    """
    least_cost = instance.objective != THROUGHPUT
    if needs(instance) & SHARED:
        if not begun and shares_networks(instance):
            yield first_answers
        return
    if all(entry.count is not None for entry in instance.fleet):
        yield whole_numbers
    if least_cost:
        yield GREEDY
        yield _bounded


def _bounded(instance: Instance, search: Search) -> Outcome:
    """The known plan, with a bound from the prices of mixed replica sets and the limits of the fleet; infeasible if
    they prove that the fleet is too small.
    """
    progress, problem = Progress(instance, search), Problem(instance)
    if not problem.groups:
        return progress.outcome("completed")
    proof = TypeCounts(problem.pools, problem.most_gpus)
    proof.at_least(problem.spread_over)
    for prices, needed in cuts_of(instance, problem.segments, search.within()):
        proof.add(int(needed.sum()), [int((pool.partitions @ prices).max()) for pool in problem.pools])
    if math.isinf(proof.bound):
        return Outcome("infeasible", "proved", reason=proof.too_small)
    progress.prove(problem.objective(proof.bound))
    return progress.outcome("completed")


def whole_numbers(instance: Instance, search: Search) -> Outcome:
    """Plan most throughput of isolated slices on a limited fleet by one integer program, since the patterns of a single
    replica are all patterns; for least cost, prove that the fleet is too small, if it is.
    """
    refused = proved_infeasible(instance, best_segments(instance))
    if refused:
        return replace(refused, build_seconds=search.elapsed_s)
    progress, problem = Progress(instance, search), Problem(instance)
    if instance.objective != THROUGHPUT:
        if search.start is None and math.isinf(least_units(problem, min(SCHEDULE.whole_s, search.left_s))):
            return Outcome("infeasible", "proved", reason=TOO_SMALL)
        return progress.outcome("completed")
    fleet = FullFleet(problem, ())
    right = fleet.master.sides(demand=fleet.demand_rps * (1 - MISSING))
    found = fleet.master.integral(fleet.columns_of(fleet.columns), min(SCHEDULE.whole_s, search.left_s), right)
    progress.prove(SOLVER * max(1.0, -found.bound) - found.bound)
    filled = None if found.x is None else fleet.filled(found.x)
    progress.offer(None if filled is None else rated_plan(problem, *filled, master.NAME))
    return progress.outcome("completed")


def merged_bound(instance: Instance, search: Search) -> Outcome:
    """The bound of similar workloads merged into few (`provision.formulations.master.relaxations`)."""
    progress = Progress(instance, search)
    for bound in merged_bounds(instance, search):
        if math.isinf(bound):
            return Outcome("infeasible", "proved", reason=TOO_SMALL)
        progress.prove(bound or None)
        if search.elapsed_s > SCHEDULE.merged_s:
            break
    return progress.outcome("completed")


def shares_networks(instance: Instance) -> bool:
    """Whether the instance lets workloads share slices (``policy.share_slices``), and ruin and recreate supports all
    its features.
    """
    asked = needs(instance)
    return "share_slices" in asked and asked <= lns.METHODS[0].features


def first_answers(instance: Instance, search: Search) -> Outcome:
    """Plan an instance whose slices closed networks share, by ruin and recreate and a bound without columns.

    The two take turns, each longer than the last. The walk of ruin and recreate goes on where it stopped; a bound that
    was cut off is begun again.
    """
    refused = never_served(instance)
    if refused:
        return replace(refused, build_seconds=search.elapsed_s)
    progress, bounded, seconds = Progress(instance, search), is_relaxed(instance), SCHEDULE.bound_s
    progress.offer(lns.first_plan(instance, search))
    walk, cut = lns.walking(progress), bounded
    going = walk(SCHEDULE.walk_s)
    while bounded and (cut or going) and not progress.proved and search.left_s and seconds <= SCHEDULE.longest_s:
        if cut:
            watch = Stopwatch()
            bound = further_bound(instance, min(seconds, search.left_s))
            if math.isinf(bound):
                reason = "the fleet has too few GPUs, even with slices shared; allow more"
                return Outcome("infeasible", "proved", reason=reason)
            progress.prove(bound or None)
            cut = watch.elapsed_s >= seconds * SCHEDULE.cut
        going = walk(seconds)
        seconds *= SCHEDULE.longer
    return progress.outcome("time_limit" if going or not search.left_s else "completed",
                            "no plan found; more time may find one")


METHODS = (
    Method(
        name=master.NAME,
        summary="column generation over patterns of replicas, for every way of sharing, with a proof",
        run=solve,
        exact=True,
        source="this package; Gilmore and Gomory 1961, Farley 1990",
        features=frozenset(
            {"several_gpu_types", "limited_counts", "with_mig", "without_mig", "without_mps", "min_replicas",
             "max_replicas", "max_share_per_gpu", "variants", "interference", "share_slices", "gpulets",
             "other_sharing", "random_interference", "random_turns", "random_slices", "isolated_data", "tokens",
             "max_throughput", "full_batches"}),
    ),
)
