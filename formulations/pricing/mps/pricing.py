"""Exact pricing of patterns on one GPU under interference, where the value of a replica grows with its rate.

Any function of the rate that a replica can carry serves, one for each class of replicas (``PlaceValues``). If each
workload has one replica, it has a step at the rate of each workload.

The search is a best-first branch and bound over ``nodes``: ranges of the number, the total cache demand and the total
power of the replicas. Operating points of one model with equal units and batch are one option: they differ only in the
class that they serve. In a node, the value of an option is that of its most valuable class. It falls with the demands
of all replicas; it is bounded at the four corners of the node, between which a bilinear function bounds it. A knapsack
bounds the node. Its best offers are a pattern, whose true value is known too. A node whose bound exceeds the best true
value is searched depth first for some visits, and then cut in two.
"""

from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE, ROUNDED, delay_at
from provision.formulations.pricing.mps.nodes import NEVER, SLIGHT, Node, best_set, fill, halves
from provision.formulations.pricing.mps.rate_points import CEILING, CORNERS, RatePoints, carried_rps, gpu_ms, root_nodes
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled, inner
from provision.models.base.heaps import drop_first, push
from provision.models.base.tolerances import FORGIVEN

ROUNDING = 1e-9
"""The relative rounding error of a sum of values."""
RISE = 1e-9
"""A step is a steep line for the search: it begins this fraction of the rate below the step."""


class PlaceValues(NamedTuple):
    """The values of places by class, piecewise linear or step functions of what a replica carries: (classes, levels)
    requests/s, ascending, and the value of a place at each level.
    """

    rps: Floats
    value: Floats


class Effort(NamedTuple):
    """How long a search may take.

    Attributes
    ----------
    nodes
        The most nodes to open.
    close
        The search ends when the bound exceeds the best value by at most this fraction.
    room
        The most patterns to return.
    multipliers
        The number of multipliers that are tried in a node.
    visits
        The most visits of the depth-first search in a node.
    """

    nodes: int
    close: float = 5e-4
    room: int = 5000
    multipliers: int = 6
    visits: int = 2000


class Offers(NamedTuple):
    """The options in a node, those with most units first: units, (offers, corners) values at the corners of the node,
    demands, and the options' numbers among the Choices of the node.
    """

    units: Ints
    value: Floats
    cache: Floats
    power_w: Floats
    one: Ints


class Choices(NamedTuple):
    """Operating points by option: option o has the points ``order[first[o] : first[o + 1]]``. Options are sorted by
    units. The Choices of a node have only the points that are the most valuable of their option somewhere in the node.
    ``copies`` (classes,) limits the replicas of a class in a pattern, if the class shares no option with others.
    """

    order: Ints
    first: Ints
    copies: Ints


class PointPatterns(NamedTuple):
    """Patterns, (patterns, places) as points, and (patterns,) their values. No pattern has a value above ``most``."""

    members: Ints
    value: Floats
    most: int


def choices_of(points: RatePoints, kind: Ints, copies: Ints | None = None, among: Ints | None = None) -> Choices:
    """The options of some points. Classes of the same ``kind`` (classes,) share options; ``copies`` (classes,) may
    limit the replicas of a class that shares none. Only the points ``among`` are used, by default all.
    """
    among = np.arange(len(points.units)) if among is None else among
    keys = np.stack([points.units, kind[points.group], points.model, points.batch])[:, among]
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


@compiled
def best_patterns(points: RatePoints, choices: Choices, values: PlaceValues, floor: int, effort: Effort
                  ) -> PointPatterns:
    """Find patterns of value above ``floor`` and a bound on the value of all patterns.

    Parameters
    ----------
    points, choices
        Operating points, and their options. Only the limits ``copies`` of classes with options of their own count.
    values
        Piecewise linear values of places, (classes, levels), in whole-number units.
    floor
        Patterns must have a higher value. The bound that is returned is at least the floor times 1 + ``effort.close``.
    effort
        When the search ends.
    """
    close, nodes = effort.close, effort.nodes
    members, worth = np.full((effort.room, max(points.most, 1)), NONE), np.zeros(effort.room)
    taken, best, nothing = np.int64(0), float(floor), Choices(choices.order[:0], choices.first[:1], choices.copies)
    heap, waiting = np.empty((2 * points.most + 2 * nodes + 4, 2), np.int64), np.int64(0)
    opened, alive = [Node(0, (0.0, 0.0), (0.0, 0.0), 0.0, 0.0)], [nothing]
    for root in root_nodes(points):
        waiting = push(heap, waiting, np.int64(NEVER), len(opened))
        opened.append(root)
        alive.append(choices)
    while waiting and -heap[0, 0] > max(float(floor), best * (1 + close)) and nodes > 0:
        above, number = -heap[0, 0], heap[0, 1]
        waiting = drop_first(heap, waiting)
        nodes -= 1
        node = opened[number]
        kept, offers = _offers(points, alive[number], values, node)
        alive[number] = nothing
        if not len(offers.units):
            continue
        bound, best, taken, prices = _bounded(points, kept, values, offers, node, floor, best, effort, members, worth,
                                              taken)
        if bound <= max(float(floor), best * (1 + close)):
            continue
        closed, best, taken = _listed(points, kept, values, offers, node, prices, effort.visits, floor, best, close,
                                      members, worth, taken)
        if closed:
            continue
        for half in halves(points, Node(node.size, node.cache, node.power_w, prices[0], prices[1])):
            waiting = push(heap, waiting, -np.int64(np.ceil(min(float(above), bound))), len(opened))
            opened.append(half)
            alive.append(kept)
    most = max(float(-heap[0, 0]) if waiting else 0.0, best * (1 + close) + CEILING)
    return PointPatterns(members[:taken], worth[:taken], int(np.ceil(most)))


