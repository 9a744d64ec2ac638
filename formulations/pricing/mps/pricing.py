"""Exact pricing of patterns on one GPU under interference, where the value of a replica grows with its rate.

Any function of the rate that a replica can carry serves, one for each class of replicas (``PlaceValues``). If each
workload has one replica, it has a step at the rate of each workload. What the replicas of one class are worth together
may be limited: patterns that carry rates count no more than the rate of each workload.

The search is a best-first branch and bound over ``nodes``: ranges of the number, the total cache demand and the total
power of the replicas. The options of a node (``offers``) make a knapsack, which bounds the node. Limits on demands are
relaxed with multipliers (Lagrangian relaxation, Geoffrion 1974), which Polyak's step rule improves. The knapsack's best
offers are a pattern, whose value is then computed. A node whose bound exceeds the best true value is searched depth
first for some visits, and then cut in two.
"""

from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE, ROUNDED
from provision.formulations.pricing.mps.nodes import (
    SLIGHT,
    Node,
    best_set,
    fill,
    halves,
    root_nodes,
)
from provision.formulations.pricing.mps.offers import (
    Choices,
    Offers,
    PlaceValues,
    best_point,
    complete,
    offers_in,
    worth_of,
)
from provision.formulations.pricing.mps.rate_points import RatePoints, carried_rps, gpu_ms
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled, inner
from provision.models.base.heaps import drop_first, push

NEVER = -(1 << 60)
CEILING = 1e-6
"""This is added to a value before it is rounded up to a whole number, so that rounding errors cannot lower it."""
ROUNDING = 1e-9
"""The relative rounding error of a sum of values."""


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


class PointPatterns(NamedTuple):
    """Patterns, (patterns, places) as points, and (patterns,) their values. No pattern has a value above ``most``."""

    members: Ints
    value: Floats
    most: int


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
        Patterns must have a higher value. The bound that is returned is at least the floor.
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
        kept, offers = offers_in(points, alive[number], values, node)
        alive[number] = nothing
        if not len(offers.units):
            continue
        bound, best, taken, prices = _bounded(points, kept, values, offers, node, floor, best, effort, members, worth,
                                              taken)
        if bound <= max(float(floor), best * (1 + close)):
            continue
        sack = _knapsack(points, kept, values, offers, node, prices)
        if sack.most > bound and len(sack.more):
            # Limits on classes cut off most value when demands have no prices.
            free = _knapsack(points, kept, values, offers, node, (0.0, 0.0))
            sack = free if free.most < sack.most else sack
        closed, best, taken = _listed(points, kept, values, offers, node, sack, effort.visits, floor, best, close,
                                      members, worth, taken)
        if closed:
            continue
        bound = min(bound, sack.most)
        for half in halves(points, Node(node.size, node.cache, node.power_w, prices[0], prices[1])):
            waiting = push(heap, waiting, -np.int64(np.ceil(min(float(above), bound))), len(opened))
            opened.append(half)
            alive.append(kept)
    most = max(float(-heap[0, 0]) if waiting else 0.0, best * (1 + close) + (CEILING if best > floor else 0.0))
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
    each, seen = np.empty((2, count)), np.zeros((effort.multipliers, count), np.int64)
    for turn in range(effort.multipliers):
        for one in range(many):
            less[one] = offers.value[one] - prices[0] * offers.cache[one] - prices[1] * offers.power_w[one]
        most, chosen_of = best_set(offers.units, less, count, limit)
        if most == -np.inf:
            return most, best, taken, (0.0, 0.0)
        off = node.cache[1] if prices[0] > 0 else node.cache[0]
        off_w = node.power_w[1] if prices[1] > 0 else node.power_w[0]
        most += prices[0] * off + prices[1] * off_w
        for place, at in enumerate(chosen_of):
            options[place] = offers.one[at]
            off, off_w = off - offers.cache[at], off_w - offers.power_w[at]
        if _new(seen, turn, options) and taken < len(worth):
            value = _pattern(points, choices, values, options, pattern, each)
            if value > floor:
                _keep(members, worth, taken, pattern, value)
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
def _new(seen: Ints, turn: int, options: Ints) -> bool:
    """Whether ``options`` differ from the first ``turn`` rows of ``seen``, to which they are added."""
    new = True
    for place in range(len(options)):
        seen[turn, place] = options[place]
    for before in range(turn):
        place = 0
        while place < len(options) and seen[before, place] == options[place]:
            place += 1
        new = new and place < len(options)
    return new


@inner
def _keep(members: Ints, worth: Floats, row: int, pattern: Ints, value: float) -> None:
    """Write a pattern and its value to a row; places beyond it are empty."""
    worth[row] = value
    for place in range(members.shape[1]):
        members[row, place] = pattern[place] if place < len(pattern) else NONE


class Knapsack(NamedTuple):
    """The values of a node's offers, (offers,), less the prices of their demands: ``less``, and ``beside`` once the
    limit of their class is reached. ``best`` and ``more`` are the tables of ``fill``; a value in them plus ``given`` is
    a bound. No pattern has a value above ``most``.
    """

    less: Floats
    beside: Floats
    best: Floats
    more: Floats
    given: float
    most: float


