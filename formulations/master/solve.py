"""The master program as a method: bounds and plans in turn until proved or out of time."""

import math
from dataclasses import replace
from time import perf_counter

import numpy as np

from provision.formulations.bounds.time_bound import time_bound
from provision.formulations.isolated.shared_relaxation import further_bound
from provision.formulations.master.dive import dive
from provision.formulations.master.first_answers import first_answers, shares_networks
from provision.formulations.master.generation import FIRM, REFINED, SLIGHT, Generation, hand_on
from provision.formulations.master.plans import add_plan, plan_of, shared_rates
from provision.formulations.master.rated import RatedSearch, named, rated_oracles
from provision.formulations.master.refined import refined
from provision.formulations.master.replica_sets import forced_roles
from provision.formulations.master.role_columns import Chosen
from provision.formulations.master.temporal_bound import temporal_bound
from provision.formulations.master.throughput import fill_fleet
from provision.formulations.master.whole import first_prices, keeps_limits, unsplit
from provision.formulations.pricing.rated import MOST_NAMED
from provision.formulations.pricing.register import oracles_of
from provision.formulations.search.aggregation import rounded
from provision.formulations.search.feasibility import refusal
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import best_segments
from provision.models.base.tolerances import DUST, SOLVER
from provision.models.plans.plan import Plan
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome, Progress, Search, Termination

NAME = "master"
PRICING_SHARE, SPLIT_SHARE = 0.6, 0.95
"""Part of the time left that columns may take before a plan is made: in general, and before a dive where workloads may
be split, which seldom finds a plan better than one that splits none."""
WHOLE_SHARE = 0.4
"""Part of the time left that a plan may take which splits no workload, where they may be split."""
FIRST_SHARE = 0.1
"""Part of the time that a first plan from the columns to begin with may take."""
STRICT_SHARE = 0.3
"""Part of the time left that columns for plans alone may take."""
MIP_SHARE, QUICK_SHARE, NEAR_COMPLETE_SHARE = 0.5, 0.25, 0.9
"""Parts of the time left that an integer program may take: over the finest steps of rates, before, and for many
workloads with one replica each."""
LISTED_SHARE = 0.7
"""Part of the time left that plans and bounds from a list of all patterns may take."""
FEW_GROUPS = 30
"""With more groups steps of rates are not cut finer, but for many workloads that may be split."""
REDUCED_COST, LEAST_COLUMNS = (0.02, 0.01), (4000, 1500)
"""The integer program takes columns up to this reduced cost, in GPUs, and at least this number of columns: in general,
and where many replicas share slices."""
FIX_FROM = 1500
"""From this number of replicas on, the whole parts of the linear solution are fixed in the integer program, or by
dives."""
DIVE_FROM, REST_S, DIVE_SHARE = 200, 10.0, 0.7
"""From this number of replicas on, some of which share slices, dives fix most columns while some may be missing or
workloads may be split; seconds for the rest of each, and the part of the time left that dives may take."""
NEAR_COMPLETE, FAIR = 0.004, 0.01
"""The gaps between the linear program and the bound that its prices prove, below which columns are as good as complete
for a plan of many workloads with one replica each, and good enough for a brief search."""
ENOUGH_S = 30.0
"""A brief search with so much time left goes on."""
BOUND_GROUPS, PLAN_GROUPS = 1000, 2000
"""More groups than these on shared slices are aggregated to this number, for bounds and for plans."""
VARIED = 20
"""How often columns are sought around the duals before the search for a better plan ends."""
FURTHER_SHARE = 0.2
"""Part of the time left that a further bound (``shared_relaxation``) may take."""
STRICT_ROUNDS = 12
"""Rounds of pricing for plans, where plans and bounds have different replica sets."""


