"""Assignment: the instances that it takes, and the search that CP-SAT and PuLP share.

First equal GPUs are stated together, as a relaxation, which has no symmetry and is small; its bound often proves the
plan to begin with. Then they are stated one by one. Rows exclude no plan, so the solver's bound is a bound on the
instance. A solution becomes a plan at the rates that the performance models predict. If it claims more than that, the
model is refined there and solved again, until a plan is as good as the bound, or the time is over.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from provision.formulations.assignment.description import Answer, Ended, Solver, Values, rows_of
from provision.formulations.assignment.points import Base
from provision.formulations.assignment.rows import Block, Model, Refuted
from provision.formulations.assignment.sets import worths_of
from provision.formulations.assignment.slots import Slots, slots_of
from provision.formulations.linear.highs import solve_linear
from provision.formulations.search.feasibility import unservable
from provision.formulations.search.problem import Problem, groups_of
from provision.formulations.search.segments import best_segments
from provision.models.base.clock import Deadline
from provision.models.base.errors import UnsupportedError
from provision.models.base.tolerances import SOLVER, TOLERANCE
from provision.models.performance.colocation import Colocation
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import FEATURES, Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Search, Termination

MOST_WORKLOADS, MOST_GPUS = 40, 20
"""The most workloads of an instance, and the most GPUs of the plan that the search begins with or of a limited fleet.
"""
LISTING, TOGETHER = 0.3, 0.4
"""The largest fractions of the time left that listing, and the model of equal GPUs together, may take."""
PLENTY = 1000
"""A number of GPUs with which any plan of patterns that are known is possible."""
TAKEN = frozenset(FEATURES) - {"survive", "even_replicas"}
"""The features of instances that the methods take."""


def beginning(instance: Instance) -> str:
    """The method whose plan the search begins with; a known plan bounds the number of GPUs in the model.

    No fast method plans by co-location data.
    """
    if any(isinstance(data, Colocation) for data in instance.performance):
        return "master"
    return "lns" if instance.policy.share_slices else "greedy"


class SmallInstances(Method):
    """A Method that takes instances of at most MOST_WORKLOADS workloads."""

    def check(self, instance: Instance) -> None:
        """Refuse instances with features that the method does not take, and instances that are too large.

        Raises
        ------
        UnsupportedError
            The message names the feature or the limit, and a remedy.
        """
        super().check(instance)
        if len(instance.workloads) > MOST_WORKLOADS:
            raise UnsupportedError(f"method {self.name} takes at most {MOST_WORKLOADS} workloads, here are "
                                   f"{len(instance.workloads)}; use --method auto")


def method(name: str, library: str, solver: Solver, parameters: Mapping[str, str] | None = None) -> SmallInstances:
    """The Method that solves the model by a solver."""
    return SmallInstances(
        name=name, summary=f"explicit GPUs, MIG slots and operating points, exact on small instances ({library})",
        run=lambda instance, control: solve(instance, control, solver, name), exact=True, source="this package",
        features=TAKEN, begins_with=beginning, parameters=dict(parameters or {}))


def solve(instance: Instance, control: Search, solver: Solver, name: str) -> Outcome:
    """Plan an instance. The plan is proven optimal if the search finishes in time.

    Parameters
    ----------
    instance, control
        The problem and the search, as for every method.
    solver
        Solves a Description.
    name
        The method's name.
    """
    slots = slots_of(instance, control.within(control.left_s * LISTING))
    reasons = unservable(instance, best_segments(instance)) if all(one.stated for one in slots) else []
    if reasons:
        return Outcome("infeasible", "proved", reason="; ".join(reasons))
    search = _Search(instance, slots, control, solver, name)
    build_seconds = control.elapsed_s
    return replace(search.run(), build_seconds=build_seconds)


class _Search:
    """The best plan and bound so far, and the steps that improve them. Bounds are on a value that is minimised."""

    def __init__(self, instance: Instance, slots: list[Slots], control: Search, solver: Solver, name: str) -> None:
        self.instance, self.slots, self.control, self.solver, self.name = instance, slots, control, solver, name
        self.objective, self.plan, self.bound = objective_of(instance), control.start, -math.inf
        self.refuted, self.edges = Refuted(), defaultdict[Base, list[float]](list)
        self.together, self.stated = self._together(), all(one.stated for one in slots)

    def _together(self) -> list[Block]:
        """The GPUs of every fleet entry as one block: as many as a plan that is no worse than the known one can have.

        Raises
        ------
        UnsupportedError
            If a plan of few GPUs is not known.
        """
        counts = [math.inf if entry.count is None else entry.count for entry in self.instance.fleet]
        weights = [self.objective.weight(entry) for entry in self.instance.fleet]
        if self.plan is not None and self.instance.objective != THROUGHPUT:
            value = self.objective.value(self.plan)
            counts = [min(count, math.floor(value / weight * (1 + TOLERANCE)) if weight > 0 else math.inf)
                      for count, weight in zip(counts, weights, strict=True)]
        if math.isinf(max(counts)):
            most = Problem(self.instance, groups_of(self.instance)).most_gpus
            counts = [min(count, most) for count in counts]
        known = len(self.plan.gpus) if self.plan is not None else sum(counts)
        if known > MOST_GPUS:
            raise UnsupportedError(f"the assignment methods take at most {MOST_GPUS} GPUs to choose from, here are "
                                   f"{known:.0f}; use --method auto")
        return [Block(e, int(count)) for e, count in enumerate(counts) if count]

    def run(self) -> Outcome:
        """Solve with equal GPUs together, then one by one."""
        ended: Ended = "optimal" if self.together else "infeasible"
        if not self.together and self.plan is not None:
            self.bound = 0.0  # a plan of no GPUs costs nothing
        self._tell()
        if self.together:
            self._weigh()
            ended = self._solve(self.together, self.control.left_s * TOGETHER).ended
        if not self.stated and not self._proved() and ended != "infeasible":
            self._price(self.control.within(self.control.left_s * LISTING))
            ended = self._solve(self.together, self.control.left_s * TOGETHER).ended
        if not self._proved() and ended != "infeasible":
            ended = self._one_by_one()
        return self._outcome(ended)

    def _weigh(self) -> None:
        """Find worths of workloads where each has one replica, and all replicas share GPUs by one data file."""
        single = all(one.max_replicas == 1 and (one.min_replicas or one.rate_rps) for one in self.instance.workloads)
        if not single or self.instance.objective == THROUGHPUT or any(len(one.tables) != 1 or one.patterns
                                                                      for one in self.slots):
            return
        gpus = [next((one.tables[0] for one in self.slots if one.slice_type.entry == e), None)
                for e in range(len(self.instance.fleet))]
        prices = np.array([self.objective.weight(entry) for entry in self.instance.fleet])
        worths = worths_of(len(self.instance.workloads), gpus, prices, self.control.within())
        if worths is not None:
            for one in self.slots:
                one.worths.append(worths[one.slice_type.entry])

    def _price(self, until: Deadline) -> None:
        """Ask the oracles for patterns and worths, at the prices of the linear program over the patterns that are known
        (column generation).
        """
        prices, floors, asked = np.ones(len(self.instance.workloads)), defaultdict[int, float](float), True
        plenty = [Block(e, PLENTY if entry.count is None else entry.count)
                  for e, entry in enumerate(self.instance.fleet) if entry.count != 0]
        while asked and not self.stated and not until.over:
            asked = any([one.ask(prices, floors[k]) for k, one in enumerate(self.slots) if one.oracles])
            model = Model(self.instance, self.slots, plenty, self.refuted, opened=False)
            known = solve_linear(rows_of(model.program))
            if known is None or self.instance.objective == THROUGHPUT:
                return
            prices = np.array([known.duals[model.rated[w]] if w in model.rated else 0.0 for w in range(len(prices))])
            floors.update((k, known.duals[row]) for (_, k), row in model.filled.items())

    def _one_by_one(self) -> Ended:
        """Solve with explicit GPUs, and again after each refinement."""
        blocks = [Block(block.entry, 1) for block in self._together() for _ in range(block.many)]
        if len(blocks) > 2 * MOST_GPUS:
            return "time_limit"
        while self.control.left_s > 0:
            refinements = self._refinements()
            answer = self._solve(blocks, self.control.left_s)
            if self._proved() or answer.ended != "optimal" or answer.best is None:
                unknown = answer.ended == "infeasible" and self.plan is None and not self.stated
                return "time_limit" if unknown else answer.ended
            if self._refinements() == refinements:
                return "optimal"
            for one in self.slots:
                one.list_points(self.edges)
        return "time_limit"

    def _refinements(self) -> int:
        """How often the model has been refined."""
        return len(self.refuted) + sum(map(len, self.edges.values()))

    def _solve(self, blocks: list[Block], limit_s: float) -> Answer:
        """Solve a model of blocks; keep better plans, and the bound if the model excludes no plan."""
        value = None if self.plan is None else self.objective.loss(self.objective.value(self.plan))
        model = Model(self.instance, self.slots, blocks, self.refuted, blocks is self.together, value, self.bound)
        limit_s = min(limit_s, self.control.left_s)

        def consider(values: Values) -> None:
            plan = model.plan(values, self.name, self.edges)
            if plan is not None and (self.plan is None or self.objective.better(
                    self.objective.value(plan), self.objective.value(self.plan))):
                self.plan = plan
                self._tell()

        bounded = self.instance.objective != THROUGHPUT or all(one.stated or one.most_rps < math.inf
                                                               for one in self.slots)
        binding = bounded and (blocks is self.together or self.stated)
        if binding and math.isinf(self.bound) and (linear := solve_linear(rows_of(model.program))) is not None:
            self.bound = linear.value - SOLVER * abs(linear.value)  # a solver may end without a bound
            self._tell()
        answer = self.solver(model.program, self.control, limit_s, consider)
        if binding and answer.bound is not None:
            self.bound = max(self.bound, answer.bound)
            self._tell()
        return answer

    @property
    def _told(self) -> float | None:
        """The bound on the objective, in the objective's own sense; None if nothing is proven."""
        return None if math.isinf(self.bound) else self.objective.sense * self.bound

    def _tell(self) -> None:
        self.control.report(Incumbent(self.objective.value(self.plan) if self.plan else None, self._told, self.plan))

    def _proved(self) -> bool:
        return self.plan is not None and self.objective.proved(self.objective.value(self.plan), self._told)

    def _outcome(self, ended: Ended) -> Outcome:
        if self._proved():
            return Outcome("optimal", "proved", self.plan, self._told)
        if ended == "infeasible" and self.plan is None:
            return Outcome("infeasible", "proved", reason="proved: no plan fits the fleet; allow more GPUs, or fewer "
                                                          "replicas")
        termination: Termination = "time_limit" if ended == "time_limit" else "completed"
        if self.plan is None:
            return Outcome("unknown", termination, None, self._told, "no plan found in time")
        return Outcome("feasible", termination, self.plan, self._told)