@inner
def _bounded(points: RatePoints, choices: Choices, values: PlaceValues, offers: Offers, node: Node, floor: int,
             best: float, effort: Effort, members: Ints, worth: Floats, taken: int
             ) -> tuple[float, float, int, tuple[float, float]]:
    """A bound on the values in a node, the best value so far, the number of patterns, and the prices of demands."""
    limit, count, many = points.limit, node.size, len(offers.units)
    prices, usual = np.array([node.cache_price, node.power_price]), points.gpu.usual
    found, chosen, less = np.inf, prices.copy(), np.empty(many)
    options, pattern = np.empty((2, count), np.int64)
    seen = np.zeros((effort.multipliers, count), np.int64)
    for turn in range(effort.multipliers):
        most, off, off_w = -np.inf, 0.0, 0.0
        for corner in range(CORNERS):
            if corner % 2 and node.power_w[0] == 0.0 and prices[1] == 0.0:
                continue  # power below the cap slows nobody, so both ends are alike
            cache, power_w = node.cache[corner // 2], node.power_w[corner % 2]
            for one in range(many):
                less[one] = (offers.value[one, corner] - prices[0] * offers.cache[one]
                             - prices[1] * offers.power_w[one])
            bound, chosen_of = best_set(offers.units, less, count, limit, -np.inf)
            bound += prices[0] * cache + prices[1] * power_w
            if bound > most:
                most, off, off_w = bound, cache, power_w
                for place, at in enumerate(chosen_of):
                    options[place] = offers.one[at]
                    off, off_w = off - offers.cache[at], off_w - offers.power_w[at]
        if most == -np.inf:
            return most, best, taken, (0.0, 0.0)
        seen[turn], fresh = options, True
        for before in range(turn):
            fresh = fresh and (seen[before] != options).any()
        if fresh and taken < len(worth):
            value = _pattern(points, choices, values, options, pattern)
            if value > floor:
                worth[taken], members[taken, :count] = value, pattern
                best, taken = max(best, value), taken + 1
        if most < found:
            found, chosen = most, prices.copy()
        target = max(float(floor), best * (1 + effort.close))
        if found <= target:
            break
        if node.power_w[0] == 0.0 and off_w > 0:
            off_w = 0.0
        steep = (off / usual[0]) ** 2 + (off_w / usual[1]) ** 2
        if steep < SLIGHT:
            break
        step = (most - target) / steep
        prices[0] -= step * off / usual[0] ** 2
        prices[1] -= step * off_w / usual[1] ** 2
        if node.power_w[0] == 0.0:
            prices[1] = max(prices[1], 0.0)
    return found * (1 + ROUNDING) + CEILING, best, taken, (chosen[0], chosen[1])


@inner
def _listed(points: RatePoints, choices: Choices, values: PlaceValues, offers: Offers, node: Node,
            prices: tuple[float, float], visits: int, floor: int, best: float, close: float, members: Ints,
            worth: Floats, taken: int) -> tuple[bool, float, int]:
    """Search a node depth first. Return whether ``visits`` sufficed, so that no pattern is worth more than the floor
    and 1 + ``close`` times the best value; and the best value and the number of patterns.
    """
    limit, count, many = points.limit, node.size, len(offers.units)
    less = np.empty(many)
    given = max(prices[0] * node.cache[0], prices[0] * node.cache[1])
    given += max(prices[1] * node.power_w[0], prices[1] * node.power_w[1]) + CEILING
    for one in range(many):
        less[one] = (offers.value[one].max() - prices[0] * offers.cache[one] - prices[1] * offers.power_w[one])
    table = np.empty((many + 1, count + 1, limit + 1))
    fill(offers.units, less, table)
    place, used, total = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64), np.zeros(count + 1)
    cache, power_w, depth = np.zeros(count + 1), np.zeros(count + 1), 0
    options, pattern = np.empty((2, count), np.int64)
    while depth >= 0:
        one, free = place[depth], limit - used[depth]
        target = max(float(floor), best * (1 + close)) - given
        if one >= many or total[depth] + table[one, count - depth, free] <= target:
            depth -= 1
            continue
        place[depth] += 1
        rest, child = free - offers.units[one], depth + 1
        if rest < 0 or total[depth] + less[one] + table[one, count - child, rest] <= target:
            continue
        cache[child], power_w[child] = cache[depth] + offers.cache[one], power_w[depth] + offers.power_w[one]
        if cache[child] > node.cache[1] + SLIGHT or power_w[child] > node.power_w[1] + SLIGHT:
            continue
        if _complete(points, choices, options[:depth], offers.one[one]):
            continue
        visits -= 1
        if visits < 0:
            return False, best, taken
        options[depth], used[child], total[child] = offers.one[one], limit - rest, total[depth] + less[one]
        if child < count:
            place[child], depth = one, child
            continue
        value = _pattern(points, choices, values, options, pattern)
        if value > floor and taken < len(worth):
            worth[taken], members[taken, :count] = value, pattern
            taken += 1
        best = max(best, value)
    return True, best, taken


