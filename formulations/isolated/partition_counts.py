"""Partition counts: how many GPUs take each MIG partition, and how many segments of each slice type a workload gets.

The model is exact for isolated segments. Its size does not depend on the number of GPUs, because GPUs of equal
partition are not distinguished. The integer variables are ``y[c]``, the GPUs with partition c, and ``x[w, k]``, the
segments of workload w on slices of type k. Each segment has the operating point of highest throughput within the
latency budget. Each method of the class adds the rows that its name says. For whole numbers the rate rows imply the
replica-set rows; for fractions they do not. So the replica-set rows close most of the gap before any branching.
"""

import math
from dataclasses import replace
from functools import cached_property

import numpy as np
import pulp

from provision.formulations.bounds.replica_set_bound import replica_set_bound
from provision.formulations.linear.by_name import DEFAULT_SOLVER, pulp_solver
from provision.formulations.linear.dual_bound import dual_bound, highs, safe_most
from provision.formulations.linear.highs import until_stopped
from provision.formulations.pricing.alone.assemble import Layout, assemble
from provision.formulations.pricing.alone.deal import deal
from provision.formulations.pricing.alone.replica_sets import SegmentSets, cheapest_replica_sets
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.partitions import partitions_of
from provision.formulations.search.segments import Segments, best_segments, cap_rps
from provision.models.base.arrays import Bools, Ints
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import PLANNED, TOLERANCE
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import ISOLATED, Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Search

EXPLAIN_SECONDS = 10.0
"""The time limit, in seconds, for computing what a fleet that is too small could carry."""


class PartitionCounts:
    """The model of one instance.

    Parameters
    ----------
    instance
        The problem.
    segments
        The segments of the problem.
    sense
        PuLP's sense of the objective.
    """

    def __init__(self, instance: Instance, segments: Segments, sense: int = pulp.LpMinimize) -> None:
        self.instance, self.segments = instance, segments
        self.partitions = partitions_of(instance, segments)
        self.useful_rps = np.minimum(segments.throughput_rps, cap_rps(instance)[:, None])
        self.rate_rps = np.array([instance.planned_rps(one) for one in instance.workloads])
        self.problem = pulp.LpProblem("partition_counts", sense)
        self.y = [self._count(f"y_{c}") for c in range(len(self.partitions.entry))]
        self.x = {(w, k): self._count(f"x_{w}_{k}") for w, k in zip(*np.nonzero(self.useful_rps), strict=True)}
        self.slice_types_of = [np.flatnonzero(row) for row in self.useful_rps]

    @cached_property
    def replica_sets(self) -> tuple[float, SegmentSets]:
        """A lower bound on the objective (see `replica_set_bound`), and for every workload the replica set with the
        fewest compute slices.

        Every workload must have a replica set.
        """
        return replica_set_bound(self.instance, self.useful_rps, self.segments, self.partitions)

    @property
    def bound(self) -> float:
        """A lower bound on the objective, from the cheapest replica sets."""
        return self.replica_sets[0]

    def cheapest(self, rows: Bools) -> Ints:
        """(flagged workloads, slice types) the numbers of segments in the replica sets with the fewest compute slices.

        ``rows`` flags the workloads.
        """
        compute = np.array([slice_type.compute for slice_type in self.segments.slice_types])
        least = np.array([one.min_replicas for one in self.instance.workloads])
        return cheapest_replica_sets(self.useful_rps[rows], compute, self.rate_rps[rows], least[rows]).counts

    def _count(self, name: str) -> pulp.LpVariable:
        return self.problem.add_variable(name, 0, None, cat="Integer")

    def aim(self) -> None:
        """Set the objective: the price per hour, or the number, of the GPUs."""
        self.problem += pulp.lpDot(self._weights(), self.y)

    def proven_bound(self, until: Deadline) -> float:
        """A bound on the objective that a second solver proves; infinite if the model is infeasible."""
        return dual_bound(self.problem, self._weights(), until.left_s)

    def _weights(self) -> list[float]:
        return [objective_of(self.instance).weight(self.instance.fleet[entry]) for entry in self.partitions.entry]

    def carry_rates(self, share: float | pulp.LpVariable = 1) -> None:
        """Add rows: the segments of every workload carry ``share`` of its planned rate. ``share`` may be a variable."""
        for w, rate in enumerate(self.rate_rps):
            if rate > 0:
                terms = [min(self.useful_rps[w, k] / rate, 1) * self.x[w, k] for k in self.slice_types_of[w]]
                self.problem += pulp.lpSum(terms) >= share

    def keep_replicas(self) -> None:
        """Add rows: the number of a workload's segments is between its min_replicas and its max_replicas."""
        for w, workload in enumerate(self.instance.workloads):
            replicas = pulp.lpSum(self.x[w, k] for k in self.slice_types_of[w])
            self.problem += replicas >= workload.min_replicas
            if workload.max_replicas is not None:
                self.problem += replicas <= workload.max_replicas

    def replica_set(self) -> None:
        """Add rows: a workload's segments have at least as many compute slices as its cheapest replica set."""
        for w, needed in enumerate(self.replica_sets[1].cost):
            held = [self.segments.slice_types[k].compute * self.x[w, k] for k in self.slice_types_of[w]]
            self.problem += pulp.lpSum(held) >= int(needed)

    def fit_slots(self) -> None:
        """Add rows: there are no more segments of a slice type than slots for it."""
        slots = self.partitions.slices(enumerate(self.y))
        for k, taken in self.standing().items():
            self.problem += pulp.lpSum(taken) <= pulp.lpSum(slots[k])

    def standing(self) -> dict[int, list[pulp.LpVariable]]:
        """For each slice type, the variables that count what occupies its slices."""
        found: dict[int, list[pulp.LpVariable]] = {k: [] for k in range(len(self.segments.slice_types))}
        for (_, k), variable in self.x.items():
            found[k].append(variable)
        return found

    def respect_fleet(self) -> None:
        """Add rows: no more GPUs of a fleet entry are used than there are."""
        for index, entry in enumerate(self.instance.fleet):
            if entry.count is not None:
                self.problem += pulp.lpSum(self.partitions.of_entry(index, self.y)) <= entry.count

    def spread(self) -> None:
        """Add a row: there are at least as many GPUs as the smallest max_share_per_gpu requires."""
        shares = [one.max_share_per_gpu for one in self.instance.workloads if one.rate_rps > 0]
        self.problem += pulp.lpSum(self.y) >= max((math.ceil(1 / share - TOLERANCE) for share in shares), default=0)

    def gpus(self) -> Ints:
        """(partitions,) the number of GPUs in the solver's solution."""
        return np.array([round(variable.value() or 0) for variable in self.y], int)

    def chosen(self) -> Ints:
        """(workloads, slice types) the number of segments in the solver's solution."""
        chosen = np.zeros(self.useful_rps.shape, int)
        for at, variable in self.x.items():
            chosen[at] = round(variable.value() or 0)
        return chosen


