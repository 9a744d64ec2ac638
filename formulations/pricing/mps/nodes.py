"""The nodes of the search for patterns: a number of members, and ranges of their total cache demand and total power.

The lower ends of the ranges give the least slowdown of every member, and so the value of each option in the node. The
best pattern of a node is then a knapsack: a given number of offers, within the units of the GPU and within the upper
ends of cache demand and power. The last two limits are relaxed with multipliers (Lagrangian relaxation, Geoffrion
1974). Polyak's step rule improves the multipliers.
"""

import math
from typing import NamedTuple, TypeVar

import numpy as np

from provision.formulations.pricing.mps.tables import PointTables
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import inner

Values = TypeVar("Values", Ints, Floats)
NEVER = -(1 << 60)
STEPS = 4
"""The number of multipliers that are tried in a node."""
DEAREST = 1e10
"""At the multipliers, all cache demand (or all power) costs at most this, so that rounding errors stay below 1."""
SLIGHT = 1e-9
"""The rounding error of sums of cache demand and of power (W)."""


Range = tuple[float, float]
"""The lower and the upper end of a quantity."""


class Node(NamedTuple):
    """``size`` members whose total cache demand and total power (W) lie in ranges, and the multipliers to begin with.
    """

    size: int
    cache: Range
    power_w: Range
    cache_price: float
    power_price: float


class Offers(NamedTuple):
    """Operating points in a node, those with most units first: their units, whole-number value, demands and index
    (``one``).
    """

    units: Ints
    value: Ints
    cache: Floats
    power_w: Floats
    one: Ints


class NodeBound(NamedTuple):
    """The solved knapsack of a node at its multipliers. No pattern in the node has a value above ``most``.

    The true value of a set of offers is at most ``allowance`` above the sum of their values less the prices of their
    demands. ``cache`` and ``power_w`` are the demands of the best set.
    """

    most: int
    node: Node
    allowance: int
    cache: float
    power_w: float


@inner
def halves(tables: PointTables, node: Node) -> tuple[Node, Node]:
    """Cut a node in two along the range that slows replicas more. Power below the power cap slows nobody."""
    cache, power_w = node.cache, node.power_w
    capped = power_w[0] + tables.gpu.idle_w >= tables.gpu.cap_w
    slower = _spread(tables, power_w) * tables.gpu.slows[1] if capped else 0.0
    if _spread(tables, cache) * tables.gpu.slows[0] >= slower:
        middle = _middle(tables, cache)
        return (Node(node.size, (cache[0], middle), power_w, node.cache_price, node.power_price),
                Node(node.size, (middle, cache[1]), power_w, node.cache_price, node.power_price))
    middle = _middle(tables, power_w)
    return (Node(node.size, cache, (power_w[0], middle), node.cache_price, node.power_price),
            Node(node.size, cache, (middle, power_w[1]), node.cache_price, node.power_price))


@inner
def _spread(tables: PointTables, side: Range) -> float:
    """How much more the upper end of a range slows replicas than the lower end."""
    return side[1] ** tables.gpu.root - side[0] ** tables.gpu.root


@inner
def _middle(tables: PointTables, side: Range) -> float:
    """The demand that slows replicas halfway between the ends of a range."""
    return ((side[0] ** tables.gpu.root + side[1] ** tables.gpu.root) / 2) ** (1 / tables.gpu.root)


@inner
def relaxed(tables: PointTables, offers: Offers, node: Node, floor: int, falls: tuple[float, float]) -> NodeBound:
    """The NodeBound of a node at the best multipliers found; ``most`` is NEVER if no set fits the units.

    The values of offers are those beside the least cache demand and power of the node. ``falls`` say how much the value
    of any set above the floor falls at least, per unit of cache demand and per W of power above the least ones.
    """
    limit = tables.limit
    if not len(offers.units) or node.size * offers.units[-1] > limit:
        return NodeBound(NEVER, node, 0, 0.0, 0.0)
    first = Node(node.size, node.cache, node.power_w, _within(max(node.cache_price, falls[0]), node.cache[1]),
                 _within(max(node.power_price, falls[1]), node.power_w[1]))
    found = at = _priced(offers, first, limit, falls)
    for _ in range(STEPS - 1):
        if found.most <= floor:
            break
        cache_off = _slope(at.cache, node.cache, at.node.cache_price, falls[0]) / tables.gpu.usual[0]
        power_off = _slope(at.power_w, node.power_w, at.node.power_price, falls[1]) / tables.gpu.usual[1]
        steep = cache_off**2 + power_off**2
        if steep < SLIGHT:
            break
        step = (at.most - floor) / steep
        cache_price = _within(at.node.cache_price + step * cache_off / tables.gpu.usual[0], node.cache[1])
        power_price = _within(at.node.power_price + step * power_off / tables.gpu.usual[1], node.power_w[1])
        at = _priced(offers, Node(node.size, node.cache, node.power_w, cache_price, power_price), limit, falls)
        if at.most < found.most:
            found = at
    return found


