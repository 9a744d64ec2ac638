"""Operating points for patterns that carry rates, on whole GPUs that replicas share under interference.

The rate that a replica carries beside its neighbours does not depend on the rates that are routed to any of them. It
depends only on the replica's operating point and on the number, cache demand and power of all replicas. So a pattern is
a vector of rates, and a workload can be split at any rates, not only at those of a grid.

In a node of the search (``rate_search``), operating points are offers: each has the value of the rate that it carries
beside the least demands of the node.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import ROUNDED, busy_ms, clock_at
from provision.formulations.pricing.mps.laws import GpuLaw, law_of
from provision.formulations.pricing.mps.nodes import SLIGHT, Node
from provision.formulations.pricing.mps.tables import PointTables
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
TAKEN = ("base_ms", "kernels", "cache_ms", "power_ms", "cache", "power_w")
"""The columns that points take from the Grid of their model."""
CORNERS = 4
"""The number of corners of a node: least and most cache demand, each with least and most power."""
CHORD = 1e-6
"""The fraction by which falls of rates are reduced, so that rounding errors do not matter."""
CEILING = 1e-6
"""This is added to a value before it is rounded up to a whole number, so that rounding errors cannot lower it."""


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

    ``straight`` says that the time per request is linear in cache demand. ``gpu`` has the scalars of the GPU type.
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
    straight: bool
    gpu: GpuLaw
    limit: int
    most: int


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
    random_arrivals = instance.policy.rule.random_arrivals
    law = law_of(data, {model for group in groups for model in group.models}, random_arrivals)
    columns: list[dict[str, Any]] = []
    lines: list[tuple[Floats, Floats]] = []
    for at, group in enumerate(groups):
        budget_ms = group.slo_ms * instance.policy.part_of_slo * (1 + LOOSE)
        kept = rule or instance.policy.rule_for(instance.workloads[group.members[0]])
        for number, name in enumerate(group.models):
            if name not in law.grids or name not in data.models:
                continue
            grid, shape = law.grids[name], law.grids[name].alone_ms.shape
            first = len(lines)
            load_ms = np.broadcast_to(grid.load_ms, shape)[0]
            for batch in range(shape[1]):
                bends = kept.bends(batch + 1, float(load_ms[batch]), budget_ms)
                lines.append((bends.hold_ms, 1000 / bends.rps))
            room_ms = np.array([hold_ms[-1] if len(hold_ms) else -np.inf for hold_ms, _ in lines[first:]])
            if group.most == 1 and objective_of(instance).counts_capacity:  # its replica carries the whole rate
                room_ms = np.minimum(room_ms, kept.room_ms(np.arange(1, shape[1] + 1), np.float64(group.rate_rps),
                                                           load_ms, budget_ms) * (1 + LOOSE))
            spread = {name: np.broadcast_to(getattr(grid, name), shape) for name in (*TAKEN, "alone_ms")}
            spread |= {"after_ms": np.broadcast_to(grid.after_ms, shape),
                       "room_ms": np.broadcast_to(room_ms - grid.after_ms, shape),
                       "group": np.full(shape, at), "model": np.full(shape, number),
                       "units": np.broadcast_to(np.arange(1, shape[0] + 1)[:, None], shape),
                       "batch": np.broadcast_to(np.arange(1, shape[1] + 1), shape),
                       "line": np.broadcast_to(first + np.arange(shape[1]), shape)}
            holds = spread["alone_ms"] <= spread["room_ms"]
            columns.append({name: value[holds] for name, value in spread.items()})
    names = ("group", "model", "units", "batch", "line", *TAKEN, "room_ms", "after_ms")
    whole = ("group", "model", "units", "batch", "line")
    merged: dict[str, Any] = {name: np.concatenate([one[name] for one in columns] or [np.zeros(0)]
                                   ).astype(int if name in whole else float) for name in names}
    limit = units_of(law.gpu.unit_share)
    asked = [group.asked_rps for group in groups]
    most_rps = np.minimum(asked, [group.cap_rps for group in groups])
    if objective_of(instance).counts_capacity:
        most_rps = np.full(len(groups), MOST_RPS)
    members = np.array([len(group.members) for group in groups])
    most = min(limit, gpu_type(data.gpu).slice_mps_clients(WHOLE), clients)
    return RatePoints(
        **merged, **_lines(lines), most_rps=most_rps * (1 + LOOSE), total_rps=most_rps * members * (1 + LOOSE),
        least_rps=np.array([rate * (1 - MISSING) if group.most == 1 else 0.0
                            for rate, group in zip(asked, groups, strict=True)]),
        copies=np.minimum([group.most * len(group.members) for group in groups], most).astype(int),
        straight=law.gpu.root == 1 and all(len(hold_ms) <= 1 for hold_ms, _ in lines),
        gpu=law.gpu, limit=limit, most=most,
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


class Prices(NamedTuple):
    """Values in whole-number units; all but ``beyond`` are (groups,).

    ``per_rps`` is the value of a request/s that counts, up to ``cap_rps`` of all replicas of a group together. Further
    requests/s have the value ``beyond``, which is not higher. ``bonus`` is the value of a replica itself, negative if
    it costs. Only ``counted`` replicas of a group have a positive bonus.
    """

    per_rps: Floats
    bonus: Floats
    cap_rps: Floats
    beyond: float
    counted: Ints


@inner
def worth_of_rps(prices: Prices, group: int, rps: float) -> float:
    """The value of the requests/s of a group's replicas."""
    cap_rps = prices.cap_rps[group]
    return float(prices.per_rps[group] * min(rps, cap_rps) + prices.beyond * max(rps - cap_rps, 0.0))


