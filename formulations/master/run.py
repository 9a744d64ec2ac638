"""The search of the master program where every workload has one replica: rounds of patterns tighten the bound, integer
programs and dives make plans.

Where workloads may be split, they are first divided into parts with one replica each (`search.regrouping`). Splitting
further seldom saves many GPUs, but it makes a larger program, whose prices converge slowly. It may save some, so a
bound of the parts is no bound of the instance; prices of replicas prove one (`values`).
"""

import math
from collections.abc import Callable

import numpy as np

from provision.formulations.master.columns import Chosen
from provision.formulations.master.dive import dive
from provision.formulations.master.generation import Generation
from provision.formulations.master.kept import keep, prices_of_kept, seed
from provision.formulations.master.plans import add_plan, plan_of, role_slices
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.pricing.oracle import oracles_of
from provision.formulations.search.problem import Problem
from provision.formulations.search.regrouping import rounded
from provision.models.base.tolerances import DUST, SOLVER
from provision.models.problem.search import Progress, Termination


class Run:
    """The search on one Problem.

    Parameters
    ----------
    problem
        A Problem in which every workload, or part of a workload, has one replica. If very many groups share slices,
        similar groups are made equal, as hard as the hardest of them; then no bound is proven.
    progress
        The best plan and bound so far.
    name
        The name of the method, for its plans.
    proves
        Whether bounds of this Problem are bounds of the instance: not if workloads were divided.
    further
        Goes on for some seconds with the searches that take turns with this one.

    Attributes
    ----------
    columns
        The patterns, which prove bounds and make plans.
    large
        Whether slices are shared and there are many replicas.
    many
        Whether there are many groups.
    turn_s
        The seconds of the next turn for patterns. A plan gets as many or, with few groups, a part of them.
    tried
        Whether the integer program over all patterns of small reduced cost has been tried.
    idle
        How many plans in turn were no better than the best one.
    """

    def __init__(self, problem: Problem, progress: Progress, name: str, proves: bool = True,
                 further: Callable[[float], object] = lambda seconds: None) -> None:
        self.progress, self.search, self.name, self.further = progress, progress.search, name, further
        rough = bool(problem.shares) and len(problem.groups) > SCHEDULE.most
        self.problem = Problem(problem.instance, rounded(problem.groups, SCHEDULE.most)) if rough else problem
        self.proves = proves and not rough
        self.columns = Generation(self.problem, self.proves)
        self.draw, self.tried, self.idle = np.random.default_rng(self.search.seed), False, 0
        self.large = bool(oracles_of(self.problem)) and problem.replicas >= SCHEDULE.dive_from
        self.many = len(problem.groups) > SCHEDULE.few
        self.turn_s = SCHEDULE.complete_s if self.large else SCHEDULE.turn_s
        self.turn_s *= max(1.0, problem.replicas / SCHEDULE.most)
        if progress.plan is not None:
            gpus = progress.plan.gpus[:SCHEDULE.most]  # enough to begin with
            add_plan(self.columns.program, progress.plan.model_copy(update={"gpus": gpus}))
        self._continue()

    def _continue(self) -> None:
        """Begin with the patterns and prices of an earlier solve, if there is one."""
        kept = self.search.kept
        if kept is None or not kept.fits(self.problem.instance):
            return
        seed(kept, self.columns)
        self.columns.effort = max(self.columns.effort, kept.effort)
        self.columns.price(prices_of_kept(kept, self.columns), self.columns.effort)
        self._prove()

    @property
    def ended(self) -> bool:
        """Whether the search is over."""
        return self.progress.enough or (self.proves and math.isinf(self.columns.bound))

    def until_proved(self) -> Termination:
        """Alternate between adding patterns, which raises the bound, and making plans; return why the search ended.

        It ends when the plan is proven optimal or within the gap that is asked for, when it is proven that there is no
        plan, when time is up, or when nothing more can be tried.
        """
        if self.progress.plan is None:
            self.improve(self.turn_s)
        why: Termination | None = None
        while not self.ended and why is None:
            self._tighten()
            why = None if self.ended else self._turn()
            if why is None and not self.ended:
                self.further(min(self.turn_s, max(SCHEDULE.prices_s, self.turn_s * SCHEDULE.some)))
        impossible = self.proves and math.isinf(self.columns.bound)
        return why or ("proved" if self.progress.proved or impossible else "completed")

    def keep(self) -> None:
        """Keep the patterns and their prices for the next solve, if the Search asks for it.

        They are kept only if many replicas share slices. Otherwise a search from nothing is as fast.
        """
        if self.search.kept is not None and self.large:
            keep(self.columns, self.search.kept)

    def _tighten(self) -> None:
        """Add patterns that raise the bound, before a plan is made.

        If the search proves nothing, this ends as soon as the bound is near the value of the linear program.
        """
        fair = SCHEDULE.fair if self.problem.replicas >= SCHEDULE.fix_from else SCHEDULE.close
        for _ in self.columns.rounds(self.search.within(self.turn_s)):
            self._prove()
            if self.ended or (not self.proves and self.columns.gap < fair):
                break

    def _prove(self) -> None:
        """Record the bound so far."""
        if self.proves and 0 < self.columns.bound < math.inf:
            self.progress.prove(self.problem.objective(self.columns.bound))

    def _turn(self) -> Termination | None:
        """Make a plan of the patterns. The next turn is longer.

        Returns why the search ends, or None if it goes on. It ends when no pattern is missing and ``SCHEDULE.idle``
        plans in turn were no better.
        """
        if self.search.left_s <= self.progress.writing_s:
            return "time_limit"
        seconds, self.turn_s = self.turn_s, self.turn_s * SCHEDULE.growth
        better = self.improve(seconds * (1 if self.many else SCHEDULE.some))
        self.idle = 0 if better else self.idle + 1
        done = self.idle > SCHEDULE.idle and self.columns.converged
        return "completed" if done and self.search.left_s > 0 else None

    def improve(self, seconds: float = SCHEDULE.turn_s) -> bool:
        """Make a plan of the patterns found so far, and return whether it is better than the best so far.

        The plan may take some ``seconds``. The one integer program of a large problem has its own limit.
        """
        found, value = self._integral(seconds), self.progress.value
        if found is None:
            return False
        cost = self.problem.objective(self.problem.cost(found.partitions))
        if value is not None and cost >= value * (1 - DUST):
            return False
        return self.progress.offer(plan_of(self.problem, found.partitions, role_slices(
            self.columns.program, found.patterns), self.name))

    def _integral(self, seconds: float) -> Chosen | None:
        """A whole-number solution over the patterns of least reduced cost. In a large problem, dives find one instead;
        the integer program is tried once, when nearly all patterns are known, and never with very many replicas.

        It is None if none is found, or if the linear program proves that none is better than the best plan known.
        """
        fixes = self.problem.replicas >= SCHEDULE.fix_from
        if self.large and (self.tried or fixes or self.columns.gap > SCHEDULE.close):
            return dive(self.columns, self.search.within(seconds), self.draw, self._below())
        program, self.tried = self.columns.program, True
        relaxed = program.relaxed()
        if relaxed is None or math.ceil(self.columns.units(relaxed)) >= self._below():
            return None
        kept = relaxed.reduced <= max(SCHEDULE.nearly, np.sort(relaxed.reduced)[: SCHEDULE.most][-1])
        fixed = (np.floor(relaxed.parts + SOLVER) * fixes).astype(int)  # the whole parts, with very many replicas
        seconds = SCHEDULE.integral_s if self.large else seconds
        return program.integral(kept, fixed, min(seconds, self.search.left_s))

    def _below(self) -> float:
        """The price of the best plan known, in units of price; infinite if there is no plan."""
        return math.inf if self.progress.value is None else self.progress.value / self.problem.unit
