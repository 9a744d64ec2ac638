"""The master program as a method: bounds and plans in turn until proved or out of time."""

import math
from time import perf_counter

import numpy as np

from provision.formulations.master.covers import forced_roles
from provision.formulations.master.generation import Generation
from provision.formulations.master.plans import plan_of
from provision.formulations.master.program import Chosen
from provision.models.contents.alone.feasibility import refusal
from provision.models.contents.alone.segments import best_segments
from provision.models.contents.problem import Problem
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.method import Control, Incumbent, Method, Outcome

NAME = "master"
PRICING_SHARE = 0.6
"""Part of the time left that columns may take before a plan is made."""
MIP_SHARE = 0.8
"""Part of the time left that an integer program may take."""
REDUCED_COST = 0.02
"""Columns of more reduced cost, in GPUs, are left out of the integer program."""
MOST_COLUMNS = 2000
"""With fewer, none is left out."""
FIX_FROM = 1500
"""With so many replicas, the whole parts of the linear solution are fixed."""
VARIED = 20
"""How often columns are sought around the duals before a plan counts as the best to be had."""
STRICT_ROUNDS = 12
"""Rounds of pricing for plans, where plans and bounds have different covers."""


class Run:
    """The search on one instance: the best plan and the bound so far.

    Parameters
    ----------
    problem
        The Problem.
    control
        Time, seed, and what to tell.
    deadline
        The ``perf_counter`` at which to end.
    name
        The method's, for its plans.
    """

    def __init__(self, problem: Problem, control: Control, deadline: float, name: str) -> None:
        self.problem, self.control, self.deadline, self.name = problem, control, deadline, name
        self.instance = problem.instance
        self.plan: Plan | None = control.start
        self.columns = Generation(problem)
        self.forced = forced_roles(problem)
        self.bound = 0.0
        self._tell()

    @property
    def proved(self) -> bool:
        """Whether no plan can be better, or there is none."""
        return self.infeasible or (self.plan is not None and self.instance.proved(self._value(), self.bound))

    @property
    def infeasible(self) -> bool:
        """Whether every plan takes GPUs that the fleet has not."""
        return math.isinf(self.bound)

    def search(self) -> str:
        """Columns and plans in turn until proved, out of time, or neither can improve; returns why it ended."""
        draw, varied = np.random.default_rng(self.control.seed), 0
        while not self.proved:
            for _ in self.columns.rounds(perf_counter() + self._left() * PRICING_SHARE):
                self._raise()
                if self.proved:
                    return "proved"
            if self._left() <= 0:
                return "time_limit"
            if not self.improve():
                if varied >= VARIED and self.columns.converged:
                    return "completed"
                varied += 1
                self.columns.vary(draw)
        return "proved"

    def improve(self) -> bool:
        """A plan from the columns at hand; returns whether it is better."""
        self.columns.price_strictly(STRICT_ROUNDS, self.deadline)
        found = self._integral()
        value = self._value()
        if found is None or (value is not None and self.problem.objective(self._cost(found)) >= value * (1 - 1e-12)):
            return False
        plan = plan_of(self.problem, found, self.forced, self.name)
        if plan is None or not self.instance.better(self.instance.value(plan), value):
            return False
        self.plan = plan
        self._tell()
        return True

    def _integral(self) -> Chosen | None:
        """A whole-number solution over the columns of small reduced cost."""
        program = self.columns.program
        relaxed = program.relaxed(strict=True)
        if relaxed is None:
            return None
        kept = np.ones(len(relaxed.parts), bool)
        if len(kept) > MOST_COLUMNS:
            kept = relaxed.reduced <= REDUCED_COST
        kept[program.loose()] = False
        fixed = np.floor(relaxed.parts + 1e-6) * (self.problem.replicas >= FIX_FROM)
        fixed[: program.others] = 0
        return program.integral(kept, fixed, self._left() * MIP_SHARE)

    def _cost(self, found: Chosen) -> int:
        """The price of a solution's GPUs, in units."""
        pairs = zip(self.problem.supplies, found.partitions, strict=True)
        return sum(supply.cost(int(many.sum())) for supply, many in pairs)

    def _left(self) -> float:
        return self.deadline - perf_counter()

    def _value(self) -> float | None:
        return self.instance.value(self.plan) if self.plan is not None else None

    def _raise(self) -> None:
        bound = self.problem.objective(self.columns.bound)
        if bound > self.bound:
            self.bound = bound
            if not self.infeasible:
                self._tell()

    def _tell(self) -> None:
        self.control.report(Incumbent(self._value(), self.bound or None))


def solve(instance: Instance, control: Control) -> Outcome:
    """Plan an instance; Ctrl-C returns the best plan so far."""
    started = perf_counter()
    refused = refusal(instance, best_segments(instance), started)
    if refused:
        return refused
    problem = Problem(instance)
    built = perf_counter()
    run = Run(problem, control, started + control.time_limit_s, NAME)
    try:
        termination = run.search()
    except KeyboardInterrupt:
        termination = "stopped"
    spent = {"build_seconds": built - started, "solve_seconds": perf_counter() - built}
    if run.infeasible:
        return Outcome("infeasible", "proved", reason="the fleet has too few GPUs; allow more", **spent)
    status = "optimal" if run.proved else "feasible" if run.plan is not None else "unknown"
    return Outcome(status, termination, run.plan, run.bound or None,
                   reason="" if run.plan else "no plan found; more time may find one", **spent)


METHODS = (
    Method(
        name=NAME,
        summary="one program for every way of sharing: column generation over contents and covers, proven",
        run=solve,
        compiled=True,
        exact=True,
        source="this package; Gilmore and Gomory 1961, Farley 1990",
        features=frozenset(
            {"several_gpu_types", "limited_counts", "with_mig", "without_mig", "without_mps", "min_replicas",
             "max_replicas", "max_share_per_gpu", "variants", "interference", "isolated_data"}),
    ),
)
