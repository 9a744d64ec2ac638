"""The nodes of the search for patterns (a number of replicas, and ranges of their total cache demand and total power),
and the knapsacks that bound the value of patterns in a node.

A knapsack takes a given number of offers within the units of the GPU. ``best_set`` is the plain one. ``fill`` also
limits what the replicas of one class are worth together.
"""

import numpy as np

from provision.formulations.pricing.mps.rate_points import RatePoints
from provision.models.base.arrays import Floats, Ints, Record, Records
from provision.models.base.compiled import inner

NODE = np.dtype([*((name, np.int64) for name in ("replicas", "first", "end")), *((name, np.float64) for name in (
    "least_cache", "most_cache", "least_w", "most_w", "cache_price", "price_w"))])
"""A number of ``replicas`` whose total cache demand and total power (W) lie in ranges; where its options begin and end
in a list of options; and the multipliers to begin with.
"""


def root_nodes(points: RatePoints, options: int) -> Records:
    """The nodes that together hold all patterns: for each number of replicas, one with power below the power cap, and
    one above it. Each has all ``options``.
    """
    replicas = np.repeat(np.flatnonzero(points.together[0, 1:points.most + 1] > 0) + 1, 2)
    nodes = np.rec.array(np.zeros(len(replicas), NODE))
    full_w = np.maximum(points.gpu.cap_w - points.gpu.idle_w, 0.0)
    nodes.replicas, nodes.end, (nodes.most_cache, most_w) = replicas, options, points.together[:, replicas]
    nodes.most_w[::2] = nodes.least_w[1::2] = full_w
    nodes.most_w[1::2] = np.maximum(most_w[1::2], full_w)
    return nodes


@inner
def write_halves(points: RatePoints, node: Record, one: Record, other: Record) -> None:
    """Cut a node in two along the range that slows replicas more. Power below the power cap slows nobody."""
    gpu = points.gpu[0]
    for half in (one, other):
        half.replicas, half.first, half.end = node.replicas, node.first, node.end
        half.cache_price, half.price_w = node.cache_price, node.price_w
        half.least_cache, half.most_cache = node.least_cache, node.most_cache
        half.least_w, half.most_w = node.least_w, node.most_w
    root, slower = gpu.root, 0.0
    if node.least_w + gpu.idle_w >= gpu.cap_w:
        slower = (node.most_w ** root - node.least_w ** root) * gpu.slows_w
    if (node.most_cache ** root - node.least_cache ** root) * gpu.slows_cache >= slower:
        one.most_cache = other.least_cache = _middle(root, node.least_cache, node.most_cache)
    else:
        one.most_w = other.least_w = _middle(root, node.least_w, node.most_w)


@inner
def _middle(root: float, least: float, most: float) -> float:
    """The demand that slows replicas halfway between two demands."""
    return ((least ** root + most ** root) / 2) ** (1 / root)


@inner
def best_set(offers: Records, values: Floats, count: int, limit: int) -> tuple[float, Ints]:
    """The highest value of exactly ``count`` offers in at most ``limit`` units, minus infinity if there are none; and
    the offers that attain it. Offers have 1 to ``limit`` units.

    Offers may repeat. So an offer is left out if another has no more units and no lower value.
    """
    best, last = nothing(count + 1, limit + 1), np.empty((count + 1, limit + 1), np.int64)
    of_units = np.empty(limit + 1, np.int64)
    for units in range(limit + 1):
        of_units[units] = -1
    for at in range(len(offers)):
        same = of_units[offers[at].units]
        if same < 0 or values[at] > values[same]:
            of_units[offers[at].units] = at
    fewer = -1
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
        total -= offers[chosen[place]].units
    return best[count, limit], chosen


@inner
def fill(offers: Records, values: Floats, beside: Floats, together: Floats, copies: Ints, best: Floats, more: Floats
         ) -> None:
    """Fill two tables with bounds on the values of n offers in at most u units; minus infinity if there are none.

    Entry [o, n, u] of ``best`` is the most that n offers with index o or more are worth in u units, with the joint
    limit of every class but that of offer o. Entry [c, n, u] of ``more`` is the same for offers of the limited class c,
    at their values ``beside``, and of later classes.

    Parameters
    ----------
    offers, values, beside
        (offers,) the offers, of which those of one class stand together; their values; and their values once the limit
        of their class is reached.
    together, copies
        (classes,) the replicas of a class are together worth at most ``together`` plus their values ``beside``; and the
        most replicas of a class.
    """
    _, counts, limits = best.shape
    later, end = nothing(counts, limits), len(offers)
    while end > 0:
        begin, one = end - 1, offers[end - 1].limited
        while begin > 0 and offers[begin - 1].limited == one:
            begin -= 1
        for at in range(end - 1, begin - 1, -1):
            _copy(later if at == end - 1 else best[at + 1], best[at])
            _take(best[at], offers[at].units, values[at])
        if one < 0:
            later = best[begin]
        else:
            at_values, at_beside = nothing(counts, limits), nothing(counts, limits)
            _copy(later, more[one])
            _take_all(offers[begin:end], values[begin:end], at_values)
            _take_all(offers[begin:end], beside[begin:end], at_beside)
            _take_all(offers[begin:end], beside[begin:end], more[one])
            later = _joined(later, at_values, at_beside, together[one], copies[one])
        end = begin


@inner
def nothing(counts: int, limits: int) -> Floats:
    """A table in which no number of offers has a value, except 0 offers."""
    table = np.empty((counts, limits))
    for number in range(counts):
        for units in range(limits):
            table[number, units] = -np.inf if number else 0.0
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
def _take_all(offers: Records, values: Floats, table: Floats) -> None:
    """Allow all offers any number of times in ``table``."""
    most = np.empty(table.shape[1])
    for need in range(len(most)):
        most[need] = -np.inf
    for at in range(len(offers)):
        most[offers[at].units] = max(most[offers[at].units], values[at])
    for need in range(1, len(most)):
        if most[need] > -np.inf:
            _take(table, need, most[need])


@inner
def _joined(later: Floats, own: Floats, beside: Floats, most: float, copies: int) -> Floats:
    """The highest values when up to ``copies`` offers of one more class are allowed.

    ``own`` [n, u] are the highest sums of its offers' values, and ``beside`` those of their values ``beside``.
    """
    counts, limits = own.shape
    joined = np.empty((counts, limits))
    _copy(later, joined)
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
