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

import math
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE, ROUNDED
from provision.formulations.pricing.mps.offers import (
    NODE,
    Choices,
    PlaceValues,
    best_point,
    best_set,
    complete,
    fill,
    offers_in,
    root_nodes,
    worth_of,
    write_halves,
)
from provision.formulations.pricing.mps.rate_points import SLIGHT, RatePoints, gpu_ms
from provision.formulations.pricing.schedule import Effort
from provision.models.base.arrays import Floats, Ints, Record, Records
from provision.models.base.compiled import compiled, inner
from provision.models.base.heaps import drop_first, push

NEVER = -(1 << 60)
CEILING = 1e-6
"""This is added to a value before it is rounded up to a whole number, so that rounding errors cannot lower it."""
ROUNDING = 1e-9
"""The relative rounding error of a sum of values."""
ROOM = 5000
"""The most patterns that a search returns."""
MULTIPLIERS = 6
"""The number of multipliers that are tried in a node."""


class Found(NamedTuple):
    """The patterns that a search has found. Patterns of at most the value ``floor`` are not kept.

    ``members`` (room, places) are their points, NONE at empty places, and ``value`` (room,) their values. ``taken``
    (1,) is their number, and ``best`` (1,) the highest value, at least the floor.
    """

    members: Ints
    value: Floats
    taken: Ints
    best: Floats
    floor: int


def best_patterns(points: RatePoints, choices: Choices, values: PlaceValues, floor: int, effort: Effort
                  ) -> tuple[Ints, Floats, int]:
    """Find patterns of a value above ``floor``. Return their points (patterns, places), NONE at empty places; their
    values (patterns,); and a bound on the value of all patterns.

    Parameters
    ----------
    points, choices
        Operating points, and their options. Only the limits ``copies`` of classes with options of their own count.
    values
        Piecewise linear values of places, (classes, levels), in whole-number units.
    floor
        Patterns must have a higher value; not negative. The bound that is returned is at least the floor.
    effort
        When the search ends.
    """
    found = Found(np.full((ROOM, max(points.most, 1)), NONE), np.zeros(ROOM), np.zeros(1, int),
                  np.full(1, float(floor)), floor)
    options = np.arange(len(choices.first) - 1)
    roots = root_nodes(points, len(options))
    nodes = np.concatenate([roots, np.recarray(2 * effort.nodes, NODE)])
    heap = np.stack([np.full(len(nodes), NEVER), np.arange(len(nodes))], axis=1)
    most = _searched(points, choices, values, options, nodes, heap, len(roots), effort, found)
    return found.members[:found.taken[0]], found.value[:found.taken[0]], math.ceil(most)


@compiled
def _searched(points: RatePoints, choices: Choices, values: PlaceValues, options: Ints, nodes: Records, heap: Ints,
              many: int, effort: Effort, found: Found) -> float:
    """Do the search of ``best_patterns``, and return the bound.

    The first ``many`` nodes are to be opened, and stand in the ``heap``. ``options`` lists the options of all nodes.
    """
    waiting, close, listed = many, 1 + effort.close, len(options)
    for _ in range(effort.nodes):
        if not waiting or -heap[0, 0] <= found.best[0] * close:
            break
        above, node = -heap[0, 0], nodes[heap[0, 1]]
        waiting = drop_first(heap, waiting)
        offers = offers_in(points, choices, values, options[node.first:node.end], node)
        if not len(offers):
            continue
        bound = _bounded(points, choices, values, offers, node, effort, found)
        if bound <= found.best[0] * close:
            continue
        most = _listed(points, choices, values, offers, node, effort, found)
        if most == -np.inf:
            continue
        if listed + len(offers) > len(options):
            options = np.append(options, np.empty(len(options) + len(offers), np.int64))
        node.first, node.end = listed, listed + len(offers)
        for at in range(len(offers)):
            options[node.end - 1 - at] = offers[at].option
        listed = node.end
        write_halves(points, node, nodes[many], nodes[many + 1])
        for _ in range(2):
            waiting = push(heap, waiting, -np.int64(np.ceil(min(above, bound, most))), many)
            many += 1
    most = found.best[0] * close + (CEILING if found.best[0] > found.floor else 0.0)
    return max(most, float(-heap[0, 0])) if waiting else most


@inner
def _bounded(points: RatePoints, choices: Choices, values: PlaceValues, offers: Records, node: Record,
             effort: Effort, found: Found) -> float:
    """A bound on the values in a node, whose multipliers are replaced by those of the bound. The patterns of the
    knapsacks are added to those found.
    """
    count, gpu, cache_price, price_w = node.replicas, points.gpu[0], node.cache_price, node.price_w
    least, less, each = np.inf, np.empty(len(offers)), np.empty((2, count))
    pattern, options = np.empty(count, np.int64), np.empty(count, np.int64)
    for _ in range(MULTIPLIERS):
        for at in range(len(offers)):
            less[at] = offers[at].value - cache_price * offers[at].cache - price_w * offers[at].power_w
        most, chosen = best_set(offers, less, count, points.limit)
        if most == -np.inf:
            return most
        off = node.most_cache if cache_price > 0 else node.least_cache
        off_w = node.most_w if price_w > 0 else node.least_w
        most += cache_price * off + price_w * off_w
        for place in range(count):
            one = offers[chosen[place]]
            options[place], off, off_w = one.option, off - one.cache, off_w - one.power_w
        if found.taken[0] < len(found.value):
            _keep(found, pattern, _pattern(points, choices, values, options, pattern, each))
        if most < least:
            least, node.cache_price, node.price_w = most, cache_price, price_w
        target = found.best[0] * (1 + effort.close)
        if least <= target:
            break
        if node.least_w == 0.0 and off_w > 0:
            off_w = 0.0
        steep = (off / gpu.usual_cache) ** 2 + (off_w / gpu.usual_w) ** 2
        if steep < SLIGHT:
            break
        step = (most - target) / steep
        cache_price -= step * off / gpu.usual_cache ** 2
        price_w -= step * off_w / gpu.usual_w ** 2
        if node.least_w == 0.0:
            price_w = max(price_w, 0.0)
    return least * (1 + ROUNDING) + CEILING


