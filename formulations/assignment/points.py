"""Operating points of replicas that share whole GPUs under interference, as a table from which rows are made.

A point is a batch size, units of the SMs, and a *level*: the range of times for which a batch may hold its process
beside all neighbours. The longest time of the level is the point's deadline, which rows keep; the shortest time tells
the most requests/s that the point carries. So rows are exact where a replica must carry its workload's whole rate (one
level), and a relaxation elsewhere, which is refined where a solution claims more than its replicas carry (``edges``).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from provision.formulations.assignment.patterns import clients_of
from provision.formulations.pricing.listing import undominated
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance import colocation, igniter
from provision.models.performance.colocation import Colocation
from provision.models.performance.igniter import IgniterProfiles
from provision.models.performance.sm_shares import units_of
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.workload import FleetEntry
from provision.models.traffic.full_batches import NAME as FULL_BATCHES

Interfering = IgniterProfiles | Colocation
"""The kinds of performance data whose replicas slow each other by sums over neighbours."""
RATIO, MOST_LEVELS = 1.12, 4
"""The ratio of the ends of successive levels, and the most levels of a batch size and number of units to begin with."""
SLOW_RPS = 1e-9
"""A rate that stands for none, where a rule asks for one."""

Base = tuple[int, int, int, int]
"""A batch size and units of a model: the indices of workload and model, batch, units."""


class Points(NamedTuple):
    """Operating points on whole GPUs of one fleet entry by one data file; arrays are (points,).

    Attributes
    ----------
    data, limit, clients, memory_limit_gib
        The data file, and the units, clients and memory of a GPU.
    workload, model, batch, units, memory_gib, load_ms
        The indices of workload and model, batch size, units, memory (0 where it is not known), time to load a batch.
    room_ms
        The longest time for which a batch may hold its process.
    rps, part
        The most requests/s that the point carries, and the fraction of the planned rate that they are, at most 1.
    demand
        (points, resources) what a replica adds to what slows its neighbours: by iGniter's model L2 utilisation and
        power (W), by co-location data demands to the power of the norm.
    most
        The most replicas at this point that are of use on one GPU.
    terms
        The arrays of the performance model, in the order of the points.
    """

    data: Any
    limit: int
    clients: int
    memory_limit_gib: float
    workload: Ints
    model: Ints
    batch: Ints
    units: Ints
    memory_gib: Floats
    load_ms: Floats
    room_ms: Floats
    rps: Floats
    part: Floats
    demand: Floats
    most: Ints
    terms: Any

    def only(self, rows: Ints) -> "Points":
        """The points with the given indices."""
        arrays: dict[str, Any] = {name: value[rows] for name, value in self._asdict().items()
                                  if isinstance(value, np.ndarray)}
        return self._replace(**arrays, terms=type(self.terms)(*(column[rows] for column in self.terms)))

    def base(self, point: int) -> Base:
        """What a point has in common with the points at its other levels."""
        return (int(self.workload[point]), int(self.model[point]), int(self.batch[point]), int(self.units[point]))

    def hold_ms(self, at: Ints, count: int, others: Floats) -> Floats:
        """For how many ms batches hold their processes on a GPU with ``count`` replicas; infinite if it has no clock
        left. ``at`` are indices of points, ``others`` (..., resources) the sums of the neighbours' demands.
        """
        terms = type(self.terms)(*(column[at] for column in self.terms))
        if isinstance(self.data, Colocation):
            longer_ms = terms.slope_ms * np.maximum(others, 0.0) ** (1 / self.data.norm_order)
            return np.asarray(terms.solo_ms + longer_ms.sum(axis=-1) - self.load_ms[at])
        _, rps = igniter.in_company(self.data.hardware, terms, np.array(count), others[..., 0],
                                    others[..., 1] + terms.power_w)
        with np.errstate(divide="ignore"):
            return np.asarray(1000 * self.batch[at] / rps)

    def criteria(self) -> Floats:
        """(points, criteria) of two points of one model, one with no larger criteria keeps its deadline beside all
        neighbours beside which the other does, and burdens them no more.

        By iGniter's model, with D the deadline less the time to answer, A the active and S the scheduling time, they
        are A - D and -(D - S) / A. Proof: beside neighbours that leave the clock f/F, a point is feasible when x + A y
        <= D, where x >= S is its scheduling time and y >= 1 its cache factor, both divided by the clock; x and y are
        the same functions of the neighbours for all points of a model. The pairs (x, y) that a point tolerates form a
        triangle with the corners (S, 1), (D - A, 1) and (S, (D - S) / A). Less power, another criterion, means no lower
        clock.
        """
        terms = self.terms
        if isinstance(self.data, Colocation):
            return np.column_stack([self.demand, per_norm(self)])
        deadline_ms = self.room_ms - terms.feedback_ms
        return np.column_stack([self.demand, terms.active_ms - deadline_ms,
                                (terms.scheduling_ms - deadline_ms) / terms.active_ms])


def per_norm(points: Points) -> Floats:
    """(points, resources) what a unit of a norm takes of the time that a point of co-location data has left alone."""
    left_ms = points.room_ms + points.load_ms - points.terms.solo_ms
    return np.asarray(points.terms.slope_ms / np.maximum(left_ms, 1e-12)[:, None])


def points_of(instance: Instance, entry: FleetEntry, data: Interfering, edges: Mapping[Base, Sequence[float]]
              ) -> Points | None:
    """The points that no other point dominates; None if there are none. ``edges`` are further ends of levels, in ms."""
    tables = [_levels(instance, entry, data, w, number, edges) for w, workload in enumerate(instance.workloads)
              for number, model in enumerate(workload.models) if model in data.models]
    if not any(len(table.batch) for table in tables):
        return None
    joined: dict[str, Any] = {name: np.concatenate([getattr(table, name) for table in tables])
                              for name, value in tables[0]._asdict().items() if isinstance(value, np.ndarray)}
    terms = map(np.concatenate, zip(*(table.terms for table in tables), strict=True))
    return tables[0]._replace(**joined, terms=type(tables[0].terms)(*terms))


def _levels(instance: Instance, entry: FleetEntry, data: Interfering, w: int, number: int,
            edges: Mapping[Base, Sequence[float]]) -> Points:
    """The undominated points of one model of a workload."""
    workload, planned = instance.workloads[w], instance.planned_rps(instance.workloads[w])
    alone, counted = _alone(instance, entry, data, w, number), instance.objective == THROUGHPUT
    rule, budget_ms = instance.policy.rule_for(workload), instance.budget_ms(workload) * (1 + TOLERANCE)
    whole = workload.max_replicas == 1 and workload.max_share_per_gpu == 1
    room_ms = budget_ms - alone.load_ms
    if whole:
        with np.errstate(divide="ignore"):
            room_ms = rule.room_ms(alone.batch, max(planned / (1 + TOLERANCE), SLOW_RPS), alone.load_ms, budget_ms)
    kept, low_ms, high_ms = list[int](), list[float](), list[float]()
    for at in np.flatnonzero(alone.room_ms <= room_ms * (1 + TOLERANCE)).tolist():
        first, last = float(alone.room_ms[at]), float(room_ms[at])
        many = 0 if whole and not counted else min(MOST_LEVELS - 1, int(np.log(last / first) / np.log(RATIO)))
        inner = {*(first * RATIO ** (1 + one) for one in range(many)), *edges.get(alone.base(at), ())}
        ends = [first, *sorted(one for one in inner if first < one < last), last]
        kept += [at] * (len(ends) - 1)
        low_ms += ends[:-1]
        high_ms += ends[1:]
    table, low = alone.only(np.array(kept, int)), np.array(low_ms)
    full = instance.policy.latency_budget == FULL_BATCHES  # a longer batch may carry more under this rule
    rps = (1000 * table.batch / low if full else
           rule.capacity_rps(table.batch, 1, low, table.load_ms + low, budget_ms))
    part = np.minimum(rps / planned if planned and not whole else np.ones(len(low)), workload.max_share_per_gpu)
    most = np.minimum(table.limit // table.units, min(table.clients, workload.max_replicas or table.clients))
    if not counted:
        useful = np.ceil(workload.max_share_per_gpu / np.maximum(part, 1e-9) * (1 - TOLERANCE)).astype(int)
        most = np.minimum(most, np.maximum(useful, max(workload.min_replicas, 1)))
    table = table._replace(room_ms=np.maximum(high_ms, low), rps=rps, part=part, most=most).only(
        np.flatnonzero(part > 0))
    features = np.column_stack([-table.units, -table.memory_gib, -table.criteria(), table.part, table.rps * counted])
    return table.only(undominated(features, most=len(features)))


def _alone(instance: Instance, entry: FleetEntry, data: Interfering, w: int, number: int) -> Points:
    """Every batch size and number of units of a model; ``room_ms`` is the time for which a batch holds its process
    alone on a GPU.
    """
    share = data.hardware.unit_share if isinstance(data, IgniterProfiles) else data.unit_share
    model, limit, sizes = instance.workloads[w].models[number], units_of(share), np.arange(1, data.max_batch + 1)
    units, batch = (axis.ravel() for axis in np.meshgrid(np.arange(1, limit + 1), sizes))
    known = np.array([data.stated[model].memory_gib(size) or 0.0 for size in sizes.tolist()])[batch - 1]
    solo_terms: Any = colocation.solo_terms if isinstance(data, Colocation) else igniter.solo_terms
    terms = solo_terms(data, model, batch, np.asarray(share * units, np.float64))
    if isinstance(data, IgniterProfiles) and instance.policy.rule.random_arrivals:  # smaller batches may demand more
        terms = igniter.Terms(*(column.ravel() for column in igniter.most_demanding(
            igniter.Terms(*(column.reshape(len(sizes), -1) for column in terms)), axis=0)))
    load_ms = terms.overlap_ms if isinstance(data, Colocation) else terms.load_ms
    demand = terms.demand if isinstance(data, Colocation) else np.column_stack([terms.cache, terms.power_w])
    nothing, one = np.zeros(len(batch)), np.ones(len(batch), int)
    table = Points(data, limit, clients_of(entry, WHOLE), entry.type.memory_gib, w * one, number * one, batch, units,
                   known, load_ms, nothing, nothing, nothing, demand, one, terms)
    return table._replace(room_ms=table.hold_ms(np.arange(len(batch)), 1, np.zeros((1, demand.shape[1]))))
