"""Assignment: the instances that it takes, and the search that CP-SAT and PuLP share.

First equal GPUs are stated together, as a relaxation, which has no symmetry and is small; its bound often proves the
plan to begin with. Then they are stated one by one. Rows exclude no plan, so the solver's bound is a bound on the
instance. A solution becomes a plan at the rates that the performance models predict. If it claims more than that, the
model is refined there and solved again, until a plan is as good as the bound, or the time is over.
"""

import math
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from provision.formulations.assignment.description import Answer, Ended, Solver, Values
from provision.formulations.assignment.points import Base
from provision.formulations.assignment.rows import Block, Model
from provision.formulations.assignment.slots import Slots, slots_of, worths_of
from provision.formulations.isolated.shared_relaxation import further_bound
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
from provision.models.problem.search import Outcome, Progress, Search

MOST_WORKLOADS, MOST_GPUS = 40, 20
"""The most workloads of an instance, and the most GPUs of the plan that the search begins with or of a limited fleet.
"""
LISTING, TOGETHER = 0.3, 0.4
"""The largest fractions of the time left that listing, and the model of equal GPUs together, may take."""
PLENTY = 1000
"""A number of GPUs with which any plan of patterns that are known is possible."""
TAKEN = frozenset(FEATURES) - {"survive", "even_replicas", "places"}
"""The features of instances that the methods take."""


def beginning(instance: Instance) -> str:
    """The method whose plan the search begins with; a known plan bounds the number of GPUs in the model.

    No fast method plans by co-location data.
    """
    if any(isinstance(data, Colocation) for data in instance.performance):
        return "master"
    return "lns" if instance.policy.share_slices else "greedy"


def method(name: str, library: str, solver: Solver, parameters: Mapping[str, str] | None = None) -> Method:
    """The Method that solves the model by a solver."""
    return Method(
        name=name, summary=f"explicit GPUs, MIG slots and operating points, exact on small instances ({library})",
        run=lambda instance, control: solve(instance, control, solver, name), exact=True, source="this package",
        features=TAKEN, begins_with=beginning, parameters=dict(parameters or {}))


def solve(instance: Instance, control: Search, solver: Solver, name: str) -> Outcome:
    """Plan an instance by the method of a name. The plan is proven optimal if the search finishes in time.

    Raises
    ------
    UnsupportedError
        If the instance has too many workloads or GPUs.
    """
    if len(instance.workloads) > MOST_WORKLOADS:
        raise UnsupportedError(f"method {name} takes at most {MOST_WORKLOADS} workloads, here are "
                               f"{len(instance.workloads)}; use --method auto")
    slots = slots_of(instance, control.within(control.left_s * LISTING))
    reasons = unservable(instance, best_segments(instance)) if all(one.stated for one in slots) else []
    if reasons:
        return Outcome("infeasible", "proved", reason="; ".join(reasons))
    search = _Search(instance, slots, control, solver, name)
    return search.run(control.elapsed_s)


