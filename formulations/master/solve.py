"""The master program as a method: it alternates between bounds and plans until the plan is proven optimal or time is
up.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from provision.formulations.master.rates.rated import RatedSearch, named, rated_oracles
from provision.formulations.master.relaxations import temporal_bound
from provision.formulations.master.run import Run
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.master.throughput import fill_fleet
from provision.formulations.pricing.rates import MOST_NAMED
from provision.formulations.pricing.shared_mig.shared_relaxation import further_bound, never_served
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.problem import Problem
from provision.formulations.search.regrouping import in_parts
from provision.formulations.search.segments import best_segments
from provision.formulations.search.type_counts import TypeCounts
from provision.formulations.values.bound import ValueBound, applies, value_bound
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
    termination, proof = _planned(problem, progress, plans)
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


def _planned(problem: Problem, progress: Progress, plans: Callable[[Progress], Turn] | None
             ) -> tuple[Termination, TypeCounts | None]:
    """Plan and prove by the searches that suit the problem; return why they ended, and the TypeCounts that prove the
    bound.
    """
    if not problem.groups:
        progress.offer(problem.instance.plan_of(NAME, ()))
        progress.prove(0.0)
        return "proved", None
    prices, turns = _prices(problem, progress), list[Turn]()
    walks = [] if plans is None else [plans(progress)]
    if prices is not None:
        turns = [partial(prices.prove, progress), *([] if problem.single else walks)]
        go_on(turns, progress, SCHEDULE.prices_s)
        if math.isinf(prices.proof.bound):
            return "proved", prices.proof
    if progress.plan is not None and not progress.search.left_s:
        progress.prove(problem.objective(first_bound(problem)))
        return "time_limit", None
    rated = _rated(problem, progress, walks) if prices is None else None
    proof = None if rated is None else rated.proof
    if not progress.proved and (rated is None or math.isfinite(rated.bound)):
        _prove_further(problem, progress)
        if rated is not None and not (rated.complete or rated.coarse) and progress.plan is not None:
            # Roles split workloads at fewer rates than these patterns do, so they make no better plans.
            return "completed" if progress.search.left_s > 0 else "time_limit", proof
        if progress.plan is not None and progress.bound is not None and not progress.search.left_s:
            return "time_limit", proof
        return _improved(problem, progress, turns, proof)
    return "proved", proof


def go_on(turns: Sequence[Turn], progress: Progress, seconds: float) -> bool:
    """Go on with the first search, which proves bounds, for some seconds, and with the second, which makes plans, for a
    part of that time. Return whether any has something left to try.
    """
    return any([turn(seconds * SCHEDULE.some if at else seconds)
                for at, turn in enumerate(turns) if not progress.enough])


def _improved(problem: Problem, progress: Progress, turns: Sequence[Turn], proof: TypeCounts | None
              ) -> tuple[Termination, TypeCounts | None]:
    """Go on by column generation, with one replica for each workload or part of one, and by the searches ``turns``, one
    after the other, until the time is over or nothing more can be tried. Return as ``_planned`` does.
    """
    further = partial(go_on, turns, progress)
    further(SCHEDULE.prices_s * SCHEDULE.some)  # parts of workloads make better plans only in longer time
    ended: Termination = "completed"
    parts = problem if problem.single else Problem(problem.instance, in_parts(problem))
    if parts.single and not progress.enough:
        run = Run(parts, progress, NAME, parts is problem, further)
        try:
            ended, proof = run.until_proved(), run.columns.proof if run.proves else proof
        finally:
            run.keep()
    while not progress.enough and progress.search.left_s > 0 and further(SCHEDULE.prices_s):
        pass
    return "proved" if progress.proved else ended, proof


def _prove_further(problem: Problem, progress: Progress) -> None:
    """Prove a bound that needs no column generation."""
    instance, seconds = problem.instance, min(SCHEDULE.bound_s, progress.search.left_s)
    if instance.policy.rule.random_arrivals:
        bound = temporal_bound(problem, seconds)
    else:
        bound = 0.0 if progress.bound is not None else further_bound(instance, seconds)
    for one in (bound, problem.objective(first_bound(problem))):
        progress.prove(one if 0 < one < math.inf else None)  # column generation proves that a fleet is too small


def _prices(problem: Problem, progress: Progress) -> ValueBound | None:
    """The bounds by prices of replicas; None where they do not apply or are of no use.

    They are of no use for few workloads, where patterns that carry rates prove more. Nor are they if no workload can be
    split and all have roles of their own, which prove the same sooner.
    """
    instance = problem.instance
    roles = problem.single and len(problem.groups) <= SCHEDULE.most
    others = len(instance.workloads) <= MOST_NAMED or roles
    return None if others or not applies(instance) else value_bound(instance)


def first_bound(problem: Problem) -> float:
    """A lower bound that takes no search, in units of price: the price of the cheapest GPUs over which some workload
    must be spread, at least one. It is 0 if GPUs are free of charge.
    """
    counts = TypeCounts(problem.pools, problem.most_gpus)
    counts.add(max(problem.spread_over, 1), [1] * len(problem.pools))
    return counts.bound


def _rated(problem: Problem, progress: Progress, walks: Sequence[Turn]) -> RatedSearch | None:
    """Search with patterns that carry rates, and return the search; None if ``rated_oracles`` has none for it.

    Unless all patterns are listed, the searches for plans in ``walks`` get a turn after each step that did not raise
    the bound.
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
        for turn in walks if rated.bound == bound and not (progress.proved or listed) else ():
            turn(watch.elapsed_s * SCHEDULE.some)
        if progress.proved:
            break
        watch, bound = Stopwatch(), rated.bound
    return rated