@inner
def beyond_cap(prices: Prices, group: int, value: int) -> float:
    """The value of the requests/s of one replica with a given value if all of them had the value ``beyond``."""
    counted, most = value - prices.bonus[group], prices.per_rps[group] * prices.cap_rps[group]
    if counted <= most:
        return float(counted * prices.beyond / prices.per_rps[group])
    return float(prices.beyond * prices.cap_rps[group] + counted - most)


@inner
def offers_in(points: RatePoints, prices: Prices, alive: Ints, node: Node) -> tuple[Ints, Ints, Floats]:
    """The undominated points in a node, their values rounded up, and how fast these values fall.

    A point dominates another point of its group if it has no more units, cache demand and power, and carries no less
    anywhere in the node. A point is compared with points of equal units, and with points of fewer units that carry the
    whole rate that counts. The third array (points, 2) says how much each value falls at least, per unit of cache
    demand and per W of power, above the least demands of the node.
    """
    kept, value, falls = np.empty(len(alive), np.int64), np.empty(len(alive), np.int64), np.empty((len(alive), 2))
    busy, rps = np.empty((len(alive), CORNERS)), np.empty((len(alive), CORNERS))
    enough, many, group, units, begin, full = np.empty(len(alive), np.int64), 0, -1, -1, 0, 0
    least, least_w = (node.size - 1) * points.cache.min(), (node.size - 1) * points.power_w.min()
    for at in alive:
        one = points.group[at]
        if points.cache[at] + least > node.cache[1] + SLIGHT or points.power_w[at] + least_w > node.power_w[1] + SLIGHT:
            continue
        if points.units[at] + node.size - 1 > points.limit:
            continue
        for corner in range(CORNERS):
            cache, power_w = node.cache[corner // 2], node.power_w[corner % 2]
            busy[many, corner] = gpu_ms(points, at, node.size, cache, power_w, -ROUNDED)
            carried = carried_rps(points, at, busy[many, corner])
            rps[many, corner] = carried if carried >= points.least_rps[one] else 0.0
        counts = min(rps[many, 0], points.most_rps[one])
        worth = np.int64(np.ceil(worth_of_rps(prices, one, counts) + prices.bonus[one] + CEILING))
        if rps[many, 0] == 0 or worth <= 0:
            continue
        if one != group:
            group, units, full = one, -1, 0
        if points.units[at] != units:
            units, begin = points.units[at], many
        beaten = False
        for other in range(begin, many):
            if _replaces(points, kept[other], busy[other], rps[other], at, busy[many], rps[many]):
                beaten = True
                break
        for which in range(0 if beaten else full):
            other = enough[which]
            if _replaces(points, kept[other], busy[other], rps[other], at, busy[many], rps[many]):
                beaten = True
                break
        if beaten:
            continue
        if rps[many, CORNERS - 1] >= points.most_rps[one]:
            enough[full] = many
            full += 1
        kept[many], value[many] = at, worth
        fall = _falls(points, at, node, busy[many], rps[many, 0])
        per_rps = prices.per_rps[one] if counts <= prices.cap_rps[one] else prices.beyond
        falls[many, 0], falls[many, 1] = per_rps * fall[0], per_rps * fall[1]
        many += 1
    return kept[:many].copy(), value[:many].copy(), falls[:many].copy()


@inner
def _falls(points: RatePoints, at: int, node: Node, busy: Floats, rps: float) -> tuple[float, float]:
    """How much a point's rate falls at least in a node, in requests/s, per unit of cache demand and per W of power.

    ``busy`` are the point's times on the GPU at the corners of the node. ``rps`` is its rate at the first corner,
    beside the least demands. Beside other demands its rate is rps h / (t / x + a), where h is the hold time of a batch
    at the first corner, t the time of a batch at full clock, x the clock, and a the time after the GPU. The rate is
    convex in cache demand, so the chord bounds it from above. Above the power cap it is concave in power, so the
    tangent bounds it. The falls are 0 where the rate exceeds the workload's, and where the rate is another function of
    the demands.
    """
    after, (cache, most_cache), (power_w, most_w) = points.after_ms[at], node.cache, node.power_w
    if not points.straight or rps >= points.most_rps[points.group[at]] or after < 0:
        return 0.0, 0.0
    hold, by_cache, by_power = busy[0] + after, 0.0, 0.0
    if points.cache[at] <= cache < most_cache:
        by_cache = min(1 / (busy[0] + after) - 1 / (busy[2] + after), 1 / (busy[1] + after) - 1 / (busy[3] + after))
        by_cache *= rps * hold / (most_cache - cache)
    capped = points.gpu.idle_w + power_w >= points.gpu.cap_w
    if points.power_w[at] <= power_w < most_w and capped and points.power_ms[at] == 0:
        by_power = rps * busy[0] / hold * points.gpu.clock_loss / clock_at(points, power_w)
    return max(by_cache * (1 - CHORD), 0.0), max(by_power * (1 - CHORD), 0.0)


@inner
def least_falls(points: RatePoints, prices: Prices, at: Ints, value: Ints, falls: Floats, node: Node, floor: int,
                most: int) -> tuple[float, float]:
    """How much the value of any pattern above the floor falls at least in a node, per unit of cache demand and per W.

    The value of each offer falls by some fraction of itself. Choose a fraction. The groups with an offer that falls by
    a smaller fraction have a total value of at most their ``caps``, the value of their whole rates. So at least the
    floor less these caps falls by the chosen fraction. A group that may carry more than its whole rate need not fall at
    all. The best of these bounds over all fractions is returned.
    """
    groups = len(prices.per_rps)
    caps, part = np.empty(groups), np.full((groups, 2), np.inf)
    for group in range(groups):
        caps[group] = prices.per_rps[group] * points.total_rps[group] + max(prices.bonus[group], 0.0) * node.size
    for one in range(len(at)):
        group = points.group[at[one]]
        for demand in range(2):
            cut = caps[group] < most
            part[group, demand] = 0.0 if cut else min(part[group, demand], falls[one, demand] / value[one])
    least = np.zeros(2)
    for demand in range(2):
        for group in range(groups):
            rest, taken = float(floor), part[group, demand]
            for other in range(groups):
                rest -= caps[other] if part[other, demand] < taken else 0.0
            if math.isfinite(taken) and rest > 0:
                least[demand] = max(least[demand], taken * rest)
    return least[0], least[1]


@inner
def _replaces(points: RatePoints, one: int, busy: Floats, rps: Floats, other: int, its_busy: Floats, its_rps: Floats
              ) -> bool:
    """Whether a point carries no less than another point everywhere in a node, given times on the GPU and rates at
    corners.

    If the time per request is linear in cache demand and in the reciprocal of the clock, it suffices to compare the
    corners. Otherwise, the point must carry at its worst corner what the other point carries at its best corner. Rates
    are not limited to those that count: limited rates may be equal at all corners but differ between them.
    """
    if points.cache[one] > points.cache[other] or points.power_w[one] > points.power_w[other]:
        return False
    if not points.straight:
        return bool(rps[CORNERS - 1] >= min(its_rps[0], points.most_rps[points.group[other]]))
    enough = rps[CORNERS - 1] >= points.most_rps[points.group[other]]
    for corner in range(CORNERS):
        later = busy[corner] * points.room_ms[other] > its_busy[corner] * points.room_ms[one]
        if later or (rps[corner] < its_rps[corner] and not enough):
            return False
    return True


@inner
def most_together(points: RatePoints, demand: Floats) -> Floats:
    """(counts,) an upper bound on the total demand of 0, 1, ... points that fit the units of the GPU together."""
    most = np.full(points.limit + 1, -np.inf)
    for at in range(len(demand)):
        most[points.units[at]] = max(most[points.units[at]], demand[at])
    together = np.full((points.most + 1, points.limit + 1), -np.inf)
    together[0] = 0.0
    for count in range(1, points.most + 1):
        for units in range(1, points.limit + 1):
            for own in range(1, units + 1):
                together[count, units] = max(together[count, units], together[count - 1, units - own] + most[own])
    return together[:, points.limit] * (1 + SLIGHT) + SLIGHT


@inner
def root_nodes(points: RatePoints) -> list[Node]:
    """The nodes that together hold all patterns: for each number of replicas, with power below the power cap, and above
    it.
    """
    found = [Node(0, (0.0, 0.0), (0.0, 0.0), 0.0, 0.0)][:0]
    full_w = max(points.gpu.cap_w - points.gpu.idle_w, 0.0)
    cache, power_w = most_together(points, points.cache), most_together(points, points.power_w)
    for count in range(1, points.most + 1 if len(points.units) else 1):
        for least_w, most_w in ((0.0, full_w), (full_w, max(power_w[count], full_w))):
            found.append(Node(count, (0.0, max(cache[count], 0.0)), (least_w, most_w), 0.0, 0.0))
    return found
