"""The master program as a method: bounds and plans from patterns that carry rates, and a search for plans that takes
turns with them.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from provision.formulations.master.rated import RatedSearch, named, rated_oracles
from provision.formulations.master.relaxations import temporal_bound
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.master.throughput import fill_fleet
from provision.formulations.pricing.shared_mig.shared_relaxation import further_bound, never_served
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import best_segments
from provision.formulations.search.type_counts import TypeCounts
from provision.models.base.clock import Stopwatch
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.search import Outcome, Progress, Search, Termination

Step = Callable[[Instance, Search], Outcome]
Turn = Callable[[float], bool]
"""Goes on with a search of the instance for some seconds; returns whether it has anything left to try."""
NAME = "master"
"""The name of the method; it is written into its plans."""


def solve(instance: Instance, search: Search, serve: Step | None = None,
          plans: Callable[[Progress], Turn] | None = None) -> Outcome:
    """Plan an instance.

    Parameters
    ----------
    instance, search
        The problem and the search.
    serve
        For the objective max_throughput, the method that finds a cheap plan for all rates; by default this function.
    plans
        Begins a search for plans, which takes turns with the searches for bounds.
    """
    if instance.objective == THROUGHPUT:
        return fill_fleet(instance, search, NAME, serve or solve)
    refused = _refused(instance, search)
    if refused:
        return refused
    problem, progress = Problem(instance), Progress(instance, search)
    build_s = search.elapsed_s
    termination, proof = _searched(problem, progress, plans)
    if proof is not None and math.isinf(proof.bound) and progress.plan is None:
        return replace(progress.outcome("proved", proof.too_small, build_s), status="infeasible", bound=None)
    return progress.outcome(termination, "no plan found; more time may find one", build_s)


def _refused(instance: Instance, search: Search) -> Outcome | None:
    """The outcome if some workload cannot be served alone on any slice, else None.

    The outcome is infeasible, unless such a workload may still share a slice, or a plan is known: then it is the plan
    and the bound known so far, and other methods go on.
    """
    refused = proved_infeasible(instance, best_segments(instance))
    if refused and (search.start is not None or not never_served(instance)):
        return Progress(instance, search).outcome("completed", refused.reason)
    return refused and replace(refused, build_seconds=search.elapsed_s)


def _searched(problem: Problem, progress: Progress, plans: Callable[[Progress], Turn] | None
              ) -> tuple[Termination, TypeCounts | None]:
    """Plan and prove by the searches that suit the problem; return why they ended, and the TypeCounts that prove the
    bound.
    """
    if not problem.groups:
        progress.offer(problem.instance.plan_of(NAME, ()))
        progress.prove(0.0)
        return "proved", None
    turn = None if plans is None else plans(progress)
    if progress.plan is not None and not progress.search.left_s:
        progress.prove(problem.objective(first_bound(problem)))
        return "time_limit", None
    rated = _rated(problem, progress, turn)
    proof = None if rated is None else rated.proof
    if progress.proved or (proof is not None and math.isinf(proof.bound)):
        return "proved", proof
    _prove_further(problem, progress)
    idle = SCHEDULE.idle if rated is not None and (rated.coarse or rated.complete) else 0  # else it had its turns
    while turn is not None and idle and not progress.enough and progress.search.left_s > 0:
        before = progress.value
        turn(SCHEDULE.turn_s)
        idle = idle - 1 if progress.value == before else SCHEDULE.idle
    return "proved" if progress.proved else "completed" if progress.search.left_s > 0 else "time_limit", proof


def _prove_further(problem: Problem, progress: Progress) -> None:
    """Prove a bound that needs no column generation."""
    instance, seconds = problem.instance, min(SCHEDULE.bound_s, progress.search.left_s)
    if instance.policy.rule.random_arrivals:
        bound = temporal_bound(problem, seconds)
    else:
        bound = 0.0 if progress.bound is not None else further_bound(instance, seconds)
    for one in (bound, problem.objective(first_bound(problem))):
        progress.prove(one if 0 < one < math.inf else None)  # column generation proves that a fleet is too small


def first_bound(problem: Problem) -> float:
    """A lower bound that takes no search, in units of price: the price of the cheapest GPUs over which some workload
    must be spread, at least one. It is 0 if GPUs are free of charge.
    """
    counts = TypeCounts(problem.pools, problem.most_gpus)
    counts.add(max(problem.spread_over, 1), [1] * len(problem.pools))
    return counts.bound


def _rated(problem: Problem, progress: Progress, walk: Turn | None) -> RatedSearch | None:
    """Search with patterns that carry rates, and return the search; None if ``rated_oracles`` has none for it.

    Unless all patterns are listed, the search for plans gets a turn after each step that did not raise the bound.
    """
    problem = named(problem)
    oracles = rated_oracles(problem, progress.search.within())
    if oracles is None:
        return None
    listed = all(one.complete for _, one in oracles)
    search = progress.search.apart(SCHEDULE.integral_s) if listed else progress.search
    rated = RatedSearch(problem, oracles, search, NAME)
    watch, bound = Stopwatch(), rated.bound
    for plan in rated.plans(math.inf if progress.value is None else round(progress.value / problem.unit)):
        if math.isfinite(rated.bound):
            progress.prove(problem.objective(rated.bound))
        progress.offer(plan)
        if walk is not None and rated.bound == bound and not (progress.proved or listed):
            walk(watch.elapsed_s * SCHEDULE.some)
        if progress.proved:
            break
        watch, bound = Stopwatch(), rated.bound
    return rated