@inner
def _corners(points: RatePoints, choices: Choices, values: PlaceValues, option: int, node: Node, carried: Floats,
             most: Floats) -> None:
    """Lower ``most`` (corners,), which holds an option's highest value in a node, at the corners of the node: the
    option's value is nowhere above the bilinear interpolation of the result. ``carried`` are the requests/s of all
    points of ``choices.order`` at the least demands.

    A rate is convex in cache demand; in power it is concave above the power cap, and is replaced by its tangent. A
    value that is piecewise linear in the rate is replaced by a line that it nowhere exceeds.
    """
    at = choices.order[choices.first[option]]
    (cache, most_cache), (power_w, most_w), own = node.cache, node.power_w, points.cache[at]
    after = points.after_ms[at]
    if not points.straight or points.power_ms[at] != 0 or after < 0 or node.size == 1:
        return
    busy = gpu_ms(points, at, node.size, cache, power_w, -ROUNDED)
    base = points.base_ms[at] + points.kernels[at] * delay_at(points, node.size)
    first, last = base + points.cache_ms[at] * (cache - own), base + points.cache_ms[at] * (most_cache - own)
    clock = 1 - points.gpu.clock_loss * max(points.gpu.idle_w + power_w - points.gpu.cap_w, 0.0)
    if first <= 0 or clock <= 0:
        return
    loss = points.gpu.clock_loss * (most_w - power_w) if points.gpu.idle_w + power_w >= points.gpu.cap_w else 0.0
    start, end = clock / (first + after * clock), clock / (last + after * clock)
    part = (start, start - loss * first / (first + after * clock) ** 2,  # the fractions of 1 request per ms of a batch
            end, end - loss * last / (last + after * clock) ** 2)
    most[:] = 0.0
    for which in range(choices.first[option], choices.first[option + 1]):
        group, hold = points.group[choices.order[which]], busy + after
        rps, value, ceiling = values.rps[group], values.value[group], points.most_rps[group] * (1 + FORGIVEN)
        scale = carried[which] * hold * (1 + FORGIVEN)
        high, low = scale * part[0], max(scale * part[CORNERS - 1], 0.0)
        top = value_at(rps, value, min(high, ceiling))
        slope = np.inf
        if high > low * (1 + FORGIVEN):
            slope = (top - value_at(rps, value, min(low, ceiling))) / (high - low)
            if low < ceiling < high:
                slope = 0.0
            level = np.searchsorted(rps, low, side="right")
            while level < len(rps) and rps[level] < min(high, ceiling):
                slope = min(slope, (top - value[level]) / (high - rps[level]))
                level += 1
        else:
            slope = 0.0
        slope = max(slope, 0.0)
        for corner in range(CORNERS):
            most[corner] = max(most[corner], top - slope * (high - scale * part[corner]))


@inner
def _worth(points: RatePoints, values: PlaceValues, at: int, carried: float) -> float:
    """The value of a point that carries some requests/s, within the limits of bounds; 0 if these are 0."""
    one = points.group[at]
    carried = min(carried, points.most_rps[one])
    return value_at(values.rps[one], values.value[one], carried * (1 + FORGIVEN)) if carried > 0 else 0.0


