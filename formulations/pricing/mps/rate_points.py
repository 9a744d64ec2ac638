"""Operating points for patterns that carry rates, on whole GPUs that replicas share under interference.

The rate that a replica carries beside its neighbours does not depend on the rates that are routed to any of them. It
depends only on the replica's operating point and on the number, cache demand and power of all replicas. So a pattern is
a vector of rates, and a workload can be split at any rates, not only at those of a grid.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import ROUNDED, busy_ms, clock_at
from provision.formulations.pricing.mps.laws import GpuLaw, law_of
from provision.formulations.pricing.mps.tables import POINTS, Columns, PointTables, every_point
from provision.formulations.pricing.oracle import Running
from provision.formulations.search.problem import Group
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled, inner
from provision.models.base.tolerances import LOOSE, MISSING
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.sm_shares import share_of_units, units_of
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.traffic.rule import LatencyRule

MOST_RPS = 1e9
"""The requests/s of a replica that count where the objective is throughput: more than any replica carries."""


class RatePoints(NamedTuple):
    """Operating points on one GPU type, sorted by group, model, units and batch.

    Arrays over points: ``group``, ``model`` (an index into the models of the group), ``units`` and ``batch``;
    ``base_ms`` to ``power_w`` as in ``laws``; ``room_ms``, the longest time on the GPU that keeps the SLO;
    ``after_ms``, how much longer than that time a batch holds its replica; and ``line``, a row of ``hold_ms`` and
    ``each_ms``. These have the hold times of the bends of a latency rule, and the time per request at each (``Bends``),
    infinite beyond the last bend.

    Arrays over groups: ``most_rps`` is the rate of one replica that counts, ``least_rps`` what a replica must carry,
    ``total_rps`` the rate of all replicas of a group in a pattern that counts, and ``copies`` the most replicas of a
    group in a pattern.

    ``gpu`` has the scalars of the GPU type.
    """

    group: Ints
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
    after_ms: Floats
    line: Ints
    hold_ms: Floats
    each_ms: Floats
    most_rps: Floats
    least_rps: Floats
    total_rps: Floats
    copies: Ints
    gpu: GpuLaw
    limit: int
    most: int


OF_POINTS = RatePoints._fields[: RatePoints._fields.index("hold_ms")]
"""The arrays over points."""


def rate_points(instance: Instance, data: PerformanceFile, groups: Sequence[Group], clients: int,
                rule: LatencyRule | None = None) -> RatePoints:
    """The operating points of groups that are feasible alone, within the limits of bounds.

    Parameters
    ----------
    instance, data
        The problem, and the data that describes interference.
    groups
        The problem's groups.
    clients
        The most replicas on one GPU.
    rule
        The latency rule of all groups; by default that of the first workload of each group.
    """
    throughput = objective_of(instance).counts_capacity
    grids, gpu = law_of(data, {model for group in groups for model in group.models},
                        instance.policy.rule.random_arrivals)
    columns: list[Columns] = []
    lines: list[tuple[Floats, Floats]] = []
    for at, group in enumerate(groups):
        budget_ms = group.slo_ms * instance.policy.part_of_slo * (1 + LOOSE)
        kept = rule or instance.policy.rule_for(instance.workloads[group.members[0]])
        for number, name in enumerate(group.models):
            if name not in grids:
                continue
            grid = grids[name]
            batch = np.arange(1, grid.alone_ms.shape[1] + 1)
            load_ms, after_ms = (np.broadcast_to(of_batch, grid.alone_ms.shape)[0]
                                 for of_batch in (grid.load_ms, grid.after_ms))
            bends = [kept.bends(int(size), float(load), budget_ms) for size, load in zip(batch, load_ms, strict=True)]
            room_ms = np.array([one.hold_ms[-1] if len(one.hold_ms) else -np.inf for one in bends])
            if group.most == 1 and throughput:  # its replica carries the whole rate
                room_ms = np.minimum(room_ms, kept.room_ms(batch, np.float64(group.rate_rps), load_ms, budget_ms)
                                     * (1 + LOOSE))
            points = every_point(number, grid, len(lines))
            points |= {"group": np.full(len(points["batch"]), at), "line": points["size"],
                       "room_ms": (room_ms - after_ms)[points["batch"] - 1], "after_ms": after_ms[points["batch"] - 1]}
            columns.append({name: values[points["alone_ms"] <= points["room_ms"]] for name, values in points.items()})
            lines += [(one.hold_ms, 1000 / one.rps) for one in bends]
    whole = ("group", "model", "units", "batch", "line")
    merged: dict[str, Any] = {name: np.concatenate([np.zeros(0, int if name in whole else float),
                                                    *(one[name] for one in columns)])
                              for name in (*whole, *POINTS, "room_ms", "after_ms")}
    limit = units_of(gpu.unit_share)
    asked = [group.asked_rps for group in groups]
    most_rps = np.full(len(groups), MOST_RPS) if throughput else np.minimum(asked, [group.cap_rps for group in groups])
    members = np.array([len(group.members) for group in groups])
    most = min(limit, gpu_type(data.gpu).slice_mps_clients(WHOLE), clients)
    return RatePoints(
        **merged, **_lines(lines), most_rps=most_rps * (1 + LOOSE), total_rps=most_rps * members * (1 + LOOSE),
        least_rps=np.array([rate * (1 - MISSING) if group.most == 1 else 0.0
                            for rate, group in zip(asked, groups, strict=True)]),
        copies=np.minimum([group.most * len(group.members) for group in groups], most).astype(int),
        gpu=gpu, limit=limit, most=most,
    )


def running_at(points: RatePoints | PointTables, at: int) -> Running:
    """How a replica runs at an operating point, given by its index."""
    share = share_of_units(points.gpu.unit_share, int(points.units[at]))
    return Running(int(points.model[at]), int(points.batch[at]), 1, share)


def _lines(lines: Sequence[tuple[Floats, Floats]]) -> dict[str, Any]:
    """The bends of all lines as two arrays (lines, bends), infinite beyond the last bend of each line."""
    width = max((len(hold_ms) for hold_ms, _ in lines), default=0) + 1
    filled = np.full((2, max(len(lines), 1), width), np.inf)
    for at, (hold_ms, each_ms) in enumerate(lines):
        filled[0, at, : len(hold_ms)], filled[1, at, : len(hold_ms)] = hold_ms, each_ms
    return {"hold_ms": filled[0], "each_ms": filled[1]}


@inner
def gpu_ms(points: RatePoints, at: int, count: int, cache: float, power_w: float, rounded: float) -> float:
    """The time of a batch on the GPU, in ms, among ``count`` replicas with the total demands ``cache`` and ``power_w``.

    It is rounded as in ``busy_ms``, and infinite if no clock remains.
    """
    others, beside_w = max(cache - points.cache[at], 0.0), max(power_w - points.power_w[at], 0.0)
    clock = clock_at(points, beside_w + points.power_w[at])
    return busy_ms(points, at, count, others, beside_w, rounded) / clock if clock > 0 else np.inf


@inner
def carried_rps(points: RatePoints, at: int, busy: float) -> float:
    """The requests/s of a point whose batches take ``busy`` ms on the GPU; 0 if that violates its SLO."""
    if busy > points.room_ms[at]:
        return 0.0
    line, hold = points.line[at], busy + points.after_ms[at]
    bends, each = points.hold_ms[line], points.each_ms[line]
    bend = np.searchsorted(bends, hold)
    if bends[bend] == np.inf:
        bend -= 1
    if bend == 0:
        return 1000 * bends[0] / (each[0] * hold)
    part = min((hold - bends[bend - 1]) / max(bends[bend] - bends[bend - 1], 1e-300), 1.0)
    return 1000 / (each[bend - 1] + part * (each[bend] - each[bend - 1]))


@compiled
def together_rps(points: RatePoints, members: Ints) -> Floats:
    """(patterns, places) the requests/s of each replica that count for its group, by the looser limits of bounds.

    ``members`` (patterns, places) are the indices of operating points, negative at empty places.
    """
    found = np.zeros(members.shape)
    for row in range(len(members)):
        count, cache, power_w = 0, 0.0, 0.0
        for at in members[row]:
            if at >= 0:
                count, cache, power_w = count + 1, cache + points.cache[at], power_w + points.power_w[at]
        for place in range(members.shape[1]):
            at = members[row, place]
            if at >= 0:
                carried = carried_rps(points, at, gpu_ms(points, at, count, cache, power_w, -ROUNDED))
                found[row, place] = min(carried, points.most_rps[points.group[at]])
    return found