class Run:
    """The search on one Problem.

    Parameters
    ----------
    problem
        The Problem.
    progress
        The best plan and bound so far.
    name
        The method's, for its plans.
    whole
        The columns of the program that splits no workload, where these were sought before.
    brief
        Whether one plan is enough where many replicas share slices and there is little time.

    Attributes
    ----------
    large
        Whether many replicas share slices.
    share
        The part of the time left that columns may take before a plan is made.
    tried
        Whether the integer program over all columns of small reduced cost has been tried.
    finest
        Whether the steps of rates are not to be cut any more.
    """

    def __init__(self, problem: Problem, progress: Progress, name: str, whole: Generation | None = None,
                 brief: bool = False) -> None:
        self.progress, self.search, self.name, self.brief = progress, progress.search, name, brief
        self.problem = self.relaxed_problem = problem
        if problem.roles and len(problem.groups) > BOUND_GROUPS:
            self.relaxed_problem = Problem(
                problem.instance, rounded(problem.groups, BOUND_GROUPS, up=False), relaxed_problem=True
            )
            self.problem = Problem(problem.instance, rounded(problem.groups, PLAN_GROUPS, up=True))
        self.bounds = Generation(self.relaxed_problem)
        self.columns = self.bounds if self.relaxed_problem is self.problem else Generation(self.problem, proves=False)
        self.forced, self.draw = forced_roles(self.problem), np.random.default_rng(self.search.seed)
        self.large = bool(oracles_of(self.relaxed_problem)) and problem.replicas >= DIVE_FROM
        self.tried = False
        split = self.large and not problem.single
        self.share = SPLIT_SHARE if split else PRICING_SHARE
        self.finest = self.relaxed_problem is not self.problem or (len(problem.groups) > FEW_GROUPS and not split)
        if progress.plan is not None:
            for columns in {self.bounds, self.columns}:
                add_plan(columns.program, columns.problem, progress.plan)
        if whole is not None and self.large:
            hand_on(whole, self.bounds)
            self.bounds.price(first_prices(whole, self.relaxed_problem), SLIGHT, 0)
            self.bounds.effort, self.bounds.scale = FIRM, REFINED[0]

    @property
    def near_complete(self) -> bool:
        """Whether hardly a column is missing for a plan of many workloads with one replica each."""
        return self.large and self.problem.single and self.bounds.gap <= NEAR_COMPLETE

    @property
    def dives(self) -> bool:
        """Whether the next plan is that of a dive, which is sooner there than that of the integer program alone."""
        return self.large and (self.tried or not self.near_complete or self.problem.replicas >= FIX_FROM)

    @property
    def infeasible(self) -> bool:
        """Whether it is proven that every plan needs GPUs that the fleet lacks."""
        return math.isinf(self.bounds.bound)

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to find out."""
        return self.progress.proved or self.infeasible

    def until_proved(self) -> Termination:
        """Find columns and plans in turn until proved, out of time, or without progress; returns why it ended."""
        varied, improved = 0, False
        if self.progress.plan is None:
            self.improve(0, FIRST_SHARE)
        while not self.ended:
            for bound in self.bounds.rounds(perf_counter() + self.search.left_s * self.share):
                if math.isfinite(bound) and bound > 0:
                    self.progress.prove(self.problem.objective(bound))
                if self.ended:
                    return "proved"
                if self.bounds.near and not self.finest:
                    break
                if self.brief and self.large and not improved and self.bounds.gap < FAIR:
                    break
            if self.columns is not self.bounds:
                hand_on(self.bounds, self.columns)
                for _ in self.columns.rounds(perf_counter() + self.search.left_s * PRICING_SHARE):
                    pass
            if self.search.left_s <= self.progress.writing_s:
                return "time_limit"
            share = (QUICK_SHARE if not self.finest else DIVE_SHARE if self.dives else NEAR_COMPLETE_SHARE if self.large
                     else MIP_SHARE)
            improved = self.improve(share=share)
            if self.brief and self.large and self.search.left_s < ENOUGH_S:
                return "completed"
            if not self.refine() and not improved:
                if varied >= VARIED and self.columns.converged and self.bounds.converged:
                    return "completed"
                varied += 1
                self.columns.vary(self.draw)
        return "proved"

    def refine(self) -> bool:
        """Cut the steps of rates that a bound stands on, for bounds and plans; whether there are such."""
        if self.finest or not self.bounds.near:
            return False
        fine = refined(self.bounds)
        self.finest = fine is None
        if fine is None:
            return False
        self.bounds = self.columns = fine
        self.problem = self.relaxed_problem = fine.problem
        self.forced = forced_roles(fine.problem)
        return True

    def improve(self, rounds: int = STRICT_ROUNDS, share: float = MIP_SHARE) -> bool:
        """Make a plan from the present columns, and add columns for some rounds; returns whether the plan is better.

        The integer program may take this share of the time left.
        """
        self.columns.price_strictly(rounds, perf_counter() + self.search.left_s * STRICT_SHARE)
        found, value = self._integral(share), self.progress.value
        if found is None or (value is not None and self.problem.objective(self._cost(found)) >= value * (1 - DUST)):
            return False
        return self.progress.offer(plan_of(self.problem, found, self.forced, self.name))

    def _integral(self, share: float) -> Chosen | None:
        """A whole-number solution over the columns of small reduced cost, most of them fixed by a dive at size.

        None where the linear program shows that there is none better than the best plan known.
        """
        if self.dives:
            return self._dived(perf_counter() + self.search.left_s * share)
        program, self.tried = self.columns.program, True
        relaxed = program.relaxed(strict=True)
        if relaxed is None or math.ceil(self.columns.units(relaxed)) >= self._below():
            return None
        most, least = REDUCED_COST[self.large], LEAST_COLUMNS[self.large]
        kept = relaxed.reduced <= max(most, np.sort(relaxed.reduced)[:least][-1])
        kept[program.loose()] = False
        fixed = np.floor(relaxed.parts + SOLVER) * (self.problem.replicas >= FIX_FROM)
        fixed[: program.others] = 0
        return program.integral(kept, fixed, self.search.left_s * share)

    def _dived(self, end: float) -> Chosen | None:
        """The first whole-number solution that the integer program finds at the end of a dive."""
        program = self.columns.program
        for reached in dive(self.columns, end, self.draw, self._below()):
            reached.kept[program.loose()] = False
            found = program.integral(reached.kept, reached.least, min(REST_S, max(end - perf_counter(), 0.0)))
            if found is not None:
                return found
        return None

    def _below(self) -> float:
        """The price of the best plan known, in units; infinite for none."""
        return math.inf if self.progress.value is None else self.progress.value / self.problem.unit

    def _cost(self, found: Chosen) -> int:
        """The price of a solution's GPUs, in units."""
        pairs = zip(self.problem.pools, found.partitions, strict=True)
        return sum(pool.cost(int(many.sum())) for pool, many in pairs)


