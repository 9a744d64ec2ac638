"""Operating points of replicas that share whole GPUs by iGniter's model, and rows by which they keep their deadlines.

A point is a batch size, units of the SMs, and a *level*: the range of times for which a batch may hold its process
beside all neighbours. The longest time of the level is the point's deadline, which rows keep; the shortest time tells
the most requests/s that the point carries. So rows are exact where a replica must carry its workload's whole rate (one
level), and a relaxation elsewhere, which is refined where a solution claims more than its replicas carry (``edges``).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from provision.formulations.assignment.description import Description
from provision.formulations.assignment.patterns import clients_of
from provision.formulations.pricing.listing import undominated
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance import igniter
from provision.models.performance.igniter import IgniterProfiles
from provision.models.performance.sm_shares import units_of
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.workload import FleetEntry
from provision.models.traffic.full_batches import NAME as FULL_BATCHES

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
        (points, 2) what a replica adds to what slows its neighbours: L2 utilisation and power (W).
    most
        The most replicas at this point that are of use on one GPU.
    terms
        The arrays of the performance model, in the order of the points.
    """

    data: IgniterProfiles
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
    terms: igniter.Terms

    def only(self, rows: Ints) -> "Points":
        """The points with the given indices."""
        arrays: dict[str, Any] = {name: value[rows] for name, value in self._asdict().items()
                                  if isinstance(value, np.ndarray)}
        return self._replace(**arrays, terms=igniter.Terms(*(column[rows] for column in self.terms)))

    def base(self, point: int) -> Base:
        """What a point has in common with the points at its other levels."""
        return (int(self.workload[point]), int(self.model[point]), int(self.batch[point]), int(self.units[point]))

    def hold_ms(self, at: Ints, count: int, others: Floats) -> Floats:
        """For how many ms batches hold their processes on a GPU with ``count`` replicas; infinite if it has no clock
        left. ``at`` are indices of points, ``others`` (..., 2) the sums of the neighbours' demands.
        """
        terms = igniter.Terms(*(column[at] for column in self.terms))
        _, rps = igniter.in_company(self.data.hardware, terms, np.array(count), others[..., 0],
                                    others[..., 1] + terms.power_w)
        with np.errstate(divide="ignore"):
            return np.asarray(1000 * self.batch[at] / rps)

    def criteria(self) -> Floats:
        """(points, criteria) of two points of one model, one with no larger criteria keeps its deadline beside all
        neighbours beside which the other does, and burdens them no more.

        With D the deadline less the time to answer, A the active and S the scheduling time, they
        are A - D and -(D - S) / A. Proof: beside neighbours that leave the clock f/F, a point is feasible when x + A y
        <= D, where x >= S is its scheduling time and y >= 1 its cache factor, both divided by the clock; x and y are
        the same functions of the neighbours for all points of a model. The pairs (x, y) that a point tolerates form a
        triangle with the corners (S, 1), (D - A, 1) and (S, (D - S) / A). Less power, another criterion, means no lower
        clock.
        """
        terms, deadline_ms = self.terms, self.room_ms - self.terms.feedback_ms
        return np.column_stack([self.demand, terms.active_ms - deadline_ms,
                                (terms.scheduling_ms - deadline_ms) / terms.active_ms])


def points_of(instance: Instance, entry: FleetEntry, data: IgniterProfiles, edges: Mapping[Base, set[float]]
              ) -> Points | None:
    """The points that no other point dominates; None if there are none. ``edges`` are further ends of levels, in ms."""
    tables = [_levels(instance, entry, data, w, number, edges) for w, workload in enumerate(instance.workloads)
              for number, model in enumerate(workload.models) if model in data.models]
    if not any(len(table.batch) for table in tables):
        return None
    joined: dict[str, Any] = {name: np.concatenate([getattr(table, name) for table in tables])
                              for name, value in tables[0]._asdict().items() if isinstance(value, np.ndarray)}
    terms = map(np.concatenate, zip(*(table.terms for table in tables), strict=True))
    return tables[0]._replace(**joined, terms=igniter.Terms(*terms))


