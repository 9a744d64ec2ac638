"""Candidates of instances in which every workload has one replica, on a whole GPU that it may share."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from provision.formulations.assignment.colocated_points import colocated_points
from provision.formulations.assignment.gpus import Candidates, rounded_up
from provision.formulations.assignment.igniter_points import igniter_points
from provision.formulations.assignment.points import Points, joined, longest_hold_ms
from provision.formulations.assignment.set_cuts import SetCuts, set_cuts_of
from provision.formulations.search.feasibility import unservable
from provision.formulations.search.segments import best_segments
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.colocation import Colocation
from provision.models.performance.igniter import IgniterProfiles
from provision.models.performance.operating_points import Member, Prediction
from provision.models.performance.sm_shares import units_of
from provision.models.plans.plan import Plan, PlannedGpu, Replica
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Status
from provision.models.problem.workload import FleetEntry, Workload

Shared = IgniterProfiles | Colocation


def shared_data(instance: Instance, entry: FleetEntry) -> Shared | None:
    """The data by which replicas share whole GPUs of an entry; None if there is none."""
    files = (data for data in instance.performance if data.gpu == entry.gpu and isinstance(data, Shared))
    return None if entry.partitioned else next(files, None)


def share_of(data: Shared) -> float:
    """The fraction of a GPU's SMs that one unit is."""
    return data.hardware.unit_share if isinstance(data, IgniterProfiles) else data.unit_share


def points_of(instance: Instance, workload: Workload, entry: FleetEntry) -> Points | None:
    """A workload's Points on GPUs of an entry: those that are feasible alone on a GPU, and that no other point of their
    model dominates. None if there are none.
    """
    data = shared_data(instance, entry)
    known = [number for number, model in enumerate(workload.models) if data and model in data.models]
    if isinstance(data, IgniterProfiles) and known:
        return joined([igniter_points(instance, workload, number, data, entry.mps) for number in known])
    if isinstance(data, Colocation) and known:
        return joined([colocated_points(instance, workload, number, data, entry.mps) for number in known])
    return None


class PointCandidates(Candidates):
    """Operating points of workloads that share whole GPUs. ``points[w][e]`` are those of workload w on fleet entry e;
    None if there are none. ``loose`` is false, since all points are listed; see PatternCandidates.
    """

    loose = False
    too_small: tuple[Status, str] = (
        "infeasible", "proved: no plan with one replica per workload fits the fleet; allow more GPUs"
    )

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.data = [shared_data(instance, entry) for entry in instance.fleet]
        self.units = [units_of(share_of(data)) if data else 0 for data in self.data]
        self.points = [[points_of(instance, one, entry) for entry in instance.fleet] for one in instance.workloads]
        self.own = np.array([[1.0 if points else np.inf for points in row] for row in self.points])
        self.most_own = np.where(np.isfinite(self.own), self.own, 0)

    def hopeless(self) -> tuple[Status | None, str]:
        """Status and reason if a workload has no candidate, else (None, ``""``)."""
        slow = unservable(self.instance, best_segments(self.instance))
        return ("infeasible" if slow else None, "; ".join(slow))

    @cached_property
    def cuts(self) -> SetCuts | None:
        """The SetCuts of the instance; None if there are too many sets of workloads."""
        clients = [entry.type.slice_mps_clients(WHOLE) if entry.mps else 1 for entry in self.instance.fleet]
        return set_cuts_of(self.instance, self.points, self.units, clients)

    @cached_property
    def bound(self) -> float:
        """A bound on the objective, known before any search; for max_throughput, on its negative."""
        if self.instance.objective == THROUGHPUT:
            return self.cuts.bound if self.cuts else -np.inf
        weights = [objective_of(self.instance).weight(entry) for entry in self.instance.fleet]
        covered = self.cuts.bound if self.cuts else 0.0
        return rounded_up(max(covered, sum(self._least(row, weights) for row in self.points)), weights)

    def _least(self, row: Sequence[Points | None], weights: Sequence[float]) -> float:
        """The least part of the objective that one workload adds."""
        gpus = zip(row, weights, self.units, strict=True)
        parts = (weight * float(points.units.min()) / units for points, weight, units in gpus if points)
        return min(parts, default=0.0)

    def holds(self, plan: Plan) -> bool:
        """Whether every replica of a plan keeps its latency and rate, by the performance model itself."""
        return all(self._gpu_holds(gpu) for gpu in plan.gpus)

    def _gpu_holds(self, gpu: PlannedGpu) -> bool:
        replicas = gpu.slices[0].replicas
        members = [Member(self.instance.model_of(one), one.batch, 1, one.sm_share) for one in replicas]
        data = next(data for data in self.data if data and data.gpu == gpu.gpu)
        found = data.predict(WHOLE, members)
        used_gib = sum(one.memory_gib or 0.0 for one in found if one)
        return (
            sum(one.sm_share for one in replicas) <= 1 + TOLERANCE
            and used_gib <= self._entry(gpu).type.memory_gib * (1 + TOLERANCE)
            and all(one is not None and self._holds(replica, one) for one, replica in zip(found, replicas, strict=True))
        )

    def _entry(self, gpu: PlannedGpu) -> FleetEntry:
        return next(entry for entry in self.instance.fleet if entry.gpu == gpu.gpu)

    def _holds(self, replica: Replica, found: Prediction) -> bool:
        """Whether a replica keeps its latency and rate by a prediction."""
        workload, hold_ms = self.instance.workload[replica.workload], 1000 * replica.batch / found.throughput_rps
        load_ms, batch = np.array([max(found.latency_ms - hold_ms, 0.0)]), np.array([float(replica.batch)])
        return bool(hold_ms <= longest_hold_ms(self.instance, workload, batch, load_ms)[0] * (1 + TOLERANCE))