@inner
def _best_point(points: RatePoints, choices: Choices, values: PlaceValues, option: int, busy: float
                ) -> tuple[int, float]:
    """The most valuable point of an option, and its value."""
    chosen, most = choices.order[choices.first[option]], 0.0
    for which in range(choices.first[option], choices.first[option + 1]):
        one = choices.order[which]
        value = _worth(points, values, one, carried_rps(points, one, busy))
        if value > most:
            chosen, most = one, value
    return chosen, most


@inner
def _offers(points: RatePoints, choices: Choices, values: PlaceValues, node: Node) -> tuple[Choices, Offers]:
    """The undominated options in a node, and the offers that they make. An option dominates another one if it has no
    more units, cache demand and power, its least value in the node is no less than the other's highest, and the number
    of its replicas is not limited, or the two have the same class.
    """
    order, first, kept = np.empty(len(choices.order), np.int64), np.zeros(len(choices.first), np.int64), 0
    ats, taken, highest = np.empty(len(first), np.int64), np.empty((len(first), 3)), np.empty(len(first))
    carried, most, least, least_w = np.empty(len(choices.order)), np.empty(len(choices.order)), np.inf, np.inf
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
        busy, top = gpu_ms(points, at, node.size, node.cache[0], node.power_w[0], -ROUNDED), 0.0
        for which in range(begin, end):
            carried[which] = carried_rps(points, choices.order[which], busy)
            most[which] = _worth(points, values, choices.order[which], carried[which])
            top = max(top, most[which])
        if top <= 0 or _beaten(points, choices, at, top, taken[:kept], ats):
            continue
        busy, lowest = gpu_ms(points, at, node.size, node.cache[1], node.power_w[1], ROUNDED), 0.0
        for which in range(begin, end):
            if most[which] > lowest:
                one = choices.order[which]
                lowest = max(lowest, _worth(points, values, one, carried_rps(points, one, busy)))
        many = first[kept]
        for which in range(begin, end):
            if most[which] >= lowest and most[which] > 0:
                order[many], carried[many], many = choices.order[which], carried[which], many + 1
        ats[kept], highest[kept] = at, top
        taken[kept, 0], taken[kept, 1], taken[kept, 2] = lowest, cache, power_w
        kept += 1
        first[kept] = many
    narrowed = Choices(order[:first[kept]].copy(), first[:kept + 1].copy(), choices.copies)
    back = np.arange(kept - 1, -1, -1)
    corners = np.empty((kept, CORNERS))
    for one in range(kept):
        corners[one] = highest[back[one]]
        _corners(points, narrowed, values, back[one], node, carried, corners[one])
    return narrowed, Offers(points.units[ats[back]], corners, points.cache[ats[back]], points.power_w[ats[back]], back)


@inner
def _beaten(points: RatePoints, choices: Choices, at: int, top: float, taken: Floats, ats: Ints) -> bool:
    """Whether another option dominates an option with the highest value ``top``. ``taken`` (others, 3) are the others'
    least values, cache demands and power; ``at`` and ``ats`` are the first points of the option and of the others.
    """
    cache, power_w, one = points.cache[at], points.power_w[at], points.group[at]
    for other in range(len(taken)):
        if taken[other, 0] >= top and taken[other, 1] <= cache and taken[other, 2] <= power_w:
            its = points.group[ats[other]]
            if its == one or choices.copies[its] >= points.most:
                return True
    return False


@inner
def _complete(points: RatePoints, choices: Choices, options: Ints, option: int) -> bool:
    """Whether some options have as many replicas of the class of a further option as ``copies`` allows."""
    times, one = 0, points.group[choices.order[choices.first[option]]]
    for other in options:
        times += points.group[choices.order[choices.first[other]]] == one
    return times >= choices.copies[one]


@inner
def _pattern(points: RatePoints, choices: Choices, values: PlaceValues, options: Ints, members: Ints) -> float:
    """The value of the pattern of some options, 0 if it is infeasible; its points are written to ``members``."""
    count, cache, power_w, total = len(options), 0.0, 0.0, 0.0
    for place, option in enumerate(options):
        if _complete(points, choices, options[:place], option):
            return 0.0
        first = choices.order[choices.first[option]]
        cache, power_w = cache + points.cache[first], power_w + points.power_w[first]
    for place in range(count):
        first = choices.order[choices.first[options[place]]]
        busy = gpu_ms(points, first, count, cache, power_w, -ROUNDED)
        members[place], value = _best_point(points, choices, values, options[place], busy)
        if value <= 0:
            return 0.0
        total += value
    return total