def solve(instance: Instance, search: Search) -> Outcome:
    """Plan an instance; Ctrl-C returns the best plan so far."""
    if instance.objective == THROUGHPUT:
        return fill_fleet(instance, search, NAME, solve)
    begun = search.start is not None
    if not begun and shares_networks(instance):
        found, begun = first_answers(instance, search), True
        if found.status in ("optimal", "infeasible") or found.termination == "stopped":
            return found
        search = replace(search, start=found.plan, bound=found.bound)
    refused = refusal(instance, best_segments(instance), search.started)
    if refused:  # what no slice serves alone may still share one: then the first answers are all there is
        return Progress(instance, search).outcome("completed", refused.reason) if begun else refused
    problem, progress = _problem(instance, search.start), Progress(instance, search)
    built, run, rated = perf_counter(), None, None
    termination: Termination = "proved"
    if not problem.groups:
        progress.offer(instance.plan_of(NAME, ()))
        progress.prove(0.0)
        return progress.outcome("proved", build_seconds=built - search.started)
    try:
        rated = _rated(problem, progress)
        if not progress.proved and (rated is None or math.isfinite(rated.bound)):
            _prove_further(problem, progress)
            if rated is not None and not rated.complete and progress.plan is not None:
                termination = "completed" if search.left_s > 0 else "time_limit"
            elif not progress.proved:
                run = Run(problem, progress, NAME, _whole(instance, progress))
                termination = run.until_proved()
    except KeyboardInterrupt:
        termination = "stopped"
    proof = run.bounds.proof if run is not None else rated.proof if rated is not None else None
    if proof is not None and math.isinf(proof.bound):
        reason = _too_small(problem, proof.needed)
        return replace(progress.outcome("proved", reason, built - search.started), status="infeasible", bound=None)
    return progress.outcome(termination, "no plan found; more time may find one", built - search.started)