class ThroughputCounts(PartitionCounts):
    """The model for the objective max_throughput. It may have more segments than the rates need."""

    @cached_property
    def bound(self) -> float:
        """An upper bound on the objective: every slot gets the workload with the highest throughput there."""
        most = self.partitions.slots @ self.segments.throughput_rps.max(axis=0)
        each = [most[self.partitions.entry == index].max(initial=0) for index in range(len(self.instance.fleet))]
        counts = [entry.count or 0 for entry in self.instance.fleet]
        return sum(count * rps for count, rps in zip(counts, each, strict=True)) * (1 + TOLERANCE)

    def aim(self) -> None:
        """Set the objective to be minimised: the negative throughput of all segments."""
        self.problem += pulp.lpSum(-self.segments.throughput_rps[at] * count for at, count in self.x.items())

    def proven_bound(self, until: Deadline) -> float:
        """A bound on the objective that a second solver proves; negative infinity if the model is infeasible."""
        return safe_most(highs(self.problem, until.left_s))


def solve(instance: Instance, control: Search) -> Outcome:
    """Plan an instance for its objective. The plan is proven optimal if the solver finishes in time."""
    solver = pulp_solver(control, control.time_limit_s)
    segments = best_segments(instance)
    refused = proved_infeasible(instance, segments)
    if refused:
        return refused
    model = _model(instance, segments)
    control.report(Incumbent(None, model.bound))
    build_seconds, until = control.elapsed_s, Deadline(control.time_limit_s)
    until_stopped(lambda: model.problem.solve(solver), None)
    if (
        model.problem.sol_status == pulp.LpSolutionInfeasible
        and objective_of(instance).loss(model.proven_bound(until)) == math.inf
    ):
        outcome = Outcome("infeasible", "proved", reason=_what_would_fit(instance, segments, control))
    else:
        outcome = _outcome(model, until)
    return replace(outcome, build_seconds=build_seconds)