def _levels(instance: Instance, entry: FleetEntry, data: IgniterProfiles, w: int, number: int,
            edges: Mapping[Base, set[float]]) -> Points:
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
        ends = [first, *sorted(one for one in edges.get(alone.base(at), ()) if first < one < last), last]
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


def _alone(instance: Instance, entry: FleetEntry, data: IgniterProfiles, w: int, number: int) -> Points:
    """Every batch size and number of units of a model; ``room_ms`` is the time for which a batch holds its process
    alone on a GPU.
    """
    share = data.hardware.unit_share
    model, limit, sizes = instance.workloads[w].models[number], units_of(share), np.arange(1, data.max_batch + 1)
    units, batch = (axis.ravel() for axis in np.meshgrid(np.arange(1, limit + 1), sizes))
    known = np.array([data.stated[model].memory_gib(size) or 0.0 for size in sizes.tolist()])[batch - 1]
    terms = igniter.solo_terms(data, model, batch, np.asarray(share * units, np.float64))
    if instance.policy.rule.random_arrivals:  # smaller batches may demand more
        terms = igniter.Terms(*(column.ravel() for column in igniter.most_demanding(
            igniter.Terms(*(column.reshape(len(sizes), -1) for column in terms)), axis=0)))
    demand = np.column_stack([terms.cache, terms.power_w])
    nothing, one = np.zeros(len(batch)), np.ones(len(batch), int)
    table = Points(data, limit, clients_of(entry, WHOLE), entry.type.memory_gib, w * one, number * one, batch, units,
                   known, terms.load_ms, nothing, nothing, nothing, demand, one, terms)
    return table._replace(room_ms=table.hold_ms(np.arange(len(batch)), 1, np.zeros((1, 2))))


def keep_deadlines(program: Description, name: str, points: Points, x: Sequence[int], taken: Sequence[int]) -> None:
    """Add the rows of the replicas on one GPU (eqs. 1-11), which are exact: deadlines multiplied by clock / deadline.

    ``name`` is a name for the GPU. ``x`` and ``taken`` are for each point the variable of its number of replicas, and
    the one that is 1 if there are any. Levels of what slows replicas (neighbours, L2 utilisation, power above the cap)
    have only lower rows: a level above the true amount only makes other rows harder to keep.
    """
    hardware, terms = points.data.hardware, points.terms
    deadline_ms = points.room_ms - terms.feedback_ms
    others = program.level(f"others_{name}", [(1.0, one) for one in x], 1, points.clients)
    shared = program.whole(f"shared_{name}", 1)  # whether a replica has neighbours
    program.at_most([(1.0, others), (-(points.clients - 1), shared)], 0)
    program.at_most([(2.0, shared), *((-1.0, one) for one in x)], 0)
    cache = program.level(f"cache_{name}", list(zip(terms.cache.tolist(), x, strict=True)), 0,
                   _fullest(points, terms.cache))
    power, left = terms.power_w / hardware.power_cap_w, 1 - hardware.idle_power_w / hardware.power_cap_w
    excess = program.level(f"excess_{name}", list(zip(power.tolist(), x, strict=True)), left,
                    max(_fullest(points, power) - left, 0.0))
    per_neighbour = terms.kernels * hardware.scheduling_slope_ms / deadline_ms
    per_sharing = terms.kernels * hardware.extra_delay_ms(2) / deadline_ms - per_neighbour
    per_cache = terms.active_ms * terms.cache_sensitivity / deadline_ms
    per_excess = -hardware.clock_slope_mhz_per_w * hardware.power_cap_w / hardware.max_clock_mhz
    room = 1 - (terms.scheduling_ms + terms.active_ms) / deadline_ms + per_cache * terms.cache  # not its own
    for at, when in enumerate(taken):
        program.at_most([(per_neighbour[at], others), (per_sharing[at], shared), (per_cache[at], cache),
                         (per_excess, excess)], room[at], when)


def _fullest(points: Points, demand: Floats) -> float:
    """What no sum of a demand within the units of a GPU exceeds."""
    return float((demand / points.units).max(initial=0.0)) * points.limit
