"""The nodes of the search for patterns, their options and what these are worth there, and the knapsacks that bound it.

A node is a number of replicas, and ranges of their total cache demand and total power. A knapsack takes so many offers
within the units of the GPU: ``best_set`` is the plain one, and ``fill`` also limits what the replicas of one class are
worth together.

Operating points of one model with equal units and batch are one option: they differ only in the class that they serve.
In a node, the value of an option is that of its most valuable class at the least demands of all replicas: it falls with
these demands.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import ROUNDED
from provision.formulations.pricing.mps.rate_points import SLIGHT, RatePoints, carried_rps, gpu_ms, steps_to
from provision.models.base.arrays import Floats, Ints, Record, Records
from provision.models.base.compiled import compiled, inner
from provision.models.base.tolerances import FORGIVEN

RISE = 1e-9
"""The search takes a step as a steep line, which begins below the step by this fraction of the rate."""


class PlaceValues(NamedTuple):
    """The values of places by class, piecewise linear or step functions of what a replica carries.

    ``rps`` (classes, levels) are requests/s, ascending from 0, and ``value`` (classes, levels) are the values of a
    place that carries them. The places of a class in one pattern are together worth at most ``together`` (classes,)
    plus, for each place, ``beside`` (classes, levels): what it adds once the limit is reached. ``together`` is infinite
    for classes without limit.
    """

    rps: Floats
    value: Floats
    beside: Floats
    together: Floats


def place_values(rps: Floats, value: Floats) -> PlaceValues:
    """The values of places that may have any value together; both (classes, levels)."""
    return PlaceValues(rps, value, value, np.full(len(rps), np.inf))


def forgiving(rps: Floats, value: Floats) -> PlaceValues:
    """Like ``place_values``, for bounds: a replica that nearly carries a rate has the value of that rate."""
    return place_values(rps / (1 + FORGIVEN), value)


def padded(levels: Sequence[Floats]) -> Floats:
    """(classes, levels) the levels of all classes; those with few levels get more of them above their highest."""
    width = max(map(len, levels))
    return np.stack([np.append(one, one[-1] * (1 + 0.01 * np.arange(1, width - len(one) + 1))) for one in levels])


OFFER = np.dtype([
    ("option", np.int64),    # its number among the Choices
    ("at", np.int64),        # its first point
    ("units", np.int64),
    ("limited", np.int64),   # its class if the joint value of the class is limited, else -1
    ("value", np.float64),   # its highest value in the node
    ("beside", np.float64),  # its highest value once the limit of its class is reached
    ("least", np.float64),   # its least value in the node
    ("cache", np.float64),
    ("power_w", np.float64),
])
"""An option in a node."""


class Choices(NamedTuple):
    """Operating points by option: option o has the points ``order[first[o] : first[o + 1]]``. Options are sorted by
    kind, then by units. ``copies`` (classes,) limits the replicas of a class in a pattern, if the class shares no
    option with others.
    """

    order: Ints
    first: Ints
    copies: Ints


def choices_of(points: RatePoints, kind: Ints, copies: Ints | None = None, among: Ints | None = None) -> Choices:
    """The options of some points. Classes of the same ``kind`` (classes,) share options; ``copies`` (classes,) may
    limit the replicas of a class that shares none. Only the points ``among`` are used, by default all.
    """
    at = points.at
    among = np.arange(len(at)) if among is None else among
    keys = np.stack([kind[at.group], at.units, at.model, at.batch])[:, among]
    alike, option = np.unique(keys, axis=1, return_inverse=True)
    order = np.argsort(option.ravel(), kind="stable")
    first = np.searchsorted(option.ravel()[order], np.arange(alike.shape[1] + 1))
    copies = np.full(len(kind), points.most) if copies is None else np.ascontiguousarray(copies)
    return Choices(among[order], first, copies)


@compiled
def value_at(rps: Floats, value: Floats, rate_rps: float) -> float:
    """The value of a replica that carries a rate; ``rps`` and ``value`` (levels,) begin at 0."""
    if rate_rps >= rps[-1]:
        return float(value[-1])
    at = steps_to(rps, rate_rps) - 1
    return float(value[at] + (value[at + 1] - value[at]) * (rate_rps - rps[at]) / (rps[at + 1] - rps[at]))


@inner
def offers_in(points: RatePoints, choices: Choices, values: PlaceValues, options: Ints, node: Record) -> Records:
    """Those of some options that no other one dominates in a node, the last ones first.

    An option dominates another one if it has no more units, cache demand and power, and its least value in the node is
    no less than the other's highest. Besides, the two have the same class, or the option's class limits neither its
    replicas nor their joint value.
    """
    least, least_w, end = np.inf, np.inf, len(options)
    found = np.empty(end + 1, OFFER)
    for option in options:
        at = points.at[choices.order[choices.first[option]]]
        least, least_w = min(least, at.cache), min(least_w, at.power_w)
    least, least_w = (node.replicas - 1) * least, (node.replicas - 1) * least_w
    for option in options:
        first = choices.order[choices.first[option]]
        at, one = points.at[first], found[end]
        if (at.units + node.replicas - 1 > points.limit or at.cache + least > node.most_cache + SLIGHT
                or at.power_w + least_w > node.most_w + SLIGHT):
            continue
        busy = gpu_ms(points, at, node.replicas, node.least_cache, node.least_w, -ROUNDED)
        chosen, one.value = best_point(points, choices, values, option, busy)
        one.at, one.units, one.cache, one.power_w = first, at.units, at.cache, at.power_w
        one.option, one.beside, one.limited = option, 0.0, -1
        if values.together[at.group] < np.inf:
            one.limited = at.group
            one.beside = worth_of(points, values.rps, values.beside, chosen, busy)
        if one.value <= 0 or _beaten(points, choices, one, found[end + 1:]):
            continue
        busy = gpu_ms(points, at, node.replicas, node.most_cache, node.most_w, ROUNDED)
        _, one.least = best_point(points, choices, values, option, busy)
        end -= 1
    return found[end + 1:]


@inner
def worth_of(points: RatePoints, rps: Floats, value: Floats, at: int, busy: float) -> float:
    """The value of a point whose batches take ``busy`` ms, within the limits of bounds; 0 if it carries nothing."""
    one = points.at[at].group
    carried = min(carried_rps(points, at, busy), points.groups[one].most_rps)
    return value_at(rps[one], value[one], carried) if carried > 0 else 0.0


@inner
def best_point(points: RatePoints, choices: Choices, values: PlaceValues, option: int, busy: float
                ) -> tuple[int, float]:
    """The most valuable point of an option, and its value."""
    chosen, most = choices.order[choices.first[option]], 0.0
    for which in range(choices.first[option], choices.first[option + 1]):
        one = choices.order[which]
        value = worth_of(points, values.rps, values.value, one, busy)
        if value > most:
            chosen, most = one, value
    return chosen, most


@inner
def _beaten(points: RatePoints, choices: Choices, one: Record, others: Records) -> bool:
    """Whether another option dominates an option."""
    group = points.at[one.at].group
    for other in others:
        its = points.at[other.at].group
        if its != group and other.limited >= 0:
            return False  # the points of a limited class stand together, the last ones first
        better = other.least >= one.value and other.cache <= one.cache and other.power_w <= one.power_w
        if better and other.units <= one.units and (its == group or choices.copies[its] >= points.most):
            return True
    return False


@inner
def complete(points: RatePoints, choices: Choices, options: Ints, option: int) -> bool:
    """Whether some options have as many replicas of the class of a further option as ``copies`` allows."""
    times, one = 0, points.at[choices.order[choices.first[option]]].group
    for other in options:
        times += points.at[choices.order[choices.first[other]]].group == one
    return times >= choices.copies[one]


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
