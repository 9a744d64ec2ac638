"""Operating points on iGniter's data: every workload takes one operating point, of one of its models, on one whole GPU.

That is the paper's rule. Bounds are valid for plans with one replica per workload and SM shares in whole units.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from provision.formulations.assignment.gpus import Candidates, rounded_up
from provision.formulations.search.feasibility import unservable
from provision.formulations.search.segments import best_segments
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.igniter import IgniterHardware, IgniterProfiles, Terms, igniter_data, solo_terms
from provision.models.performance.operating_points import Member
from provision.models.plans.plan import Plan, PlannedGpu
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Status
from provision.models.problem.workload import FleetEntry, Workload


@dataclass(frozen=True)
class Points:
    """Operating points of one workload on a whole GPU of one fleet entry, as arrays (points,).

    ``model`` is an index into the workload's models. A batch takes ``gpu_ms = busy / clock`` (iGniter, eqs. 1-5 and 8).
    It must be done within a deadline D, the lesser of what the latency budget and the rate allow. Multiplied by clock /
    D, this condition is linear in the number of neighbours, in the L2 utilisation of the GPU, and in the excess of its
    power over the cap: ``per_neighbour * others + per_sharing * [others > 0] + per_cache * cache + per_excess * excess
    <= room``. ``power`` and the excess are fractions of the cap.
    """

    model: Floats
    batch: Floats
    units: Floats
    power: Floats
    cache: Floats
    per_neighbour: Floats
    per_sharing: Floats
    per_cache: Floats
    per_excess: Floats
    room: Floats

    def __len__(self) -> int:
        return len(self.batch)


def points_of(instance: Instance, workload: Workload, entry: FleetEntry) -> Points:
    """The operating points of a workload that are feasible alone on a GPU and not dominated within their model; may be
    empty.
    """
    tables = [np.zeros((10, 0))]
    data = igniter_data(instance.performance).get(entry.gpu)
    for number, model in enumerate(workload.models):
        if data and model in data.models and not entry.partitioned:
            table = _every_point(instance, workload, data, model, entry.mps)
            tables.append(np.insert(table, 0, number, axis=0))
    return Points(*np.concatenate(tables, axis=1))


def _every_point(instance: Instance, workload: Workload, data: IgniterProfiles, model: str, mps: bool) -> Floats:
    """The undominated operating points of a model: all fields of Points but ``model``, as rows.

    Point p dominates q if it takes no more units, power and cache, and has no less slack D - A and no less tolerance (D
    - S) / A, where A is the active and S the scheduling time, alone at full clock. Proof: consider neighbours that
    leave the clock f/F. Beside them, a point is feasible if x + A y <= D, where x >= S is its scheduling time and y >=
    1 its cache factor, both divided by the clock. x and y are the same functions of the neighbours for all points of a
    model. The pairs (x, y) that a point tolerates form a triangle with the corners (S, 1), (D - A, 1) and (S, (D - S) /
    A), so p tolerates all that q does. Less power means no lower clock, so p's x and y are no larger than q's. With
    less power and cache, p slows its neighbours down no more than q does.
    """
    hardware = data.hardware
    units = np.arange(1, hardware.units + 1) if mps else np.array([hardware.units])
    batch, units = (axis.ravel() for axis in np.meshgrid(np.arange(1, data.max_batch + 1), units))
    terms = solo_terms(data, model, batch, hardware.unit_share * units)
    deadline_ms = _deadlines(instance, workload, terms)
    slack, tolerance = deadline_ms - terms.active_ms, (deadline_ms - terms.scheduling_ms) / terms.active_ms
    clock = 1 - _lost(hardware) * np.maximum((hardware.idle_power_w + terms.power_w) / hardware.power_cap_w - 1, 0)
    kept = np.flatnonzero((terms.scheduling_ms + terms.active_ms <= deadline_ms * clock) & (deadline_ms > 0))
    kept = kept[_undominated(np.array([units, terms.power_w, terms.cache, -slack, -tolerance])[:, kept].T)]
    return _fields(hardware, Terms(*(column[kept] for column in terms)), units[kept], deadline_ms[kept])


def _deadlines(instance: Instance, workload: Workload, terms: Terms) -> Floats:
    """(points,) the longest ``gpu_ms`` that latency budget and rate allow, including the verifier's tolerance."""
    planned = instance.planned_rps(workload)
    every_ms = 1000 * terms.batch / planned if planned > 0 else np.inf
    budget_ms = instance.budget_ms(workload) * (1 + TOLERANCE) - terms.load_ms
    return np.minimum(budget_ms, every_ms * (1 + TOLERANCE)) - terms.feedback_ms


