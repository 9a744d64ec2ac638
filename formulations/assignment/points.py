"""Operating points of replicas that share whole GPUs under interference, with the coefficients of their linear rows.

A point is a batch size, units of the SMs, and a *level*: the range of times for which a batch may hold its process
beside all neighbours. The longest time of the level is the point's deadline, which rows keep; the shortest time tells
the most requests/s that the point carries. So rows are exact where a replica must carry its workload's whole rate (one
level), and a relaxation elsewhere, which is refined where a solution claims more than its replicas carry (``edges``).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from provision.formulations.assignment.patterns import clients_of, undominated
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


class Columns(NamedTuple):
    """The operating points of one model of one workload, alone on a GPU, as arrays (points,).

    ``load_ms`` is the time to load a batch before it holds its process for ``alone_ms``; ``demand`` is (points,
    resources).
    """

    batch: Ints
    units: Ints
    memory_gib: Floats
    load_ms: Floats
    alone_ms: Floats
    demand: Floats
    terms: Any


@dataclass(frozen=True)
class Points(ABC):
    """Operating points of all workloads on whole GPUs of one fleet entry by one data file, as arrays (points,).

    Attributes
    ----------
    workload, model, batch, units, memory_gib, load_ms
        The indices of workload and model, batch size, units, memory (0 where it is not known), time to load a batch.
    room_ms
        The longest time for which a batch may hold its process.
    rps, part
        The most requests/s that the point carries, and the fraction of the planned rate that they are, at most 1.
    demand
        (points, resources) what a replica adds to what slows its neighbours.
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
    terms: Any = field(repr=False)

    def only(self, rows: Ints) -> "Points":
        """The points with the given indices."""
        arrays = {name: value[rows] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return type(self)(**{**vars(self), **arrays, "terms": type(self.terms)(*(one[rows] for one in self.terms))})

    @abstractmethod
    def hold_ms(self, at: Ints, count: int, others: Floats) -> Floats:
        """For how many ms batches hold their processes on a GPU with ``count`` replicas. ``at`` are indices of points,
        ``others`` (..., resources) the sums of the neighbours' demands.
        """

    @abstractmethod
    def hardship(self) -> Floats:
        """(points, criteria) of two points of one model, one with no larger criteria meets its deadline beside all
        neighbours beside which the other does.
        """


class IgniterPoints(Points):
    """Points by iGniter's model (eqs. 1-11); their demands are L2 utilisation and power (W)."""

    def hold_ms(self, at: Ints, count: int, others: Floats) -> Floats:
        """See ``Points``."""
        own = igniter.Terms(*(column[at] for column in self.terms))
        _, rps = igniter.in_company(self.data.hardware, own, np.array(count), others[..., 0],
                                    others[..., 1] + own.power_w)
        with np.errstate(divide="ignore"):
            return 1000 * own.batch / rps

    def hardship(self) -> Floats:
        """See ``Points``. With D the deadline less the time to answer, A the active and S the scheduling time, the
        criteria are A - D and -(D - S) / A.

        Proof: beside neighbours that leave the clock f/F, a point is feasible when x + A y <= D, where x >= S is its
        scheduling time and y >= 1 its cache factor, both divided by the clock; x and y are the same functions of the
        neighbours for all points of a model. The pairs (x, y) that a point tolerates form a triangle with the corners
        (S, 1), (D - A, 1) and (S, (D - S) / A). Less power, another criterion, means no lower clock.
        """
        terms, deadline_ms = self.terms, self.room_ms - self.terms.feedback_ms
        return np.column_stack([terms.active_ms - deadline_ms, (terms.scheduling_ms - deadline_ms) / terms.active_ms])

    def coefficients(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """The coefficients of a row that states a point's deadline, multiplied by clock / deadline: per neighbour, if
        there are any, per unit of the GPU's L2 utilisation, per unit of the power above the cap as a fraction of the
        cap; and the room that the row leaves.
        """
        hardware, terms, deadline_ms = self.data.hardware, self.terms, self.room_ms - self.terms.feedback_ms
        neighbour_ms = terms.kernels * hardware.scheduling_slope_ms
        sharing_ms = terms.kernels * hardware.extra_delay_ms(2) - neighbour_ms
        per_cache = terms.active_ms * terms.cache_sensitivity / deadline_ms
        lost = -hardware.clock_slope_mhz_per_w * hardware.power_cap_w / hardware.max_clock_mhz
        room = 1 - (terms.scheduling_ms + terms.active_ms) / deadline_ms + per_cache * terms.cache  # not its own
        return (neighbour_ms / deadline_ms, sharing_ms / deadline_ms, per_cache, np.full(len(room), lost), room)


class ColocatedPoints(Points):
    """Points by the co-location model; their demands are to the power of the norm."""

    def hold_ms(self, at: Ints, count: int, others: Floats) -> Floats:
        """See ``Points``."""
        longer = self.terms.slope_ms[at] * np.maximum(others, 0.0) ** (1 / self.data.norm_order)
        return np.asarray(self.terms.solo_ms[at] + longer.sum(axis=-1) - self.load_ms[at])

    def hardship(self) -> Floats:
        """See ``Points``."""
        return self.per_norm()

    def per_norm(self) -> Floats:
        """(points, resources) what a unit of a resource's norm takes of the time that a point has left alone."""
        left_ms = self.room_ms + self.load_ms - self.terms.solo_ms
        return np.asarray(self.terms.slope_ms / np.maximum(left_ms, 1e-12)[:, None])


def interfering(instance: Instance, entry: FleetEntry) -> list[Interfering]:
    """The data files by which replicas share whole GPUs of a fleet entry under interference."""
    files = () if entry.partitioned else instance.sharing_files(entry.gpu)
    return [data for data in files if isinstance(data, Interfering)]


def points_of(instance: Instance, entry: FleetEntry, data: Interfering, edges: Mapping[Base, Sequence[float]]
              ) -> Points | None:
    """The points that no other point dominates; None if there are none. ``edges`` are further ends of levels, in ms."""
    tables = []
    for w, workload in enumerate(instance.workloads):
        mine = [_levels(instance, entry, data, w, number, edges)
                for number, model in enumerate(workload.models) if model in data.models]
        tables += [table for table in mine if len(table.batch)]
    if not tables:
        return None
    first, joined = tables[0], dict[str, Any]()
    for name, value in vars(first).items():
        columns = [getattr(table, name) for table in tables]
        joined[name] = np.concatenate(columns) if isinstance(value, np.ndarray) else value
    joined["terms"] = type(first.terms)(*map(np.concatenate, zip(*(table.terms for table in tables), strict=True)))
    return type(first)(**joined)


def _levels(instance: Instance, entry: FleetEntry, data: Interfering, w: int, number: int,
            edges: Mapping[Base, Sequence[float]]) -> Points:
    """The undominated points of one model of a workload."""
    workload, planned = instance.workloads[w], instance.planned_rps(instance.workloads[w])
    alone, counted = _alone(instance, entry, data, workload.models[number]), instance.objective == THROUGHPUT
    rule, budget_ms = instance.policy.rule_for(workload), instance.budget_ms(workload) * (1 + TOLERANCE)
    whole = workload.max_replicas == 1 and workload.max_share_per_gpu == 1
    with np.errstate(divide="ignore"):
        room_ms = (rule.room_ms(alone.batch, max(planned / (1 + TOLERANCE), SLOW_RPS), alone.load_ms, budget_ms)
                   if whole else budget_ms - alone.load_ms)
    kept, low_ms, high_ms = [], [], []
    for at in np.flatnonzero(alone.alone_ms <= room_ms * (1 + TOLERANCE)).tolist():
        base, first, last = (w, number, int(alone.batch[at]), int(alone.units[at])), alone.alone_ms[at], room_ms[at]
        many = 0 if whole and not counted else min(MOST_LEVELS - 1, int(np.log(last / first) / np.log(RATIO)))
        inner = sorted({*(first * RATIO ** (1 + one) for one in range(many)), *edges.get(base, ())})
        ends = [first, *(one for one in inner if first < one < last), last]
        kept += [at] * (len(ends) - 1)
        low_ms += ends[:-1]
        high_ms += ends[1:]
    rows, low, high = np.array(kept, int), np.array(low_ms), np.maximum(high_ms, low_ms)
    batch, load_ms = alone.batch[rows], alone.load_ms[rows]
    full = instance.policy.latency_budget == FULL_BATCHES  # a longer batch may carry more under this rule
    rps = 1000 * batch / low if full else rule.capacity_rps(batch, 1, low, load_ms + low, budget_ms)
    part = np.minimum(rps / planned, 1.0) if planned else np.ones(len(rows))
    part = np.ones(len(rows)) if whole else np.minimum(part, workload.max_share_per_gpu)
    units, clients = units_of(_unit_share(data)), clients_of(entry, WHOLE)
    most = np.minimum(units // np.maximum(alone.units[rows], 1), min(clients, workload.max_replicas or clients))
    if not counted:
        useful = np.ceil(workload.max_share_per_gpu / np.maximum(part, 1e-9) * (1 - TOLERANCE)).astype(int)
        most = np.minimum(most, np.maximum(useful, max(workload.min_replicas, 1)))
    kind = IgniterPoints if isinstance(data, IgniterProfiles) else ColocatedPoints
    table = kind(data, units, clients, entry.type.memory_gib, np.full(len(rows), w), np.full(len(rows), number), batch,
                 alone.units[rows], alone.memory_gib[rows], load_ms, high, rps, part, alone.demand[rows], most,
                 type(alone.terms)(*(column[rows] for column in alone.terms))).only(np.flatnonzero(part > 0))
    criteria = [table.units, table.memory_gib, *table.demand.T, *table.hardship().T, -table.part]
    return table.only(undominated(np.column_stack([*criteria, -table.rps] if counted else criteria)))


def _alone(instance: Instance, entry: FleetEntry, data: Interfering, model: str) -> Columns:
    """Every batch size and number of units of a model alone on a GPU; without MPS it has all units."""
    share, units = _unit_share(data), units_of(_unit_share(data))
    sizes = np.arange(1, data.max_batch + 1)
    many, batch = (axis.ravel() for axis in np.meshgrid(np.arange(1 if entry.mps else units, units + 1), sizes))
    known = np.array([data.stated[model].memory_gib(size) or 0.0 for size in sizes.tolist()])[batch - 1]
    if isinstance(data, Colocation):
        terms = colocation.solo_terms(data, model, batch, np.asarray(share * many, np.float64))
        return Columns(batch, many, known, terms.overlap_ms, terms.solo_ms - terms.overlap_ms, terms.demand, terms)
    solo = igniter.solo_terms(data, model, batch, np.asarray(share * many, np.float64))
    if instance.policy.rule.random_arrivals:  # smaller batches run too and may demand more
        shape = (len(sizes), -1)
        solo = igniter.Terms(*(column.ravel() for column in igniter.most_demanding(
            igniter.Terms(*(column.reshape(shape) for column in solo)), axis=0)))
    _, rps = igniter.in_company(data.hardware, solo, np.array(1), np.zeros(len(batch)), solo.power_w)
    with np.errstate(divide="ignore"):
        alone_ms = 1000 * batch / rps
    return Columns(batch, many, known, solo.load_ms, alone_ms, np.column_stack([solo.cache, solo.power_w]), solo)


def _unit_share(data: Interfering) -> float:
    """The fraction of a GPU's SMs that one unit is."""
    return data.hardware.unit_share if isinstance(data, IgniterProfiles) else data.unit_share
