"""The master program as a method: it alternates between bounds and plans until the plan is proven optimal or time is
up.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from provision.formulations.bounds.time_bound import time_bound
from provision.formulations.bounds.type_counts import TypeCounts
from provision.formulations.isolated.shared_relaxation import further_bound, never_served
from provision.formulations.master.dive import dive
from provision.formulations.master.generation import Generation, hand_on
from provision.formulations.master.plans import add_plan, plan_of, shared_rates
from provision.formulations.master.rates.rated import RatedSearch, named, rated_oracles
from provision.formulations.master.refined import refined
from provision.formulations.master.replica_sets import forced_roles
from provision.formulations.master.role_columns import Chosen
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.master.temporal_bound import temporal_bound
from provision.formulations.master.throughput import fill_fleet
from provision.formulations.master.warm.kept import centre_of_kept, keep, seed
from provision.formulations.master.warm.neighbourhood import Neighbourhood
from provision.formulations.master.whole import first_prices, keeps_limits, unsplit
from provision.formulations.pricing.rates import MOST_PRICED
from provision.formulations.pricing.register import oracles_of
from provision.formulations.search.aggregation import rounded
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import best_segments
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import DUST, SOLVER
from provision.models.plans.plan import Plan
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.kept_columns import KeptColumns
from provision.models.problem.search import Outcome, Progress, Search, Termination

Step = Callable[[Instance, Search], Outcome]
NAME = "master"
"""The name of the method; it is written into its plans."""


class Run:
    """The search on one Problem.

    Parameters
    ----------
    problem
        The Problem.
    progress
        The best plan and bound so far.
    name
        The name of the method, for its plans.
    whole
        The columns of the program without splits (`whole`), if that program was solved before.
    brief
        Whether to end after one plan if many replicas share slices.

    Attributes
    ----------
    large
        Whether slices are shared and there are many replicas.
    turn_s
        The seconds for columns in the next turn, before a plan is made.
    split
        Whether the problem is large and its workloads may be split.
    tried
        Whether the integer program over all columns of small reduced cost has been tried.
    varied
        How many times columns were generated at random prices around the duals.
    finest
        Whether the grid of rates needs no further refinement.
    near
        The search for plans near a known plan (Neighbourhood), if columns of an earlier solve are known; else None.
    """

    def __init__(self, problem: Problem, progress: Progress, name: str, whole: Generation | None = None,
                 brief: bool = False) -> None:
        self.progress, self.search, self.name, self.brief = progress, progress.search, name, brief
        self.problem = self.relaxed_problem = problem
        most = SCHEDULE.most
        if len(problem.groups) > most // 2 and problem.shares:
            self.relaxed_problem = Problem(
                problem.instance, rounded(problem.groups, most // 2, up=False), relaxed_problem=True
            )
            self.problem = Problem(problem.instance, rounded(problem.groups, most, up=True))
        self.bounds = Generation(self.relaxed_problem, executor=self.search.executor)
        self.columns = self.bounds if self.relaxed_problem is self.problem else Generation(
            self.problem, proves=False, executor=self.search.executor)
        self.forced, self.draw = forced_roles(self.problem), np.random.default_rng(self.search.seed)
        self.large = bool(oracles_of(self.relaxed_problem)) and problem.replicas >= SCHEDULE.dive_from
        self.tried, self.varied = False, 0
        self.split = self.large and not problem.single
        first_s = SCHEDULE.complete_s if problem.single else SCHEDULE.turn_s
        first_s = SCHEDULE.unsplit_s * SCHEDULE.half if brief else first_s
        self.turn_s = (first_s if self.large else SCHEDULE.turn_s) * _size(problem)
        many = len(problem.groups) > SCHEDULE.few and not self.split
        self.finest = self.relaxed_problem is not self.problem or many
        if progress.plan is not None:
            plan = progress.plan.model_copy(update={"gpus": progress.plan.gpus[:most]})  # enough to begin with
            for columns in {self.bounds, self.columns}:
                add_plan(columns.program, columns.problem, plan)
        self.near = self._continued(self.search.kept)
        if whole is not None and self.large:
            hand_on(whole, self.bounds)
            self.bounds.price(first_prices(whole, self.relaxed_problem), SCHEDULE.slight, 0)
            self.bounds.effort, self.bounds.scale = SCHEDULE.firm, SCHEDULE.coarse * SCHEDULE.finer

    def _continued(self, kept: KeptColumns | None) -> Neighbourhood | None:
        """Begin with the columns and prices of an earlier solve. Returns the Neighbourhood of its plan; None if there
        is no earlier solve or no plan.
        """
        if kept is None or not kept.fits(self.problem.instance):
            return None
        for columns in {self.bounds, self.columns}:
            seed(kept, columns)
        self.bounds.effort, self.bounds.scale = max(self.bounds.effort, kept.effort), max(self.bounds.scale, kept.scale)
        self.bounds.price(centre_of_kept(kept, self.relaxed_problem), SCHEDULE.slight, self.bounds.effort)
        self._prove()
        plan = self.progress.plan or kept.plan_for(self.problem.instance)
        return None if plan is None else Neighbourhood(self.columns, plan, self.draw)

    @property
    def near_complete(self) -> bool:
        """Whether nearly all columns for a plan are known, if there are many workloads with one replica each."""
        return self.large and self.problem.single and self.bounds.gap <= SCHEDULE.close

    @property
    def dives(self) -> bool:
        """Whether the next plan is made by a dive, because a dive is faster than the integer program alone."""
        return self.large and (self.tried or not self.near_complete or self.problem.replicas >= SCHEDULE.fix_from)

    @property
    def infeasible(self) -> bool:
        """Whether it is proven that every plan needs more GPUs than the fleet has."""
        return math.isinf(self.bounds.bound)

    @property
    def ended(self) -> bool:
        """Whether the search is over."""
        return self.progress.enough or self.infeasible

    def until_proved(self) -> Termination:
        """Alternate between adding columns, which raises the bound, and making plans; return why the search ended.

        It ends when the plan is proven optimal, when time is up, or when nothing more can be tried. After an earlier
        solve, a plan is looked for near its plan, unless the integer program over all columns is soon to find the best.
        """
        if self.near is not None:
            self._tighten()
            if not self.near_complete:
                self._mend(self.near)
        if self.progress.plan is None:
            self.improve(0, self.turn_s)
        ended: Termination | None = None
        while not self.ended and ended is None:
            self._tighten()
            ended = None if self.ended else self._turn()
        return ended or "proved"

    def _mend(self, near: Neighbourhood) -> None:
        """Look for better plans near a known plan. If none is found, add columns by the quickest pricing and look
        again.
        """
        until, wanted = self.search.within(SCHEDULE.mend_s), math.floor(self.bounds.bound / (1 - self.search.gap))
        while not self.ended and not until.over:
            chosen = near.better(until, self._below(), wanted)
            plan = None if chosen is None else plan_of(self.problem, chosen, self.forced, self.name)
            if plan is not None and self.progress.offer(plan):
                near.stand(plan)
                continue
            found = self.columns.program.relaxed(strict=True)
            if found is None or not self.columns.price(found, SCHEDULE.slight, 0)[1]:
                return

    def keep(self) -> None:
        """Keep the columns and their prices for the next solve, if the Search asks for it.

        They are kept only if many replicas share slices. Otherwise a search without columns is as fast.
        """
        if self.search.kept is not None and self.large:
            keep(self.bounds, self.search.kept)

    def _tighten(self) -> None:
        """Add columns that raise the bound, before a plan is made."""
        for _ in self.bounds.rounds(self.search.within(self.turn_s)):
            self._prove()
            cuts = self.bounds.near and not self.finest
            if self.ended or cuts or (self.brief and self.large and self.bounds.gap < SCHEDULE.fair):
                break
        if self.columns is not self.bounds and not self.ended:
            hand_on(self.bounds, self.columns)
            for _ in self.columns.rounds(self.search.within(self.turn_s * SCHEDULE.half)):
                pass

    def _prove(self) -> None:
        """Record the bound so far."""
        if math.isfinite(self.bounds.bound) and self.bounds.bound > 0:
            self.progress.prove(self.problem.objective(self.bounds.bound))

    def _turn(self) -> Termination | None:
        """Make a plan of the columns. Then refine the grid of rates, or add columns at random prices.

        Returns why the search ends, or None if it goes on.
        """
        if self.search.left_s <= self.progress.writing_s:
            return "time_limit"
        better = self.improve(seconds=self.turn_s * (SCHEDULE.some if self.split or not self.finest else 1))
        self.turn_s *= SCHEDULE.growth
        if self.brief and self.large:
            return "completed"
        if not self.refine() and not better:
            if self.varied >= SCHEDULE.turns and self.columns.converged and self.bounds.converged:
                return "completed"
            self.varied += 1
            self.columns.vary(self.draw)
        return None

    def refine(self) -> bool:
        """Refine the grid of rates where it weakens the bound; return whether it was refined. If so, bounds and plans
        use the same columns from then on.
        """
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

    def improve(self, rounds: int = SCHEDULE.turns, seconds: float = SCHEDULE.turn_s) -> bool:
        """Add columns for some rounds, make a plan of all columns, and return whether the plan is better than the best
        so far.

        Columns and the plan may take some ``seconds``. The one integer program of a large problem has its own limit.
        """
        self.columns.price_strictly(rounds, self.search.within(seconds * SCHEDULE.some))
        found, value = self._integral(seconds), self.progress.value
        if found is None or (value is not None and self.problem.objective(self._cost(found)) >= value * (1 - DUST)):
            return False
        return self.progress.offer(plan_of(self.problem, found, self.forced, self.name))

    def _integral(self, seconds: float) -> Chosen | None:
        """A whole-number solution over the columns of small reduced cost. In large problems, a dive fixes most of the
        columns.

        It is None if none is found, or if the linear program proves that none is better than the best plan known.
        """
        if self.dives:
            return self._dived(self.search.within(seconds))
        program, self.tried = self.columns.program, True
        relaxed = program.relaxed(strict=True)
        if relaxed is None or math.ceil(self.columns.units(relaxed)) >= self._below():
            return None
        kept = relaxed.reduced <= max(SCHEDULE.nearly, np.sort(relaxed.reduced)[: SCHEDULE.most][-1])
        kept[program.loose()] = False
        fixed = np.floor(relaxed.parts + SOLVER) * (self.problem.replicas >= SCHEDULE.fix_from)
        fixed[: program.others] = 0
        seconds = SCHEDULE.integral_s if self.large else seconds
        return program.integral(kept, fixed, min(seconds, self.search.left_s))

    def _dived(self, until: Deadline) -> Chosen | None:
        """The first whole-number solution that the integer program finds at the end of a dive."""
        program = self.columns.program
        for reached in dive(self.columns, until, self.draw, self._below()):
            reached.kept[program.loose()] = False
            found = program.integral(reached.kept, reached.least, min(SCHEDULE.whole_s, until.left_s))
            if found is not None:
                return found
        return None

    def _below(self) -> float:
        """The price of the best plan known, in units of price; infinite if there is no plan."""
        return math.inf if self.progress.value is None else self.progress.value / self.problem.unit

    def _cost(self, found: Chosen) -> int:
        """The price of a solution's GPUs, in units of price."""
        pairs = zip(self.problem.pools, found.partitions, strict=True)
        return sum(pool.cost(int(many.sum())) for pool, many in pairs)