def _lost(hardware: IgniterHardware) -> float:
    """The fraction of the clock that is lost when power is twice the cap (eq. 9)."""
    return -hardware.clock_slope_mhz_per_w * hardware.power_cap_w / hardware.max_clock_mhz


def _fields(hardware: IgniterHardware, terms: Terms, units: Ints, deadline_ms: Floats) -> Floats:
    """All fields of Points but ``model``, in order, as rows."""
    per_neighbour_ms = terms.kernels * hardware.scheduling_slope_ms
    per_sharing_ms = terms.kernels * hardware.extra_delay_ms(2) - per_neighbour_ms
    per_cache = terms.active_ms * terms.cache_sensitivity / deadline_ms
    room = 1 - (terms.scheduling_ms + terms.active_ms) / deadline_ms + per_cache * terms.cache  # not its own
    power = terms.power_w / hardware.power_cap_w
    fields = (terms.batch, units, power, terms.cache, per_neighbour_ms / deadline_ms, per_sharing_ms / deadline_ms,
              per_cache, _lost(hardware), room)
    return np.array(np.broadcast_arrays(*fields), float)


def _undominated(costs: Floats) -> Ints:
    """The indices of the undominated rows of ``costs`` (points, criteria); less is better. Of equal rows, one is kept.
    """
    kept: list[int] = []
    for row in np.lexsort(costs.T[::-1]):  # a row comes after all rows that dominate it
        if not kept or not (costs[kept] <= costs[row]).all(axis=1).any():
            kept.append(int(row))
    return np.sort(np.array(kept, int))


class PointCandidates(Candidates):
    """The operating points of workloads that share whole GPUs: ``points[w][e]`` of workload w on fleet entry e.

    ``loose`` is as in PatternCandidates.
    """

    loose = False

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.points = [[points_of(instance, one, entry) for entry in instance.fleet] for one in instance.workloads]
        self.own = np.array([[1.0 if len(points) else np.inf for points in row] for row in self.points])
        self.most_own = np.where(np.isfinite(self.own), self.own, 0)
        self.data = igniter_data(instance.performance)

    def hopeless(self) -> tuple[Status | None, str]:
        """The status and a reason if a workload has no operating point; else (None, ``""``)."""
        slow = unservable(self.instance, best_segments(self.instance))
        if slow:
            return "infeasible", "; ".join(slow)
        return None, ""

    @cached_property
    def bound(self) -> float:
        """A lower bound on the objective: every workload pays for its least units, on the GPU type cheapest for it."""
        weights = [objective_of(self.instance).weight(entry) for entry in self.instance.fleet]
        return rounded_up(sum(self._least(row, weights) for row in self.points), weights)

    def _least(self, row: Sequence[Points], weights: Sequence[float]) -> float:
        """The least that one workload adds to the objective."""
        gpus = zip(row, weights, self.instance.fleet, strict=True)
        return min(weight * float(points.units.min()) / self.data[entry.gpu].hardware.units
                   for points, weight, entry in gpus if len(points))

    def holds(self, plan: Plan) -> bool:
        """Whether every replica of a plan keeps its latency budget and rate, by the latency model itself."""
        return all(self._gpu_holds(gpu) for gpu in plan.gpus)

    def _gpu_holds(self, gpu: PlannedGpu) -> bool:
        replicas = gpu.slices[0].replicas
        members = [Member(self.instance.model_of(one), one.batch, 1, one.sm_share) for one in replicas]
        found = self.data[gpu.gpu].predict(WHOLE, members)
        return sum(one.sm_share for one in replicas) <= 1 + TOLERANCE and all(
            one is not None
            and one.latency_ms <= self.instance.budget_ms(self.instance.workload[replica.workload]) * (1 + TOLERANCE)
            and one.throughput_rps * (1 + TOLERANCE) >= replica.rate_rps
            for one, replica in zip(found, replicas, strict=True)
        )

    too_small: tuple[Status, str] = (
        "infeasible", "proved: no plan with one replica per workload fits the fleet; allow more GPUs"
    )
