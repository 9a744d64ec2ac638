"""Tables for planning under interference: classes of equal demands and their undominated operating points.

The points of a class are those of all its models (the variants of its workloads). A replica keeps its SLO and rate if
and only if a batch takes no more time (see ``laws``) than its *room*: the shorter of its latency budget and the time
per batch at its rate. Of two points with equal units and room, the point that demands less of both shared resources is
better for all neighbours. Where neither does, points are ordered by their *burden*: an estimate of how much a point
slows its neighbours.

Plans made from these tables have one replica per workload, as in the paper, and SM shares in whole units. Only a
workload that one GPU cannot serve is split, into the least number of equal parts.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.mps.laws import Grid, law_of
from provision.formulations.pricing.oracle import Running
from provision.models.base.arrays import Bools, Floats, Ints, Record, Records
from provision.models.base.clock import NEVER, Deadline
from provision.models.base.compiled import compiled
from provision.models.base.tolerances import DUST, LOOSE
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.shared_gpus import share_of_units
from provision.models.traffic.rule import LatencyRule

POINTS = ("base_ms", "kernels", "cache_ms", "power_ms", "cache", "power_w")
"""The columns that the points of a class take from the Grid of their model."""
COSTS = ("power_w", "cache", "base_ms", "kernels", "cache_ms", "power_ms")
"""The columns by which points are compared: one that dominates another has no more in any of them, no more units,
and no less room.
"""

ANY = 0
"""Stands for any number of units."""

Demand = tuple[tuple[str, ...], float, float]
"""The demand on a replica: the models that may run, the latency budget in ms, the rate in requests/s."""
Columns = dict[str, NDArray[Any]]
"""Arrays over operating points, by name."""


@compiled
def unbeaten(costs: Floats) -> Bools:
    """(points,) flags of the rows of ``costs`` (points, criteria) that are kept.

    A row is dropped if an earlier kept row is no higher in any criterion.
    """
    kept = np.empty(len(costs), np.int64)
    keep = np.zeros(len(costs), np.bool_)
    many = 0
    for at in range(len(costs)):
        beaten = False
        for other in kept[:many]:
            beaten = True
            for criterion in range(costs.shape[1]):
                if costs[other, criterion] > costs[at, criterion]:
                    beaten = False
                    break
            if beaten:
                break
        if not beaten:
            keep[at] = True
            kept[many] = at
            many += 1
    return keep


POINT = np.dtype([
    ("model", np.int64),          # an index into the models of the class
    ("units", np.int64),
    ("batch", np.int64),
    *((name, np.float64) for name in POINTS),
    ("room_ms", np.float64),      # for plans
    ("loose_ms", np.float64),     # for bounds
    ("by_power", np.int64),       # lists the points of each class by power
    ("least_cache", np.float64),  # the least cache demand of the points that ``by_power`` lists from here on
])
"""An operating point of a class."""


class PointTables(NamedTuple):
    """The operating points of all classes on one GPU type. Each class has its points together, by units and then by
    burden.

    ``at`` (points,) are records POINT. ``first`` is (classes, limit + 2): the first point of a class with at least that
    many units. ``gpu`` is one record GPU (see ``laws``). The GPU has ``limit`` units, and holds at most ``most``
    replicas.
    """

    first: Ints
    at: Records
    gpu: Records
    limit: int
    most: int


def tables_of(data: PerformanceFile, rule: LatencyRule, demands: Sequence[Demand], fixed_units: Sequence[int] = (),
              until: Deadline = NEVER) -> PointTables:
    """The tables of some demands on whole GPUs of a type, in the order of the demands.

    A demand that the GPU type cannot serve has no points. ``rule`` is the latency rule that the points keep. The last
    of the demands may have fixed numbers of units: ``fixed_units``. Raises TimeIsUpError at the deadline ``until``.
    """
    units = (*[ANY] * (len(demands) - len(fixed_units)), *fixed_units)
    grids, gpu, limit, most = law_of(data, {model for models, *_ in demands for model in models}, rule.random_arrivals)
    demand, points = _undominated(grids, rule, demands, units, until)
    steps, ends = limit + 2, np.searchsorted(demand, np.arange(len(demands) + 1))
    by_units = np.bincount(demand * steps + points.units + 1, minlength=len(demands) * steps).reshape(-1, steps)
    points.by_power = np.lexsort([points.units, points.cache, points.power_w, demand])
    points.least_cache = np.concatenate([np.minimum.accumulate(points.cache[points.by_power[start:end]][::-1])[::-1]
                                         for start, end in pairwise(ends)])
    return PointTables(ends[:-1, None] + np.cumsum(by_units, axis=1), points, gpu, limit, most)


def records(kind: Any, *parts: Mapping[str, NDArray[Any]]) -> Records:
    """The columns of several sets of points, joined end to end, as a structured array with the fields of ``kind``.

    Fields that the points lack are left for the caller to fill in.
    """
    found = np.recarray(sum(len(one[kind.names[0]]) for one in parts), kind)
    for name in kind.names:
        if parts and name in parts[0]:
            found[name] = np.concatenate([one[name] for one in parts])
    return found


def least_units(tables: PointTables) -> Ints:
    """(classes,) the least units of each class; more than the GPU has if it cannot serve the class."""
    return (tables.first == tables.first[:, :1]).sum(axis=1) - 1


def running_at(gpu: Records, at: Record) -> Running:
    """How a replica runs at an operating point."""
    return Running(int(at.model), int(at.batch), 1, share_of_units(float(gpu[0].unit_share), int(at.units)))


def _undominated(grids: Mapping[str, Grid], rule: LatencyRule, demands: Sequence[Demand], units: Sequence[int],
                 until: Deadline) -> tuple[Ints, Records]:
    """The undominated points of all demands that are feasible alone: (points,) the demand of each point, ascending, and
    the points as records POINT. Each demand has its points by units, then by burden; only those with its ``units``
    unless it may have ANY.

    A point dominates another if it has no more units, power, cache demand, time alone and slowdown, and no less room.
    """
    alike: dict[tuple[str, ...], list[int]] = {}
    for at, (models, *_) in enumerate(demands):
        alike.setdefault(models, []).append(at)
    found = [_of_models(grids, rule, models, np.array(members), [demands[at] for at in members],
                        [units[at] for at in members], until)
             for models, members in alike.items() if grids.keys() & models]
    demand = np.concatenate([np.zeros(0, int), *(one["demand"] for one in found)])
    order = np.argsort(demand, kind="stable")
    return demand[order], records(POINT, *found)[order]


def _of_models(grids: Mapping[str, Grid], rule: LatencyRule, models: Sequence[str], members: Ints,
               demands: Sequence[Demand], units: Sequence[int], until: Deadline) -> Columns:
    """The undominated points of demands with the same models, as arrays by name; ``members`` are the demands' indices.

    The models' points are sorted once. The rooms of all demands are computed at once, for every model and batch size
    (the points' ``size``).
    """
    known = [(number, grids[model]) for number, model in enumerate(models) if model in grids]
    rooms = [_rooms_ms(rule, grid, demands) for _, grid in known]
    room_ms, loose_ms = (np.concatenate(several, axis=1) for several in zip(*rooms, strict=True))
    starts = np.cumsum([0, *(one.shape[1] for one, _ in rooms)])
    parts = [every_point(number, grid, start) for (number, grid), start in zip(known, starts, strict=False)]
    flat = {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}
    order = np.lexsort([flat["base_ms"], flat["burden"], flat["units"]])
    flat = {name: column[order] for name, column in flat.items()}
    size, alone_ms = flat.pop("size"), flat.pop("alone_ms")
    costs = np.stack([flat[name] for name in COSTS], axis=1)
    kept = []
    for row, only in zip(loose_ms, units, strict=True):
        until.check()
        loose = row[size]
        able = np.flatnonzero((alone_ms <= loose) & ((flat["units"] == only) | (only == ANY)))
        kept.append(able[unbeaten(np.column_stack([costs[able], -loose[able]]))])
    point, demand = np.concatenate(kept), np.repeat(np.arange(len(kept)), list(map(len, kept)))
    columns = {"demand": members[demand], "room_ms": room_ms[demand, size[point]],
               "loose_ms": loose_ms[demand, size[point]]}
    return columns | {name: flat[name][point] for name in ("model", "units", "batch", *POINTS)}


def every_point(number: int, grid: Grid, start: int) -> Columns:
    """All points of one model, by units, then by batch; ``number`` is its index among the models of the class, and
    ``start`` the index of its first batch size (``size``).
    """
    units, size = np.indices(grid.batch.shape)
    columns = {"model": np.full_like(size, number), "units": units + 1, "size": start + size, "batch": size + 1,
               **{name: getattr(grid, name) for name in (*POINTS, "burden", "alone_ms")}}
    return {name: column.ravel() for name, column in columns.items()}


def _rooms_ms(rule: LatencyRule, grid: Grid, demands: Sequence[Demand]) -> tuple[Floats, Floats]:
    """(demands, batch sizes) the rooms of plans, and the looser rooms of bounds, in ms."""
    batch, load_ms, after_ms = grid.batch[:1], grid.load_ms[:1], grid.after_ms[:1]
    budget_ms, rate_rps = np.array([demand[1:] for demand in demands]).T[:, :, None]
    strict, loose = (rule.room_ms(batch, rate_rps / slack, load_ms, budget_ms * slack) - after_ms
                     for slack in (1 + DUST, 1 + LOOSE))
    return strict, loose