@inner
def _knapsack(points: RatePoints, choices: Choices, values: PlaceValues, offers: Offers, node: Node,
              prices: tuple[float, float]) -> Knapsack:
    """The Knapsack of a node at the prices of cache demand and of power."""
    many, (cache_price, power_price) = len(offers.units), prices
    less, beside, limited = np.empty(many), np.empty(many), -1
    for one in range(many):
        taken = cache_price * offers.cache[one] + power_price * offers.power_w[one]
        less[one], beside[one] = offers.value[one] - taken, offers.beside[one] - taken
        limited = max(limited, offers.limited[one])
    given = max(cache_price * node.cache[0], cache_price * node.cache[1])
    given += max(power_price * node.power_w[0], power_price * node.power_w[1]) + CEILING
    best = np.empty((many, node.size + 1, points.limit + 1))
    more = np.empty((len(values.together) if limited >= 0 else 0, node.size + 1, points.limit + 1))
    fill(offers.units, less, beside, offers.limited, values.together, choices.copies, best, more)
    return Knapsack(less, beside, best, more, given, (best[0, node.size, points.limit] + given) * (1 + ROUNDING))


@inner
def _listed(points: RatePoints, choices: Choices, values: PlaceValues, offers: Offers, node: Node, sack: Knapsack,
            visits: int, floor: int, best: float, close: float, members: Ints, worth: Floats, taken: int
            ) -> tuple[bool, float, int]:
    """Search a node depth first. Return whether ``visits`` sufficed, so that no pattern is worth more than the floor
    and 1 + ``close`` times the best value; and the best value and the number of patterns.

    The offers of one class stand together. ``done`` is the joint value of all classes before the present one; ``own``
    and ``room`` bound that of the class itself.
    """
    limit, count, many = points.limit, node.size, len(offers.units)
    place, used, depth = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64), 0
    done, own, room = np.zeros(count + 1), np.zeros(count + 1), np.zeros(count + 1)
    cache, power_w = np.zeros(count + 1), np.zeros(count + 1)
    options, pattern = np.empty((2, count), np.int64)
    each = np.empty((2, count))
    while depth >= 0:
        one, free = place[depth], limit - used[depth]
        target = max(float(floor), best * (1 + close)) - sack.given
        if one >= many:
            depth -= 1
            continue
        before, here, left, group = done[depth], own[depth], room[depth], offers.limited[one]
        if not depth or group != offers.limited[place[depth - 1] - 1]:
            before, here, left = before + min(here, left), 0.0, values.together[group] if group >= 0 else np.inf
        most = here + sack.best[one, count - depth, free]
        if group >= 0:
            most = min(most, left + sack.more[group, count - depth, free])
        if before + most <= target:
            depth -= 1
            continue
        place[depth] += 1
        rest, child = free - offers.units[one], depth + 1
        if rest < 0:
            continue
        here += sack.less[one]
        most = here + sack.best[one, count - child, rest]
        if group >= 0:
            left += sack.beside[one]
            most = min(most, left + sack.more[group, count - child, rest])
        if before + most <= target:
            continue
        cache[child], power_w[child] = cache[depth] + offers.cache[one], power_w[depth] + offers.power_w[one]
        if cache[child] > node.cache[1] + SLIGHT or power_w[child] > node.power_w[1] + SLIGHT:
            continue
        if complete(points, choices, options[:depth], offers.one[one]):
            continue
        visits -= 1
        if visits < 0:
            return False, best, taken
        options[depth], used[child] = offers.one[one], limit - rest
        done[child], own[child], room[child] = before, here, left
        if child < count:
            place[child], depth = one, child
            continue
        value = _pattern(points, choices, values, options, pattern, each)
        if value > best or (value > floor and taken < len(worth)):
            taken = min(taken + 1, len(worth))
            _keep(members, worth, taken - 1, pattern, value)
        best = max(best, value)
    return True, best, taken


@inner
def _pattern(points: RatePoints, choices: Choices, values: PlaceValues, options: Ints, members: Ints, each: Floats
             ) -> float:
    """An upper bound on the value of a pattern, given as options; 0 if it is infeasible. It is the value itself, unless
    requests/s and bonuses are limited together. The points are written to ``members``, the values of replicas and those
    beside others of their class to ``each`` (2, replicas).
    """
    count, cache, power_w, total = len(options), 0.0, 0.0, 0.0
    for place, option in enumerate(options):
        if complete(points, choices, options[:place], option):
            return 0.0
        first = choices.order[choices.first[option]]
        cache, power_w = cache + points.cache[first], power_w + points.power_w[first]
    for place in range(count):
        first = choices.order[choices.first[options[place]]]
        busy = gpu_ms(points, first, count, cache, power_w, -ROUNDED)
        members[place], each[0, place] = best_point(points, choices, values, options[place], busy)
        if each[0, place] <= 0:
            return 0.0
        if values.together[points.group[members[place]]] < np.inf:
            carried = carried_rps(points, members[place], busy)
            each[1, place] = worth_of(points, values.rps, values.beside, members[place], carried)
    for place in range(count):
        group, own, earlier = points.group[members[place]], 0.0, False
        room = values.together[group]
        if room == np.inf:
            total += each[0, place]
            continue
        for other in range(count):
            if points.group[members[other]] == group:
                own, room, earlier = own + each[0, other], room + each[1, other], earlier or other < place
        total += 0.0 if earlier else min(own, room)
    return total
