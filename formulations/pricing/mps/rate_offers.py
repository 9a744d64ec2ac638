"""Operating points as offers to a node of the search for patterns that carry rates (``rate_search``).

In a node, an operating point has the value of the rate that it carries beside the least demands of the node.
"""

import math
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import ROUNDED, clock_at
from provision.formulations.pricing.mps.nodes import Node
from provision.formulations.pricing.mps.options import SLIGHT
from provision.formulations.pricing.mps.rate_points import RatePoints, carried_rps, gpu_ms
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import inner

CORNERS = 4
"""The number of corners of a node: least and most cache demand, each with least and most power."""
CHORD = 1e-6
"""The fraction by which falls of rates are reduced, so that rounding errors do not matter."""
CEILING = 1e-6
"""This is added to a value before it is rounded up to a whole number, so that rounding errors cannot lower it."""


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
