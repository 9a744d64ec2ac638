"""The nodes of the search for patterns (a number of replicas, and ranges of their total cache demand and total power),
and the knapsacks that bound the value of patterns in a node.

A knapsack takes a given number of offers within the units of the GPU. ``best_set`` is the plain one. ``fill`` also
limits what the replicas of one class are worth together.
"""

from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.rate_points import RatePoints
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import inner

SLIGHT = 1e-9
"""The rounding error of sums of cache demand and of power (W)."""

Range = tuple[float, float]
"""The lower and the upper end of a quantity."""


class Node(NamedTuple):
    """``size`` replicas whose total cache demand and total power (W) lie in ranges, and the multipliers to begin with.
    """

    size: int
    cache: Range
    power_w: Range
    cache_price: float
    power_price: float


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


@inner
def halves(points: RatePoints, node: Node) -> tuple[Node, Node]:
    """Cut a node in two along the range that slows replicas more. Power below the power cap slows nobody."""
    cache, power_w = node.cache, node.power_w
    capped = power_w[0] + points.gpu.idle_w >= points.gpu.cap_w
    slower = _spread(points, power_w) * points.gpu.slows[1] if capped else 0.0
    if _spread(points, cache) * points.gpu.slows[0] >= slower:
        middle = _middle(points, cache)
        return (Node(node.size, (cache[0], middle), power_w, node.cache_price, node.power_price),
                Node(node.size, (middle, cache[1]), power_w, node.cache_price, node.power_price))
    middle = _middle(points, power_w)
    return (Node(node.size, cache, (power_w[0], middle), node.cache_price, node.power_price),
            Node(node.size, cache, (middle, power_w[1]), node.cache_price, node.power_price))


@inner
def _spread(points: RatePoints, side: Range) -> float:
    """How much more the upper end of a range slows replicas than the lower end."""
    return side[1] ** points.gpu.root - side[0] ** points.gpu.root


@inner
def _middle(points: RatePoints, side: Range) -> float:
    """The demand that slows replicas halfway between the ends of a range."""
    return ((side[0] ** points.gpu.root + side[1] ** points.gpu.root) / 2) ** (1 / points.gpu.root)


@inner
def best_set(units: Ints, values: Floats, count: int, limit: int) -> tuple[float, Ints]:
    """The highest value of exactly ``count`` offers in at most ``limit`` units, minus infinity if there are none; and
    the offers that attain it. Offers have 1 to ``limit`` units.

    Offers may repeat. So an offer is left out if another has no more units and no lower value.
    """
    best, last = np.empty((count + 1, limit + 1)), np.zeros((count + 1, limit + 1), np.int64)
    best[:], of_units = -np.inf, np.full(limit + 1, -1)
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
    chosen, total = np.empty(count if best[count, limit] > -np.inf else 0, np.int64), limit
    for place in range(len(chosen)):
        chosen[place] = last[count - place, total]
        total -= units[chosen[place]]
    return best[count, limit], chosen


@inner
def fill(units: Ints, values: Floats, beside: Floats, of_class: Ints, together: Floats, copies: Ints, best: Floats,
         more: Floats) -> None:
    """Fill two tables with bounds on the values of n offers in at most u units; minus infinity if there are none.

    Entry [o, n, u] of ``best`` is the most that n offers with index o or more are worth in u units, with the joint
    limit of every class but that of offer o. Entry [c, n, u] of ``more`` is the same for offers of the limited class c,
    at their values ``beside``, and of later classes.

    Parameters
    ----------
    units, values, beside
        (offers,) the units of the offers, their values, and their values once the limit of their class is reached.
    of_class
        (offers,) the class of each offer, -1 where no limit holds. Offers of one class stand together.
    together, copies
        (classes,) the replicas of a class are together worth at most ``together`` plus their values ``beside``; and the
        most replicas of a class.
    """
    _, counts, limits = best.shape
    later, end = _nothing(counts, limits), len(units)
    while end > 0:
        begin, one = end - 1, of_class[end - 1]
        while begin > 0 and of_class[begin - 1] == one:
            begin -= 1
        for at in range(end - 1, begin - 1, -1):
            _copy(later if at == end - 1 else best[at + 1], best[at])
            _take(best[at], units[at], values[at])
        if one < 0:
            later = best[begin]
        else:
            at_values, at_beside = _nothing(counts, limits), _nothing(counts, limits)
            _copy(later, more[one])
            _take_all(units[begin:end], values[begin:end], at_values)
            _take_all(units[begin:end], beside[begin:end], at_beside)
            _take_all(units[begin:end], beside[begin:end], more[one])
            later = _joined(later, at_values, at_beside, together[one], copies[one])
        end = begin


@inner
def _nothing(counts: int, limits: int) -> Floats:
    """A table in which no number of offers has a value, except 0 offers."""
    table = np.full((counts, limits), -np.inf)
    for units in range(limits):
        table[0, units] = 0.0
    return table


@inner
def _copy(source: Floats, target: Floats) -> None:
    """Copy a table; an assignment of arrays would be compiled with the text of an error, which takes long."""
    for number in range(source.shape[0]):
        for units in range(source.shape[1]):
            target[number, units] = source[number, units]


@inner
def _take(table: Floats, units: int, value: float) -> None:
    """Allow an offer any number of times in ``table``: entry [n, u] is the highest value of n offers in u units."""
    for number in range(1, table.shape[0]):
        for total in range(units, table.shape[1]):
            candidate, known = table[number - 1, total - units] + value, table[number, total]
            table[number, total] = candidate if candidate > known else known


@inner
def _take_all(units: Ints, values: Floats, table: Floats) -> None:
    """Allow all offers any number of times in ``table``."""
    most = np.full(table.shape[1], -np.inf)
    for at in range(len(units)):
        most[units[at]] = max(most[units[at]], values[at])
    for need in range(1, len(most)):
        if most[need] > -np.inf:
            _take(table, need, most[need])


@inner
def _joined(later: Floats, own: Floats, beside: Floats, most: float, copies: int) -> Floats:
    """The highest values when up to ``copies`` offers of one more class are allowed.

    ``own`` [n, u] are the highest sums of its offers' values, and ``beside`` those of their values ``beside``.
    """
    (counts, limits), joined = own.shape, later.copy()
    for number in range(1, min(counts, copies + 1)):
        before = -np.inf
        for units in range(1, limits):
            worth = min(own[number, units], most + beside[number, units])
            if worth <= before:
                continue
            before = worth
            for further in range(counts - number):
                for total in range(limits - units):
                    candidate, known = later[further, total] + worth, joined[number + further, total + units]
                    joined[number + further, total + units] = candidate if candidate > known else known
    return joined