def _model(instance: Instance, segments: Segments) -> PartitionCounts:
    """The model with objective and all rows."""
    model = (ThroughputCounts if instance.objective == THROUGHPUT else PartitionCounts)(instance, segments)
    model.aim()
    model.carry_rates()
    model.keep_replicas()
    model.replica_set()
    model.fit_slots()
    model.respect_fleet()
    model.spread()
    return model


def _outcome(model: PartitionCounts, until: Deadline) -> Outcome:
    """The Outcome for the solver's status. Work ends at ``until``."""
    found = model.problem.sol_status
    if found not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return Outcome("unknown", "time_limit", bound=model.bound, reason="no plan found in time")
    layouts = _layouts(model, until)
    if layouts is None:
        reason = "segments that carry the rates fit, but not spread or in as few replicas as is asked"
        return Outcome("unknown", "completed", bound=model.bound, reason=reason)
    plan = assemble(model.instance, model.segments, layouts, NAME)
    reached = objective_of(model.instance).value(plan)
    bound = model.bound
    if not objective_of(model.instance).proved(reached, bound):
        bound = max(bound, model.proven_bound(until), key=objective_of(model.instance).loss)
    if objective_of(model.instance).proved(reached, bound):
        return Outcome("optimal", "proved", plan, bound)
    return Outcome("feasible", "time_limit" if until.over else "completed", plan, bound)


def _layouts(model: PartitionCounts, until: Deadline) -> list[Layout] | None:
    """The solution's segments as layouts of GPUs; None if the fleet has too few GPUs to spread workloads as they ask.

    Solvers satisfy rows only within a tolerance. A workload whose rate is not carried exactly gets its cheapest replica
    set instead. If that has too many replicas, the result is None.
    """
    chosen = model.chosen()
    short = (chosen * model.useful_rps).sum(axis=1) < model.rate_rps * (1 - PLANNED)
    chosen[short] = model.cheapest(short)
    most = [one.max_replicas or np.inf for one in model.instance.workloads]
    if (chosen.sum(axis=1) > most).any():
        return None
    spread = None
    if np.isfinite(cap_rps(model.instance)).any():
        from provision.formulations.isolated.spread import Demand, spread_out  # loads OR-tools

        demand = Demand(model.instance, model.segments, model.partitions, model.useful_rps, model.rate_rps)
        spread = spread_out(demand, model.gpus(), until)
    return spread or deal(model.instance, model.segments, model.partitions, model.gpus(), chosen)


def _what_would_fit(instance: Instance, segments: Segments, control: Search) -> str:
    """A sentence: the largest share of all rates that the fleet can carry."""
    model = PartitionCounts(instance, segments, pulp.LpMaximize)
    share = model.problem.add_variable("share", 0, 1)
    model.problem += share
    model.carry_rates(share)
    model.keep_replicas()
    model.fit_slots()
    model.respect_fleet()
    model.spread()
    solver = pulp_solver(control, min(control.time_limit_s, EXPLAIN_SECONDS), gapRel=0.002)
    until_stopped(lambda: model.problem.solve(solver), None)
    if control.stop.asked:
        return "the fleet has too few GPUs; allow more"
    if model.problem.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        strictest = min(instance.workloads, key=lambda one: (one.max_share_per_gpu, -one.min_replicas))
        return (
            f"the fleet has too few GPUs even at rate 0: workload {strictest.name} asks for min_replicas "
            f"{strictest.min_replicas}, max_share_per_gpu {strictest.max_share_per_gpu:g}; allow more GPUs"
        )
    percent = math.floor(share.value() * 1000) / 10
    return f"the fleet has too few GPUs; all rates at {percent:g} % of what is asked would fit"


NAME = "partition-counts"
METHODS = (
    Method(
        name=NAME,
        summary="integer program over partitions and segments, for any number of GPUs (PuLP)",
        run=solve,
        exact=True,
        source="this package",
        features=ISOLATED | {"tokens", "max_replicas", "max_throughput"},
        parameters={"solver": DEFAULT_SOLVER},
    ),
)
