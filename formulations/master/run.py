"""The search of the master program on one Problem: rounds of columns tighten the bound, integer programs and dives make
plans.
"""

import math
from collections.abc import Callable

import numpy as np

from provision.formulations.master.dive import dive
from provision.formulations.master.generation import Generation, hand_on
from provision.formulations.master.plans import add_plan, plan_of
from provision.formulations.master.replica_sets import forced_roles
from provision.formulations.master.role_columns import Chosen
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.master.warm.kept import centre_of_kept, keep, seed
from provision.formulations.master.warm.neighbourhood import Neighbourhood
from provision.formulations.master.whole import first_prices
from provision.formulations.pricing.register import oracles_of
from provision.formulations.search.aggregation import rounded
from provision.formulations.search.problem import Problem
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import DUST, SOLVER
from provision.models.problem.kept_columns import KeptColumns
from provision.models.problem.search import Progress, Termination


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
    further
        Tightens the bound in another way for some seconds.

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
    complete
        Whether plans come from nearly all columns of the linear program.
    patient
        Whether further plans are made only when the linear program is nearly solved: the plan of the program without
        splits is known, and few columns seldom give a better one.
    near
        The search for plans near a known plan (Neighbourhood), if columns of an earlier solve are known; else None.
    """

    def __init__(self, problem: Problem, progress: Progress, name: str, whole: Generation | None = None,
                 brief: bool = False, further: Callable[[float], None] | None = None) -> None:
        self.progress, self.search, self.name, self.brief = progress, progress.search, name, brief
        self.further = further
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
        first_s = SCHEDULE.unsplit_s * SCHEDULE.half if brief and problem.replicas >= SCHEDULE.fix_from else first_s
        self.turn_s = (first_s if self.large else SCHEDULE.turn_s) * size_of(problem)
        many = len(problem.groups) > SCHEDULE.few and (problem.single or not oracles_of(problem))
        self.complete = self.relaxed_problem is not self.problem or many
        if progress.plan is not None:
            plan = progress.plan.model_copy(update={"gpus": progress.plan.gpus[:most]})  # enough to begin with
            for columns in {self.bounds, self.columns}:
                add_plan(columns.program, columns.problem, plan)
        self.near = self._continued(self.search.kept)
        self.patient = whole is not None and problem.replicas < SCHEDULE.fix_from
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
    def _fair(self) -> float:
        """The gap at which a brief search makes its plan: of nearly all columns, unless that takes too long."""
        return SCHEDULE.fair if self.problem.replicas >= SCHEDULE.fix_from else SCHEDULE.close

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

        It ends when the plan is proven optimal or within the gap that is asked for, when it is proven that there is no
        plan, when time is up, or when nothing more can be tried. After an earlier solve, plans that differ little from
        that solve's plan are tried first.
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
            if self.further is not None and ended is None and not self.ended:
                self.further(min(self.turn_s, SCHEDULE.prices_s))
        return ended or ("proved" if self.progress.proved or self.infeasible else "completed")

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
            enough = self.bounds.near and not self.complete
            if self.ended or enough or (self.brief and self.large and self.bounds.gap < self._fair):
                break
        if self.columns is not self.bounds and not self.ended and self.search.left_s > 0:
            hand_on(self.bounds, self.columns)
            for _ in self.columns.rounds(self.search.within(self.turn_s * SCHEDULE.half)):
                pass

    def _prove(self) -> None:
        """Record the bound so far."""
        if math.isfinite(self.bounds.bound) and self.bounds.bound > 0:
            self.progress.prove(self.problem.objective(self.bounds.bound))

    def _turn(self) -> Termination | None:
        """Make a plan of the columns; if it is no better, add columns at random prices.

        Returns why the search ends, or None if it goes on.
        """
        if self.search.left_s <= self.progress.writing_s:
            return "time_limit"
        seconds, self.turn_s = self.turn_s, self.turn_s * SCHEDULE.growth
        over = self.bounds.near or self.bounds.impossible or self.bounds.took_s >= self.search.left_s
        if self.patient and self.progress.plan is not None and not over:
            return None
        better = self.improve(seconds=seconds * (SCHEDULE.some if self.split or not self.complete else 1))
        if self.brief and self.large and (better or self.problem.replicas >= SCHEDULE.fix_from):
            return "completed"
        if not better and self.search.left_s > 0:
            if self.varied >= SCHEDULE.turns and self.columns.converged and self.bounds.converged:
                return "completed"
            self.varied += 1
            self.columns.vary(self.draw)
        return None

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


def size_of(problem: Problem) -> float:
    """The factor by which turns are longer in problems with very many replicas."""
    return max(1.0, problem.replicas / SCHEDULE.most)
