"""Tables for planning under interference: classes of equal demands and their undominated operating points.

The points of a class are those of all its models (the variants of its workloads). A replica keeps its SLO and rate if
and only if a batch takes no more time (see ``laws``) than its *room*: the shorter of its latency budget and the time
per batch at its rate. Of two points with equal units and room, the point that demands less of both shared resources is
better for all neighbours. Where neither does, points are ordered by their *burden*: an estimate of how much a point
slows its neighbours.

Plans made from these tables have one replica per workload, as in the paper, and SM shares in whole units. Only a
workload that one GPU cannot serve is split, into the least number of equal parts.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.mps.laws import GpuLaw, Grid, law_of
from provision.formulations.pricing.mps.unbeaten import unbeaten
from provision.models.base.arrays import Floats, Ints
from provision.models.base.identity import Identity
from provision.models.base.tolerances import DUST, LOOSE
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.sm_shares import units_of
from provision.models.traffic.rule import LatencyRule

POINTS = ("base_ms", "kernels", "cache_ms", "power_ms", "cache", "power_w", "burden")
"""The columns that the points of a class take from the Grid of their model."""


Demand = tuple[tuple[str, ...], float, float]
"""The demand on a replica: the models that may run, the latency budget in ms, the rate in requests/s."""
Columns = dict[str, NDArray[Any]]
"""Arrays over operating points, by name."""


class PointTables(NamedTuple):
    """The operating points of all classes on one GPU type. Each class has its points together, by units and then by
    burden.

    Arrays over points: ``model`` (an index into the models of the class), ``units`` and ``batch``; ``base_ms`` to
    ``power_w`` as in ``laws``; ``room_ms`` for plans and ``loose_ms`` for bounds. ``by_power`` lists the points of each
    class by power, and ``least_cache`` is the least cache demand of the points from there on. ``first`` is (classes,
    limit + 2): the first point of a class with at least that many units. ``gpu`` has the scalars of the GPU type.
    """

    first: Ints
    model: Ints
    units: Ints
    batch: Ints
    base_ms: Floats
    kernels: Floats
    cache_ms: Floats
    power_ms: Floats
    cache: Floats
    power_w: Floats
    room_ms: Floats
    loose_ms: Floats
    by_power: Ints
    least_cache: Floats
    gpu: GpuLaw
    limit: int
    most: int


def models_apart(demands: Iterable[Demand]) -> Ints:
    """(demands,) numbers that are equal for demands of equal models."""
    numbers = {models: number for number, models in enumerate(sorted({demand[0] for demand in demands}))}
    return np.array([numbers[demand[0]] for demand in demands])


def tables_of(data: PerformanceFile, rule: LatencyRule, demands: Sequence[Demand]) -> PointTables:
    """The tables of some demands on whole GPUs of a type, in the order of the demands; read-only.

    A demand that the GPU type cannot serve has no points. ``rule`` is the latency rule that the points keep. The last
    four tables are cached.
    """
    return _tables(Identity(data), Identity(rule), tuple(demands))


@lru_cache(maxsize=4)
def _tables(file: Identity[PerformanceFile], of: Identity[LatencyRule], demands: Sequence[Demand]) -> PointTables:
    data, rule = file.one, of.one
    law = law_of(data, {model for models, *_ in demands for model in models}, rule.random_arrivals)
    points = [_points(law.grids, rule, *demand) for demand in demands]
    offsets = np.cumsum([0] + [len(one["units"]) for one in points])
    by_power = [_order(one, "power_w", "cache", "units") for one in points]
    limit = units_of(law.gpu.unit_share)
    steps = np.arange(limit + 2)
    return PointTables(
        first=np.array([start + np.searchsorted(one["units"], steps)
                        for start, one in zip(offsets, points, strict=False)]),
        by_power=np.concatenate([start + order for start, order in zip(offsets, by_power, strict=False)]),
        least_cache=np.concatenate([np.minimum.accumulate(one["cache"][order[::-1]])[::-1]
                                    for one, order in zip(points, by_power, strict=True)]),
        **_merged(points),
        gpu=law.gpu,
        limit=limit,
        most=min(limit, gpu_type(data.gpu).slice_mps_clients(WHOLE)),
    )


def least_units(tables: PointTables) -> Ints:
    """(classes,) the least units of each class; more than the GPU has if it cannot serve the class."""
    return (tables.first == tables.first[:, :1]).sum(axis=1) - 1


def _order(points: Columns, *names: str) -> Ints:
    """(points,) indices that sort the points of a class by the named columns; the first name counts most."""
    return np.lexsort([points[name] for name in reversed(names)])


def _merged(parts: Sequence[Columns]) -> Columns:
    """The columns of several sets of points, joined end to end."""
    return {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}


def _points(
    grids: Mapping[str, Grid], rule: LatencyRule, models: Sequence[str], budget_ms: float, rate_rps: float
) -> Columns:
    """The undominated points of one demand that are feasible alone, as arrays by name.

    A point dominates another if it has no more units, power, cache demand, time alone and slowdown, and no less room.
    """
    known = [(number, grids[model]) for number, model in enumerate(models) if model in grids]
    nothing = [_possible(0, next(iter(grids.values())), rule, 0.0, 0.0)]
    flat = _merged([_possible(*one, rule, budget_ms, rate_rps) for one in known] or nothing)
    order = _order(flat, "units", "burden", "base_ms")
    flat = {name: column[order] for name, column in flat.items() if name != "burden"}
    costs = [flat[name] for name in ("power_w", "cache", "base_ms", "kernels", "cache_ms", "power_ms")]
    keep = unbeaten(np.stack([*costs, -flat["loose_ms"]], axis=1))
    return {name: column[keep] for name, column in flat.items()}


def _possible(number: int, grid: Grid, rule: LatencyRule, budget_ms: float, rate_rps: float) -> Columns:
    """The points at which one model is feasible alone; ``number`` is its index among the models of the class."""
    batch, load_ms, after_ms = grid.batch[:1], grid.load_ms[:1], grid.after_ms[:1]
    room, loose = (
        np.broadcast_to(rule.room_ms(batch, rate_rps / slack, load_ms, budget_ms * slack) - after_ms, grid.batch.shape)
        for slack in (1 + DUST, 1 + LOOSE)
    )
    possible = grid.alone_ms <= loose
    units = np.broadcast_to(np.arange(1, len(possible) + 1)[:, None], possible.shape)
    columns = {"model": np.full(possible.shape, number), "units": units, "batch": grid.batch.astype(int),
               "room_ms": room, "loose_ms": loose}
    columns |= {name: value for name, value in grid._asdict().items() if name in POINTS}
    return {name: column[possible] for name, column in columns.items()}
