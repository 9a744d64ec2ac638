"""The options of a node of the search for patterns, and what they are worth there.

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
