"""Assignment: the instances that it takes, and the search that CP-SAT and PuLP share.

First equal GPUs are stated together, as a relaxation, which has no symmetry and is small; its bound often proves the
plan to begin with. Then they are stated one by one. Rows exclude no plan, so the solver's bound is a bound on the
instance. A solution becomes a plan at the rates that the performance models predict. If it claims more than that, the
model is refined there and solved again, until a plan is as good as the bound, or the time is over.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from provision.formulations.assignment.columns import ask, columns_of
from provision.formulations.assignment.description import Answer, Ended, Solver, Values, relaxed
from provision.formulations.assignment.rows import AllowedPatterns, Block, Model
from provision.formulations.assignment.sets import weights_of
from provision.formulations.search.feasibility import fastest_ms, runs_nowhere, unservable
from provision.formulations.search.problem import Problem, groups_of
from provision.formulations.search.segments import best_segments
from provision.models.base.arrays import Floats
from provision.models.base.clock import Deadline
from provision.models.base.errors import UnsupportedError
from provision.models.base.tolerances import SOLVER, TOLERANCE
from provision.models.performance.colocation import Colocation
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.method import FEATURES, Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Search, Termination

MOST_WORKLOADS, MOST_GPUS = 40, 20
"""The most workloads of an instance, and the most GPUs of the plan that the search begins with or of a limited fleet.
"""
LISTING, TOGETHER = 0.3, 0.4
"""The largest fractions of the time left that listing, and the model of equal GPUs together, may take."""
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
    allowed = AllowedPatterns(instance, columns_of(instance, control.start, control.within(control.left_s * LISTING)))
    reason = _hopeless(allowed)
    if reason:
        return Outcome("infeasible", "proved", reason=reason)
    search = _Search(allowed, control, solver, name)
    build_seconds = control.elapsed_s
    return replace(search.run(), build_seconds=build_seconds)


def _hopeless(allowed: AllowedPatterns) -> str:
    """Why a workload can have no replica that it needs; empty if every workload can."""
    instance = allowed.instance
    if not allowed.opened and allowed.bounded:
        return "; ".join(unservable(instance, best_segments(instance)))
    lines = []
    for w, one in enumerate(instance.workloads):
        if (one.rate_rps or one.min_replicas) and not allowed.can(w) and allowed.bounded:
            least_ms = min(fastest_ms(instance, model) for model in one.models)
            enough_ms = math.ceil(least_ms / instance.policy.part_of_slo * 1000) / 1000
            lines.append(runs_nowhere(instance, one) if math.isinf(least_ms) else
                         f"workload {one.name}: no slice meets slo_ms {one.slo_ms:g}; the fastest takes {least_ms:.4g} "
                         f"ms: slo_ms {enough_ms:g} or more would work")
    return "; ".join(lines)


class _Search:
    """The best plan and bound so far, and the steps that improve them. Bounds are on a value that is minimised."""

    def __init__(self, allowed: AllowedPatterns, control: Search, solver: Solver, name: str) -> None:
        self.allowed, self.control, self.solver, self.name = allowed, control, solver, name
        self.instance, self.objective = allowed.instance, objective_of(allowed.instance)
        self.plan: Plan | None = control.start
        self.bound = -math.inf
        self.together = self._together()
        self.weights = self._weights()

    def _together(self) -> list[Block]:
        """The GPUs of every fleet entry as one block: as many as a plan that is no worse than the known one can have.

        Raises
        ------
        UnsupportedError
            If a plan of few GPUs is not known.
        """
        counts = [math.inf if entry.count is None else entry.count for entry in self.instance.fleet]
        weights = [self.objective.weight(entry) for entry in self.instance.fleet]
        if self.plan is not None and not self.allowed.counted:
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

    def _weights(self) -> Floats | None:
        """The weights of workloads (see `sets`); None where workloads may have several replicas or other slots."""
        instance, points = self.instance, self.allowed.points
        single = all(one.max_replicas == 1 and (one.min_replicas or one.rate_rps) for one in instance.workloads)
        if (not single or self.allowed.counted or self.allowed.opened or any(self.allowed.columns.patterns)
                or any(len(tables) > 1 for tables in points)):
            return None
        gpus = [next((tables[0] for one, tables in zip(self.allowed.slice_types, points, strict=True)
                      if one.entry == e and tables), None) for e in range(len(instance.fleet))]
        return weights_of(len(instance.workloads), gpus, np.array([self.objective.weight(entry)
                                                                   for entry in instance.fleet]), self.control.within())

    def run(self) -> Outcome:
        """Solve with equal GPUs together, then one by one."""
        ended: Ended = "optimal" if self.together else "infeasible"
        if not self.together and self.plan is not None:
            self.bound = 0.0  # a plan of no GPUs costs nothing
        self._tell()
        if self.allowed.bounded and self.together:
            ended = self._solve(self.together, True, self.control.left_s * TOGETHER).ended
        if not self._proved() and self.together and self.allowed.columns.asked and ended != "infeasible":
            self._price(self.control.within(self.control.left_s * LISTING))
            ended = self._solve(self.together, True, self.control.left_s * TOGETHER).ended
        if not self._proved() and ended != "infeasible":
            ended = self._one_by_one()
        return self._outcome(ended)

    def _price(self, until: Deadline) -> None:
        """Ask the oracles for columns, at the prices of the linear program over those that are known (column
        generation).
        """
        prices, columns = np.ones(len(self.instance.workloads)), self.allowed.columns
        slots = np.zeros(len(columns.patterns))
        while ask(columns, prices, slots) and not until.over:
            model = Model(self.allowed, self.together, None, False, None, -math.inf)
            known = relaxed(model.program)
            if known is None:
                return
            duals = known.duals
            prices = np.array([duals[model.rated[w]] if w in model.rated else 0.0 for w in range(len(prices))])
            for (_, k), row in model.filled.items():
                slots[k] = duals[row]

    def _one_by_one(self) -> Ended:
        """Solve with explicit GPUs, and again after each refinement."""
        blocks = [Block(block.entry, 1) for block in self._together() for _ in range(block.many)]
        if len(blocks) > 2 * MOST_GPUS:
            return "time_limit"
        exact = self.allowed.bounded and not self.allowed.opened
        while self.control.left_s > 0:
            refinements = self._refinements()
            answer = self._solve(blocks, False, self.control.left_s)
            if self._proved() or answer.ended != "optimal" or answer.best is None:
                if answer.ended == "infeasible" and self.plan is None and not exact:
                    return "time_limit"
                return answer.ended
            if self._refinements() == refinements:
                return "optimal"
            self.allowed.list_points()
        return "time_limit"

    def _refinements(self) -> int:
        """How often the model has been refined."""
        allowed = self.allowed
        return sum(map(len, allowed.refuted.values())) + sum(map(len, allowed.edges.values()))

    def _solve(self, blocks: list[Block], opened: bool, limit_s: float) -> Answer:
        """Solve a model of blocks; keep better plans, and the bound if the model excludes no plan."""
        value = None if self.plan is None else self.objective.loss(self.objective.value(self.plan))
        model = Model(self.allowed, blocks, self.weights, opened, value, self.bound)
        limit_s = min(limit_s, self.control.left_s)

        def consider(values: Values) -> None:
            plan = model.plan(values, self.name)
            if plan is not None and (self.plan is None or self.objective.better(
                    self.objective.value(plan), self.objective.value(self.plan))):
                self.plan = plan
                self._tell()

        binding = self.allowed.bounded and (opened or not self.allowed.opened)
        if binding and math.isinf(self.bound) and (linear := relaxed(model.program)) is not None:
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