def solve(instance: Instance, search: Search, serve: Step | None = None) -> Outcome:
    """Plan an instance; Ctrl-C returns the best plan so far.

    Parameters
    ----------
    instance, search
        The problem and the search.
    serve
        For the objective max_throughput, a method that carries all rates on few GPUs; by default this function.
    """
    if instance.objective == THROUGHPUT:
        return fill_fleet(instance, search, NAME, serve or solve)
    refused = _refused(instance, search)
    if refused:
        return refused
    problem, progress = _problem(instance, search.start, search.kept), Progress(instance, search)
    build_s, proof = search.elapsed_s, None
    termination: Termination = "stopped"
    with suppress(KeyboardInterrupt):
        termination, proof = _planned(problem, progress)
    if proof is not None and math.isinf(proof.bound) and progress.plan is None:
        reason = _too_small(problem, proof.needed)
        return replace(progress.outcome("proved", reason, build_s), status="infeasible", bound=None)
    return progress.outcome(termination, "no plan found; more time may find one", build_s)


def _refused(instance: Instance, search: Search) -> Outcome | None:
    """The outcome if some workload cannot be served alone on any slice, else None.

    Such a workload may still share a slice. If so, the outcome is the plan to begin with and its bound.
    """
    refused = proved_infeasible(instance, best_segments(instance))
    if refused and (search.start is not None or not never_served(instance)):
        return Progress(instance, search).outcome("completed", refused.reason)
    return refused and replace(refused, build_seconds=search.elapsed_s)


