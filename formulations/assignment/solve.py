"""Assignment: the instances that it takes, and the search that CP-SAT and PuLP share.

First equal GPUs are stated together, as a relaxation, which has no symmetry and is small; its bound often proves the
plan to begin with. Then they are stated one by one. The model excludes no plan, so the solver's bound is a bound on
the instance. A solution becomes a plan at the rates that the performance models predict. If it claims more than that,
the model is refined there and solved again, until a plan is as good as the bound, or the time is over. Where replicas
share slices in more ways than can be listed, the master program gives a bound for the plan to begin with
(`provision.formulations.master`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from provision.formulations.assignment.rows import Block, Model
from provision.formulations.assignment.slots import Slots, add_worths, slots_of
from provision.formulations.linear.description import Ended, Solver, Values
from provision.formulations.linear.highs import solve_linear
from provision.formulations.master import solve as master
from provision.formulations.pricing.shared_mig.shared_relaxation import further_bound
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.problem import Problem, groups_of
from provision.formulations.search.segments import best_segments
from provision.models.base.errors import UnsupportedError
from provision.models.base.tolerances import SOLVER, TOLERANCE
from provision.models.performance.colocation import Colocation
from provision.models.performance.gpulets import Gpulets
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import FEATURES, Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Progress, Search

TAKEN = frozenset(FEATURES) - {"survive", "even_replicas", "places"}
"""The features of instances that the methods take."""


@dataclass(frozen=True)
class Schedule:
    """The numbers that steer the search. None of them decides whether a plan or a bound is valid.

    Attributes
    ----------
    workloads, gpus
        The most workloads of an instance, and the most GPUs of the plan to begin with or of a limited fleet.
    listing, together
        The largest fractions of the time left that listing, and the model of equal GPUs together, may take.
    steps
        CP-SAT counts a fractional variable in this many steps from 0 to its most; rounding changes it by about a
        millionth.
    largest, finest
        The largest sum of a row in CP-SAT's 64 bits, and the largest factor by which a row is multiplied before
        rounding.
    subsolvers
        CP-SAT's searches, one for each worker. They rest on linear programs, without which bounds hardly rise: by the
        two that CP-SAT takes for two workers, parvagpu-s3 is not proven in 10 s, and by these in 0.1 s.
    """

    workloads: int = 40
    gpus: int = 20
    listing: float = 0.3
    together: float = 0.4
    steps: int = 2**20
    largest: float = 2.0**55
    finest: float = 2.0**34
    subsolvers: tuple[str, ...] = ("max_lp", "reduced_costs")


SCHEDULE = Schedule()


def beginning(instance: Instance) -> str:
    """The method whose plan the search begins with; a known plan bounds the number of GPUs in the model.

    No fast method plans well by co-location data and by that of gpu-lets.
    """
    if any(isinstance(data, Colocation | Gpulets) for data in instance.performance):
        return "auto"
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
    if len(instance.workloads) > SCHEDULE.workloads:
        raise UnsupportedError(f"method {name} takes at most {SCHEDULE.workloads} workloads, here are "
                               f"{len(instance.workloads)}; use --method auto")
    slots = slots_of(instance, control.within(control.left_s * SCHEDULE.listing))
    if slots is None:
        progress, bound = Progress(instance, control), further_bound(instance, control.left_s * SCHEDULE.listing)
        progress.prove(bound if 0 < bound < math.inf else None)
        if progress.proved:
            return progress.outcome("proved")
        return master.solve(instance, replace(control, bound=progress.bound))
    refused = proved_infeasible(instance, best_segments(instance))
    return refused or _Search(instance, control, slots, solver, name).run()


class _Search:
    """The search: how an instance is stated, solved and refined. ``progress`` has the best plan and bound so far."""

    def __init__(self, instance: Instance, control: Search, slots: list[Slots], solver: Solver, name: str
                 ) -> None:
        self.instance, self.control, self.slots, self.solver, self.name = instance, control, slots, solver, name
        self.objective, self.progress = objective_of(instance), Progress(instance, control)
        self.build_seconds = control.elapsed_s

    def _together(self) -> list[Block]:
        """The GPUs of every fleet entry as one block: as many as a plan that is no worse than the known one can have.

        Raises
        ------
        UnsupportedError
            If a plan of few GPUs is not known.
        """
        fleet, plan = self.instance.fleet, self.progress.plan
        counts = [math.inf if entry.count is None else entry.count for entry in fleet]
        if plan is not None and self.instance.objective != THROUGHPUT:
            most = self.objective.value(plan) * (1 + TOLERANCE)
            counts = [min(count, most // weight if weight > 0 else math.inf)
                      for count, weight in zip(counts, map(self.objective.weight, fleet), strict=True)]
        if math.inf in counts:
            most = Problem(self.instance, groups_of(self.instance)).most_gpus
            counts = [min(count, most) for count in counts]
        known = len(plan.gpus) if plan is not None else sum(counts)
        if known > SCHEDULE.gpus:
            raise UnsupportedError(f"method {self.name} takes at most {SCHEDULE.gpus} GPUs to choose from, here "
                                   f"are {known:.0f}; use --method auto")
        return [Block(e, int(count)) for e, count in enumerate(counts) if count]

    def run(self) -> Outcome:
        """Solve with equal GPUs together, then one by one."""
        progress, control, together = self.progress, self.control, self._together()
        ended: Ended = "optimal" if together else "infeasible"
        progress.tell()
        if together:
            add_worths(self.instance, self.slots, control.within())
            ended = self._solve(together, control.left_s * SCHEDULE.together)
        elif progress.plan is not None:
            progress.prove(0.0)  # a plan of no GPUs costs nothing
        if not progress.proved and ended != "infeasible":
            ended = self._one_by_one()
        if ended == "infeasible" and progress.plan is None:
            return Outcome("infeasible", "proved", reason="proved: no plan fits the fleet; allow more GPUs, or fewer "
                                                          "replicas")
        return progress.outcome("time_limit" if ended == "time_limit" else "completed", "no plan found in time",
                                self.build_seconds)

    def _one_by_one(self) -> Ended:
        """Solve with explicit GPUs, and again after each refinement."""
        blocks = [Block(block.entry, 1) for block in self._together() for _ in range(block.many)]
        while self.control.left_s > 0 and len(blocks) <= 2 * SCHEDULE.gpus:
            refinements = sum(one.refinements for one in self.slots)
            ended = self._solve(blocks, self.control.left_s)
            if self.progress.proved or ended != "optimal" or refinements == sum(one.refinements for one in self.slots):
                return ended
            for one in self.slots:
                one.list_points()
        return "time_limit"

    def _solve(self, blocks: list[Block], limit_s: float) -> Ended:
        """Solve a model of blocks; keep better plans, and the bound."""
        progress, sense = self.progress, self.objective.sense
        value, bound = (None if one is None else self.objective.loss(one) for one in (progress.value, progress.bound))
        model = Model(self.instance, self.slots, blocks, value, bound)
        if bound is None and (linear := solve_linear(model.program.as_rows())) is not None:
            progress.prove(sense * (linear.value - SOLVER * abs(linear.value)))  # a solver may end without a bound

        def consider(values: Values) -> None:
            progress.offer(model.plan(values, self.name))

        answer = self.solver(model.program, self.control, min(limit_s, self.control.left_s), consider)
        if answer.bound is not None:
            progress.prove(sense * answer.bound)
        return answer.ended