@inner
def _keep(found: Found, pattern: Ints, value: float) -> None:
    """Add a pattern of a value above the floor to those found, in place of the last one if there is no room."""
    if value <= found.floor:
        return
    row = min(found.taken[0], len(found.value) - 1)
    found.value[row], found.taken[0], found.best[0] = value, row + 1, max(found.best[0], value)
    for place in range(found.members.shape[1]):
        found.members[row, place] = pattern[place] if place < len(pattern) else NONE


@inner
def _listed(points: RatePoints, choices: Choices, values: PlaceValues, offers: Records, node: Record, effort: Effort,
            found: Found) -> float:
    """Search a node depth first, and add to the patterns found. Return minus infinity if the visits sufficed, so that
    no pattern is worth more than the floor and 1 + ``close`` times the best value; else a bound on the values.

    The offers of one class stand together. ``done`` is the joint value of all classes before the present one; ``own``
    and ``room`` bound that of the class itself. The knapsack adds what the prices of demands give (``given``).
    """
    limit, count, many, visits = points.limit, node.replicas, len(offers), effort.visits
    cache_price, price_w, limited = node.cache_price, node.price_w, values.together.min() < np.inf
    if limited:  # the limits of classes cut off most value when demands have no prices
        cache_price = price_w = 0.0
    less, beside = np.empty(many), np.empty(many)
    for at in range(many):
        taken = cache_price * offers[at].cache + price_w * offers[at].power_w
        less[at], beside[at] = offers[at].value - taken, offers[at].beside - taken
    best = np.empty((many, count + 1, limit + 1))
    more = np.empty((len(values.together) if limited else 0, count + 1, limit + 1))
    fill(offers, less, beside, values.together, choices.copies, best, more)
    given = max(cache_price * node.least_cache, cache_price * node.most_cache)
    given += max(price_w * node.least_w, price_w * node.most_w) + CEILING
    options, pattern, each, depth = np.empty(count, np.int64), np.empty(count, np.int64), np.empty((2, count)), 0
    place, used = np.empty(count + 1, np.int64), np.empty(count + 1, np.int64)
    done, own, room = np.empty(count + 1), np.empty(count + 1), np.empty(count + 1)
    cache, power_w = np.empty(count + 1), np.empty(count + 1)
    place[0] = used[0] = 0
    done[0] = own[0] = room[0] = cache[0] = power_w[0] = 0.0
    while depth >= 0:
        one, free = place[depth], limit - used[depth]
        target = found.best[0] * (1 + effort.close) - given
        if one >= many:
            depth -= 1
            continue
        before, here, left, group = done[depth], own[depth], room[depth], offers[one].limited
        if not depth or group != offers[place[depth - 1] - 1].limited:
            before, here, left = before + min(here, left), 0.0, values.together[group] if group >= 0 else np.inf
        most = here + best[one, count - depth, free]
        if group >= 0:
            most = min(most, left + more[group, count - depth, free])
        if before + most <= target:
            depth -= 1
            continue
        place[depth] += 1
        rest, child = free - offers[one].units, depth + 1
        if rest < 0:
            continue
        here += less[one]
        most = here + best[one, count - child, rest]
        if group >= 0:
            left += beside[one]
            most = min(most, left + more[group, count - child, rest])
        if before + most <= target:
            continue
        cache[child], power_w[child] = cache[depth] + offers[one].cache, power_w[depth] + offers[one].power_w
        if cache[child] > node.most_cache + SLIGHT or power_w[child] > node.most_w + SLIGHT:
            continue
        if complete(points, choices, options[:depth], offers[one].option):
            continue
        visits -= 1
        if visits < 0:
            return (best[0, count, limit] + given) * (1 + ROUNDING)
        options[depth], used[child] = offers[one].option, limit - rest
        done[child], own[child], room[child] = before, here, left
        if child < count:
            place[child], depth = one, child
            continue
        value = _pattern(points, choices, values, options, pattern, each)
        if value > found.best[0] or found.taken[0] < len(found.value):
            _keep(found, pattern, value)
    return -np.inf


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
        cache, power_w = cache + points.at[first].cache, power_w + points.at[first].power_w
    for place in range(count):
        first = choices.order[choices.first[options[place]]]
        busy = gpu_ms(points, points.at[first], count, cache, power_w, -ROUNDED)
        members[place], each[0, place] = best_point(points, choices, values, options[place], busy)
        if each[0, place] <= 0:
            return 0.0
        each[1, place] = worth_of(points, values.rps, values.beside, members[place], busy)
    for place in range(count):
        group, own, earlier = points.at[members[place]].group, 0.0, False
        room = values.together[group]
        for other in range(count):
            if points.at[members[other]].group == group:
                own, room, earlier = own + each[0, other], room + each[1, other], earlier or other < place
        total += 0.0 if earlier else min(own, room)
    return total