def _problem(instance: Instance, plan: Plan | None) -> Problem:
    """The Problem; where networks share slices it has roles for the rates of a plan, so that its slices are columns."""
    if plan is None or not instance.policy.share_slices or len(instance.workloads) > FEW_GROUPS:
        return Problem(instance)
    return Problem(instance, finer=shared_rates(instance, plan))


def _whole(instance: Instance, progress: Progress) -> Generation | None:
    """Plan with one replica for every workload that one can carry; returns its columns, None without such."""
    part = unsplit(instance)
    if part is None or progress.proved:
        return None
    problem, within = Problem(part), Progress(part, progress.search.apart(WHOLE_SHARE))
    if progress.plan is not None and keeps_limits(part, progress.plan):
        within.plan = progress.plan
    run = None
    try:
        run = Run(problem, within, NAME, brief=True)
        run.until_proved()
    finally:
        if within.plan is not None:
            progress.offer(instance.adopted(within.plan))
    return None if run is None else run.bounds


def _prove_further(problem: Problem, progress: Progress) -> None:
    """Prove bounds that need no columns."""
    instance, left_s = problem.instance, progress.search.left_s
    if instance.policy.rule.random_arrivals:
        found = [time_bound(problem), temporal_bound(problem, left_s * LISTED_SHARE)]
    else:
        found = [] if progress.bound is not None else [further_bound(instance, left_s * FURTHER_SHARE)]
    for bound in found:
        progress.prove(bound if 0 < bound < math.inf else None)


def carries_rates(instance: Instance) -> bool:
    """Whether an instance is planned by patterns that carry rates alone, which include those of narrower fleets."""
    if len(instance.workloads) > MOST_NAMED or instance.objective == THROUGHPUT:
        return False
    if refusal(instance, best_segments(instance), 0.0):
        return False
    oracles = rated_oracles(named(Problem(instance)))
    return oracles is not None and not all(one.complete for _, one in oracles)


def _rated(problem: Problem, progress: Progress) -> RatedSearch | None:
    """Plan with patterns that carry rates; None where these are not known of all slices, or do not pay."""
    problem = named(problem)
    oracles = rated_oracles(problem)
    if oracles is None:
        return None
    listed = all(one.complete for _, one in oracles)
    rated = RatedSearch(problem, oracles, progress.search.apart(LISTED_SHARE) if listed else progress.search, NAME)
    for plan in rated.plans(math.inf if progress.value is None else progress.value / problem.unit):
        if math.isfinite(rated.bound):
            progress.prove(problem.objective(rated.bound))
        progress.offer(plan)
        if progress.proved:
            break
    return rated


def _too_small(problem: Problem, needed: int) -> str:
    """A sentence: how many GPUs the fleet lacks, and what would help."""
    held = [f"{pool.count} {pool.gpu}" for pool in problem.pools if pool.count is not None]
    remedy = "allow more GPUs or lower the rates"
    if len(problem.pools) == 1 and needed:
        pool = problem.pools[0]
        return f"at least {needed} {pool.gpu} GPUs are needed and the fleet has {pool.count}; {remedy}"
    return f"the fleet ({', '.join(held)}) has too few GPUs for any plan; {remedy}"


METHODS = (
    Method(
        name=NAME,
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