@inner
def _slope(amount: float, side: Range, price: float, fall: float) -> float:
    """The direction in which to move the multiplier ``price`` so that the bound falls; 0 to leave it.

    ``amount`` is what the best offers demand, and ``side`` is its range. The bound is convex in the multiplier. Above
    ``fall`` its slope is the upper end of the range less the amount; below, it is the lower end less the amount.
    """
    if price > fall or (price == fall and amount > side[1]):
        return amount - side[1]
    if 0 < price < fall or (price == fall and fall > 0 and amount < side[0]):
        return amount - side[0]
    return 0.0


@inner
def _within(price: float, amount: float) -> float:
    """The multiplier ``price``, cut to at least 0 and so that ``amount`` costs no more than DEAREST."""
    return min(max(price, 0.0), DEAREST / max(amount, 1 / DEAREST))


@inner
def _priced(offers: Offers, node: Node, limit: int, falls: tuple[float, float]) -> NodeBound:
    """The NodeBound of a node at its multipliers. Prices of demands are rounded down, which can only raise the bound.
    """
    values = np.empty(len(offers.value), np.int64)
    for at in range(len(values)):
        taken = math.floor(node.cache_price * offers.cache[at] + node.power_price * offers.power_w[at])
        values[at] = offers.value[at] - taken
    most, chosen = best_set(offers.units, values, node.size, limit, NEVER)
    cache, power_w = 0.0, 0.0
    for at in chosen:
        cache, power_w = cache + offers.cache[at], power_w + offers.power_w[at]
    given = _given(node.cache_price, node.cache, falls[0]) + _given(node.power_price, node.power_w, falls[1])
    allowance = math.ceil(given) + 1
    return NodeBound(most + allowance if most > NEVER // 2 else NEVER, node, allowance, cache, power_w)


@inner
def _given(price: float, side: Range, fall: float) -> float:
    """The amount to add to the sum of the values less prices of a set of offers; the result is then an upper bound on
    the value of the set. The set pays ``price`` per unit of its demand, which lies in the range ``side``. For each unit
    above the lower end of the range, its value falls by ``fall``. So the amount is the largest value of price * demand
    - fall * (demand - lower end) in the range.
    """
    return price * (side[1] + SLIGHT) - min(price, fall) * (side[1] - side[0])


@inner
def fill(units: Ints, values: Floats, best: Floats) -> None:
    """Fill ``best``: entry [o, n, u] is the highest value of exactly n offers with index o or more, in at most u units;
    minus infinity where there are no such offers.
    """
    many, counts, limits = best.shape
    best[many - 1], best[many - 1, 0] = -np.inf, 0
    for at in range(many - 2, -1, -1):
        best[at] = best[at + 1]
        need, value = units[at], values[at]
        for number in range(1, counts):
            for total in range(need, limits):
                candidate = best[at, number - 1, total - need] + value
                if candidate > best[at, number, total]:
                    best[at, number, total] = candidate


@inner
def best_set(units: Ints, values: Values, count: int, limit: int, never: float) -> tuple[float, Ints]:
    """The highest value of exactly ``count`` offers in at most ``limit`` units, ``never`` if there are none; and the
    offers that attain it. Offers have 1 to ``limit`` units.

    Offers may repeat, so one with no higher value than another of no more units is left out.
    """
    best, last = np.empty((count + 1, limit + 1), values.dtype), np.zeros((count + 1, limit + 1), np.int64)
    best[:], of_units = never, np.full(limit + 1, -1)
    for at in range(len(units)):
        if of_units[units[at]] < 0 or values[at] > values[of_units[units[at]]]:
            of_units[units[at]] = at
    best[0], fewer = 0, -1
    for need in range(1, limit + 1):
        at = of_units[need]
        if at < 0 or (fewer >= 0 and values[at] <= values[fewer]):
            continue
        fewer = at
        for number in range(1, count + 1):
            for total in range(need, limit + 1):
                candidate = best[number - 1, total - need] + values[at]
                if candidate > best[number, total]:
                    best[number, total], last[number, total] = candidate, at
    chosen, total = np.empty(count if best[count, limit] > never / 2 else 0, np.int64), limit
    for place in range(len(chosen)):
        chosen[place] = last[count - place, total]
        total -= units[chosen[place]]
    return best[count, limit], chosen
