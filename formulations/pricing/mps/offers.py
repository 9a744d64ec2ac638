"""The options of a node of the search for patterns, and what they are worth there.

Operating points of one model with equal units and batch are one option: they differ only in the class that they serve.
In a node, the value of an option is that of its most valuable class at the least demands of all replicas: it falls with
these demands.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import ROUNDED
from provision.formulations.pricing.mps.nodes import SLIGHT, Node
from provision.formulations.pricing.mps.rate_points import RatePoints, carried_rps, gpu_ms
from provision.models.base.arrays import Floats, Ints
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


def step_values(rates: Sequence[Floats], values: Sequence[Floats]) -> PlaceValues:
    """The values of places as step functions: for each class rates in requests/s, ascending, and what a replica that
    carries them is worth. Their levels are rate 0, then for each rate the beginning and the end of its step.
    """
    width = 2 * max(map(len, rates)) + 1
    rps, value = np.zeros((2, len(rates), width))
    for at, (one, worth) in enumerate(zip(rates, values, strict=True)):
        end, rising = 2 * len(one) + 1, np.maximum.accumulate(np.maximum(worth, 0.0))
        rps[at, 1:end:2], rps[at, 2:end:2] = one * (1 - RISE), one
        value[at, 3:end:2], value[at, 2:end:2] = rising[:-1], rising
        rps[at, end:] = rps[at, end - 1] + np.arange(1, width - end + 1)
        value[at, end:] = value[at, end - 1]
    return place_values(rps, value)


def padded(levels: Sequence[Floats]) -> Floats:
    """(classes, levels) the levels of all classes; those with few levels get more of them above their highest."""
    width = max(map(len, levels))
    return np.stack([np.append(one, one[-1] * (1 + 0.01 * np.arange(1, width - len(one) + 1))) for one in levels])


class Offers(NamedTuple):
    """The options in a node, in the reverse order of its Choices. ``value`` (offers,) are their highest values in the
    node, ``beside`` the highest once the limit of the class is reached, ``limited`` the class if its joint value is
    limited (else -1), and ``one`` the number of the option among the Choices.
    """

    units: Ints
    value: Floats
    beside: Floats
    cache: Floats
    power_w: Floats
    limited: Ints
    one: Ints


class Choices(NamedTuple):
    """Operating points by option: option o has the points ``order[first[o] : first[o + 1]]``. Options are sorted by
    kind, then by units. The Choices of a node have only the points that are the most valuable of their option somewhere
    in the node. ``copies`` (classes,) limits the replicas of a class in a pattern, if the class shares no option with
    others.
    """

    order: Ints
    first: Ints
    copies: Ints


def choices_of(points: RatePoints, kind: Ints, copies: Ints | None = None, among: Ints | None = None) -> Choices:
    """The options of some points. Classes of the same ``kind`` (classes,) share options; ``copies`` (classes,) may
    limit the replicas of a class that shares none. Only the points ``among`` are used, by default all.
    """
    among = np.arange(len(points.units)) if among is None else among
    keys = np.stack([kind[points.group], points.units, points.model, points.batch])[:, among]
    alike, option = np.unique(keys, axis=1, return_inverse=True)
    order = np.argsort(option.ravel(), kind="stable")
    first = np.searchsorted(option.ravel()[order], np.arange(alike.shape[1] + 1))
    return Choices(among[order], first, np.full(len(kind), points.most) if copies is None else copies)


@compiled
def value_at(rps: Floats, value: Floats, rate_rps: float) -> float:
    """The value of a replica that carries a rate; ``rps`` and ``value`` (levels,) begin at 0."""
    if rate_rps >= rps[-1]:
        return float(value[-1])
    at = np.searchsorted(rps, rate_rps, side="right") - 1
    return float(value[at] + (value[at + 1] - value[at]) * (rate_rps - rps[at]) / (rps[at + 1] - rps[at]))


@inner
def offers_in(points: RatePoints, choices: Choices, values: PlaceValues, node: Node) -> tuple[Choices, Offers]:
    """The undominated options in a node, and the offers that they make. An option dominates another one if it has no
    more units, cache demand and power, its least value in the node is no less than the other's highest, and the two
    have one class, or its class has no limit on replicas or on joint value.
    """
    order, first, kept = np.empty(len(choices.order), np.int64), np.zeros(len(choices.first), np.int64), 0
    ats, taken, highest = np.empty(len(first), np.int64), np.empty((len(first), 3)), np.empty((2, len(first)))
    most, least, least_w = np.empty(len(choices.order)), np.inf, np.inf
    for option in range(len(first) - 1):
        at = choices.order[choices.first[option]]
        least, least_w = min(least, points.cache[at]), min(least_w, points.power_w[at])
    least, least_w = (node.size - 1) * least, (node.size - 1) * least_w
    for option in range(len(first) - 1):
        begin, end = choices.first[option], choices.first[option + 1]
        at = choices.order[begin]
        cache, power_w = points.cache[at], points.power_w[at]
        if (points.units[at] + node.size - 1 > points.limit or cache + least > node.cache[1] + SLIGHT
                or power_w + least_w > node.power_w[1] + SLIGHT):
            continue
        busy, top, beside = gpu_ms(points, at, node.size, node.cache[0], node.power_w[0], -ROUNDED), 0.0, 0.0
        for which in range(begin, end):
            one = choices.order[which]
            carried = carried_rps(points, one, busy)
            most[which] = worth_of(points, values.rps, values.value, one, carried)
            top = max(top, most[which])
            if values.together[points.group[one]] < np.inf:
                beside = worth_of(points, values.rps, values.beside, one, carried)
        if top <= 0 or _beaten(points, choices, values, at, top, taken[:kept], ats):
            continue
        busy, lowest = gpu_ms(points, at, node.size, node.cache[1], node.power_w[1], ROUNDED), 0.0
        for which in range(begin, end):
            if most[which] > lowest:
                one = choices.order[which]
                lowest = max(lowest, worth_of(points, values.rps, values.value, one, carried_rps(points, one, busy)))
        many = first[kept]
        for which in range(begin, end):
            if most[which] >= lowest and most[which] > 0:
                order[many], many = choices.order[which], many + 1
        ats[kept], highest[0, kept], highest[1, kept] = at, top, beside
        taken[kept, 0], taken[kept, 1], taken[kept, 2] = lowest, cache, power_w
        kept += 1
        first[kept] = many
    narrowed = Choices(order[:first[kept]].copy(), first[:kept + 1].copy(), choices.copies)
    offers = Offers(np.empty(kept, np.int64), np.empty(kept), np.empty(kept), np.empty(kept), np.empty(kept),
                    np.full(kept, -1), np.empty(kept, np.int64))
    for one in range(kept):
        option = kept - 1 - one
        at = ats[option]
        offers.one[one], offers.units[one] = option, points.units[at]
        offers.cache[one], offers.power_w[one] = points.cache[at], points.power_w[at]
        if values.together[points.group[at]] < np.inf:
            offers.limited[one] = points.group[at]
        offers.value[one], offers.beside[one] = highest[0, option], highest[1, option]
    return narrowed, offers


@inner
def worth_of(points: RatePoints, rps: Floats, value: Floats, at: int, carried: float) -> float:
    """The value of a point that carries some requests/s, within the limits of bounds; 0 if these are 0."""
    one = points.group[at]
    carried = min(carried, points.most_rps[one])
    return value_at(rps[one], value[one], carried) if carried > 0 else 0.0


@inner
def best_point(points: RatePoints, choices: Choices, values: PlaceValues, option: int, busy: float
                ) -> tuple[int, float]:
    """The most valuable point of an option, and its value."""
    chosen, most = choices.order[choices.first[option]], 0.0
    for which in range(choices.first[option], choices.first[option + 1]):
        one = choices.order[which]
        value = worth_of(points, values.rps, values.value, one, carried_rps(points, one, busy))
        if value > most:
            chosen, most = one, value
    return chosen, most


@inner
def _beaten(points: RatePoints, choices: Choices, values: PlaceValues, at: int, top: float, taken: Floats, ats: Ints
            ) -> bool:
    """Whether another option dominates an option with the highest value ``top``. ``taken`` (others, 3) are the others'
    least values, cache demands and power; ``at`` and ``ats`` are the first points of the option and of the others.
    """
    cache, power_w, one = points.cache[at], points.power_w[at], points.group[at]
    for other in range(len(taken) - 1, -1, -1):
        its = points.group[ats[other]]
        if its != one and values.together[its] < np.inf:
            return False  # the points of a limited class stand together, the last ones first
        better = taken[other, 0] >= top and taken[other, 1] <= cache and taken[other, 2] <= power_w
        endless = its == one or choices.copies[its] >= points.most
        if better and endless and points.units[ats[other]] <= points.units[at]:
            return True
    return False


@inner
def complete(points: RatePoints, choices: Choices, options: Ints, option: int) -> bool:
    """Whether some options have as many replicas of the class of a further option as ``copies`` allows."""
    times, one = 0, points.group[choices.order[choices.first[option]]]
    for other in options:
        times += points.group[choices.order[choices.first[other]]] == one
    return times >= choices.copies[one]