class _Search:
    """The search: how an instance is stated, solved and refined. ``progress`` has the best plan and bound so far."""

    def __init__(self, instance: Instance, slots: list[Slots], control: Search, solver: Solver, name: str) -> None:
        self.instance, self.slots, self.control, self.solver, self.name = instance, slots, control, solver, name
        self.objective, self.progress = objective_of(instance), Progress(instance, control)
        self.edges = defaultdict[Base, set[float]](set)
        self.together = self._together()

    @property
    def stated(self) -> bool:
        """Whether the model excludes no plan also where GPUs stand one by one."""
        return all(one.stated for one in self.slots)

    def _together(self) -> list[Block]:
        """The GPUs of every fleet entry as one block: as many as a plan that is no worse than the known one can have.

        Raises
        ------
        UnsupportedError
            If a plan of few GPUs is not known.
        """
        counts = [math.inf if entry.count is None else entry.count for entry in self.instance.fleet]
        weights, plan = [self.objective.weight(entry) for entry in self.instance.fleet], self.progress.plan
        if plan is not None and self.instance.objective != THROUGHPUT:
            value = self.objective.value(plan)
            counts = [min(count, math.floor(value / weight * (1 + TOLERANCE)) if weight > 0 else math.inf)
                      for count, weight in zip(counts, weights, strict=True)]
        if math.isinf(max(counts)):
            most = Problem(self.instance, groups_of(self.instance)).most_gpus
            counts = [min(count, most) for count in counts]
        known = len(plan.gpus) if plan is not None else sum(counts)
        if known > MOST_GPUS:
            raise UnsupportedError(f"the assignment methods take at most {MOST_GPUS} GPUs to choose from, here are "
                                   f"{known:.0f}; use --method auto")
        return [Block(e, int(count)) for e, count in enumerate(counts) if count]

    def run(self, build_seconds: float) -> Outcome:
        """Solve with equal GPUs together, then one by one."""
        progress, ended = self.progress, "optimal" if self.together else "infeasible"
        progress.tell()
        if self.together:
            worths = worths_of(self.instance, self.slots, self.control.within())
            for one in self.slots:
                one.worths += [] if worths is None else [worths[one.slice_type.entry]]
            ended = self._solve(self.together, self.control.left_s * TOGETHER).ended
        elif progress.plan is not None:
            progress.prove(0.0)  # a plan of no GPUs costs nothing
        if not self.stated and not progress.proved and ended != "infeasible":
            bound = further_bound(self.instance, self.control.left_s * LISTING)
            progress.prove(bound if 0 < bound < math.inf else None)
            self._price(self.control.within(self.control.left_s * LISTING))
            ended = self._solve(self.together, self.control.left_s * TOGETHER).ended
        if not progress.proved and ended != "infeasible":
            ended = self._one_by_one()
        if ended == "infeasible" and progress.plan is None:
            return Outcome("infeasible", "proved", reason="proved: no plan fits the fleet; allow more GPUs, or fewer "
                                                          "replicas")
        return progress.outcome("time_limit" if ended == "time_limit" else "completed", "no plan found in time",
                                build_seconds)

    def _price(self, until: Deadline) -> None:
        """Ask the oracles for patterns and worths, at the prices of the linear program over the patterns that are known
        (column generation).
        """
        prices, floors, asked = np.ones(len(self.instance.workloads)), defaultdict[int, float](float), True
        plenty = [Block(e, PLENTY if entry.count is None else entry.count)
                  for e, entry in enumerate(self.instance.fleet) if entry.count != 0]
        while asked and not until.over:
            asked = any([one.ask(prices, floors[k]) for k, one in enumerate(self.slots) if one.oracles])
            model = Model(self.instance, self.slots, plenty, opened=False)
            known = solve_linear(model.program.as_rows())
            if known is None or self.instance.objective == THROUGHPUT:
                return
            prices = np.array([known.duals[model.rated[w]] if w in model.rated else 0.0 for w in range(len(prices))])
            floors.update((k, known.duals[row]) for (_, k), row in model.filled.items())

    def _one_by_one(self) -> Ended:
        """Solve with explicit GPUs, and again after each refinement."""
        blocks = [Block(block.entry, 1) for block in self._together() for _ in range(block.many)]
        while self.control.left_s > 0 and len(blocks) <= 2 * MOST_GPUS:
            refinements = self._refinements()
            answer = self._solve(blocks, self.control.left_s)
            if self.progress.proved or answer.ended != "optimal" or answer.best is None:
                unknown = answer.ended == "infeasible" and self.progress.plan is None and not self.stated
                return "time_limit" if unknown else answer.ended
            if self._refinements() == refinements:
                return "optimal"
            for one in self.slots:
                one.list_points(self.edges)
        return "time_limit"

    def _refinements(self) -> int:
        """How often the model has been refined."""
        return sum(map(len, self.edges.values()))

    def _solve(self, blocks: list[Block], limit_s: float) -> Answer:
        """Solve a model of blocks; keep better plans, and the bound if the model excludes no plan."""
        progress, sense = self.progress, self.objective.sense
        value, bound = (None if one is None else self.objective.loss(one) for one in (progress.value, progress.bound))
        model = Model(self.instance, self.slots, blocks, blocks is self.together, value, bound)
        bounded = self.instance.objective != THROUGHPUT or all(one.stated or one.most_rps < math.inf
                                                               for one in self.slots)
        binding = bounded and (blocks is self.together or self.stated)
        if binding and bound is None and (linear := solve_linear(model.program.as_rows())) is not None:
            progress.prove(sense * (linear.value - SOLVER * abs(linear.value)))  # a solver may end without a bound

        def consider(values: Values) -> None:
            progress.offer(model.plan(values, self.name, self.edges))

        answer = self.solver(model.program, self.control, min(limit_s, self.control.left_s), consider)
        if binding and answer.bound is not None:
            progress.prove(sense * answer.bound)
        return answer