def _planned(problem: Problem, progress: Progress) -> tuple[Termination, TypeCounts | None]:
    """Plan and prove by the searches that suit the problem; return why they ended, and the TypeCounts that prove the
    bound.
    """
    if not problem.groups:
        progress.offer(problem.instance.plan_of(NAME, ()))
        progress.prove(0.0)
        return "proved", None
    if len(problem.groups) > SCHEDULE.most and problem.shares:
        if len(problem.classes) > SCHEDULE.most and not problem.single:  # too many roles for more than a coarse bound
            _prove_coarsely(problem, progress, SCHEDULE.short // 4, math.inf)
            return "completed" if progress.search.left_s > 0 else "time_limit", None
        if progress.bound is None:
            _prove_coarsely(problem, progress, SCHEDULE.short // 2, SCHEDULE.coarse_s)
    if progress.plan is not None and not progress.search.left_s:
        progress.prove(progress.bound or problem.objective(_first_bound(problem)))
        return "time_limit", None
    rated = _rated(problem, progress)
    proof = None if rated is None else rated.proof
    if not progress.proved and (rated is None or math.isfinite(rated.bound)):
        _prove_further(problem, progress)
        if rated is not None and not (rated.complete or rated.coarse) and progress.plan is not None:
            return "completed" if progress.search.left_s > 0 else "time_limit", proof
        if progress.plan is not None and progress.bound is not None and not progress.search.left_s:
            return "time_limit", proof
        if not progress.proved:
            run = Run(problem, progress, NAME, _whole(problem.instance, progress))
            try:
                return run.until_proved(), run.bounds.proof
            finally:
                run.keep()
    return "proved", proof


def _problem(instance: Instance, plan: Plan | None, kept: KeptColumns | None) -> Problem:
    """The Problem. If slices are shared by networks of queues, it has roles for the rates of ``plan``, so that the
    shared slices of the plan can be columns. It has the grid of rates of an earlier solve whose columns are kept.
    """
    if kept is not None and kept.finer and kept.fits(instance):
        return Problem(instance, finer=kept.finer)
    if plan is None or not instance.policy.share_slices or len(instance.workloads) > SCHEDULE.few:
        return Problem(instance)
    return Problem(instance, finer=shared_rates(instance, plan))


def _whole(instance: Instance, progress: Progress) -> Generation | None:
    """Plan with one replica for each workload that a single replica can carry; return the columns.

    Returns None if that is the same problem, or if the best plan is already proven optimal.
    """
    part, kept = unsplit(instance), progress.search.kept
    if part is None or progress.proved or (kept is not None and kept.fits(instance)):
        return None
    problem = Problem(part)
    within = Progress(part, progress.search.apart(SCHEDULE.unsplit_s * _size(problem)))
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


def _size(problem: Problem) -> float:
    """The factor by which turns are longer in problems with very many replicas."""
    return max(1.0, problem.replicas / SCHEDULE.most)


def _prove_further(problem: Problem, progress: Progress) -> None:
    """Prove bounds that need no column generation."""
    instance, seconds = problem.instance, min(SCHEDULE.bound_s, progress.search.left_s)
    if instance.policy.rule.random_arrivals:
        found = [time_bound(problem), temporal_bound(problem, seconds)]
    else:
        found = [] if progress.bound is not None else [further_bound(instance, seconds)]
    for bound in found:
        progress.prove(bound if 0 < bound < math.inf else None)


def _prove_coarsely(problem: Problem, progress: Progress, groups: int, seconds: float) -> None:
    """Prove a first bound for a large instance in some seconds: workloads are rounded down to a small number of groups.
    """
    few = Problem(problem.instance, rounded(problem.groups, groups, up=False), relaxed_problem=True)
    generation = Generation(few, executor=progress.search.executor)
    for bound in generation.rounds(progress.search.within(seconds)):
        if 0 < bound < math.inf:
            progress.prove(problem.objective(bound))


def _first_bound(problem: Problem) -> float:
    """A lower bound that takes no search, in units of price: that of the cheapest GPUs over which workloads are spread.
    """
    counts = TypeCounts(problem.pools, problem.most_gpus)
    counts.at_least(problem.spread_over)
    counts.above(0)
    return counts.bound


def carries_rates(instance: Instance, until: Deadline) -> bool:
    """Whether an instance is planned only by patterns that carry rates, and these patterns are priced rather than
    listed. If patterns that can be listed are not listed at the deadline, it is False.
    """
    if len(instance.workloads) > MOST_PRICED or instance.objective == THROUGHPUT:
        return False
    if proved_infeasible(instance, best_segments(instance)):
        return False
    oracles = rated_oracles(named(Problem(instance)), until)
    return oracles is not None and not all(one.complete for _, one in oracles)


def _rated(problem: Problem, progress: Progress) -> RatedSearch | None:
    """Plan with patterns that carry rates; None if some slice types have no such patterns or the search is not useful.
    """
    problem = named(problem)
    oracles = rated_oracles(problem, progress.search.within())
    if oracles is None:
        return None
    listed = all(one.complete for _, one in oracles)
    search = progress.search.apart(SCHEDULE.integral_s) if listed else progress.search
    rated = RatedSearch(problem, oracles, search, NAME)
    for plan in rated.plans(math.inf if progress.value is None else round(progress.value / problem.unit)):
        if math.isfinite(rated.bound):
            progress.prove(problem.objective(rated.bound))
        progress.offer(plan)
        if progress.proved:
            break
    return rated


def _too_small(problem: Problem, needed: int) -> str:
    """A sentence for the user: the fleet has too few GPUs, and what would help."""
    held = [f"{pool.count} {pool.gpu}" for pool in problem.pools if pool.count is not None]
    remedy = "allow more GPUs or lower the rates"
    if len(problem.pools) == 1 and needed:
        pool = problem.pools[0]
        return f"at least {needed} {pool.gpu} GPUs are needed and the fleet has {pool.count}; {remedy}"
    return f"the fleet ({', '.join(held)}) has too few GPUs for any plan; {remedy}"

