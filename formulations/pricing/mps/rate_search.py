"""Exact pricing of patterns that carry rates: the pattern of highest value on a whole GPU, at given prices.

The search is a best-first branch and bound over ``nodes``: ranges of the number, total cache demand and total power of
the replicas. In a node, an operating point has the value of the rate that it carries beside the least demands of the
node. A knapsack bounds the node; in it, the replicas of one group together count for no more than the group's rate. A
depth-first search lists the patterns whose bound exceeds the best values known, and computes what each pattern really
carries. A node with too many patterns is cut in two.
"""

import math
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import ROUNDED, clock_at
from provision.formulations.pricing.mps.nodes import NEVER, Node, halves, relaxed
from provision.formulations.pricing.mps.options import SLIGHT, Offers
from provision.formulations.pricing.mps.rate_points import RatePoints, carried_rps, gpu_ms
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled
from provision.models.base.heaps import drop_first, push

CORNERS = 4
"""The number of corners of a node: least and most cache demand, each with least and most power."""
CHORD = 1e-6
"""The fraction by which falls of rates are reduced, so that rounding errors do not matter."""
CEILING = 1e-6
"""This is added to a value before it is rounded up to a whole number, so that rounding errors cannot lower it."""


class Prices(NamedTuple):
    """(groups,) the value of a request/s that counts, and of a replica itself (negative if it costs), in whole-number
    units.
    """

    per_rps: Floats
    bonus: Floats


class Found(NamedTuple):
    """The patterns found: ``members`` (patterns, places) are points, ``size`` (patterns,) numbers of replicas.

    No pattern has a value above ``most``.
    """

    members: Ints
    size: Ints
    most: int


class _Choice(NamedTuple):
    """The offers of a node, sorted by group: their points ``at``, the price ``paid`` for their demands at the
    multipliers, and ``value``, their value less this price.

    ``best[a, n, u]`` is the highest total value of n offers from a on in u units. ``last[g, n, u]`` is that of up to n
    offers of the groups from g on. In both, each later group counts for at most its ``caps`` less what its offers pay.
    The true value of a pattern exceeds the sum of its groups' values by at most ``allowance``.
    """

    at: Ints
    value: Ints
    paid: Ints
    caps: Ints
    best: Ints
    last: Ints
    allowance: int


@compiled
def search(points: RatePoints, prices: Prices, floor: int, nodes: int, visits: int, room: int) -> Found:
    """Find patterns of value above ``floor``: for every group the best pattern in which it comes first, and others.

    Parameters
    ----------
    points
        RatePoints.
    prices
        The values of rates and replicas.
    floor
        The value that patterns must exceed.
    nodes, visits
        The most nodes to open, and the most visits of the depth-first search in each node.
    room
        The most patterns to return.
    """
    groups, everything = len(prices.per_rps), np.arange(len(points.units))
    members, sizes = np.empty((room, max(points.most, 1)), np.int64), np.empty(room, np.int64)
    taken, target = np.zeros(1, np.int64), np.full(groups, floor)
    heap, waiting = np.empty((2 * points.most + 2 * nodes + 4, 2), np.int64), 0
    opened, alive = [Node(0, (0.0, 0.0), (0.0, 0.0), 0.0, 0.0)], [everything[:0]]
    full_w = max(points.cap_w - points.idle_w, 0.0)
    cache, power_w = _most_together(points, points.cache), _most_together(points, points.power_w)
    for count in range(1, points.most + 1 if len(everything) else 1):
        for least_w, most_w in ((0.0, full_w), (full_w, max(power_w[count], full_w))):
            waiting = push(heap, waiting, NEVER, len(opened))
            opened.append(Node(count, (0.0, max(cache[count], 0.0)), (least_w, most_w), 0.0, 0.0))
            alive.append(everything)
    while waiting and -heap[0, 0] > floor and nodes > 0 and taken[0] < room:
        bound, number = -heap[0, 0], heap[0, 1]
        waiting = drop_first(heap, waiting)
        nodes -= 1
        node = opened[number]
        at, value, falls = _offers(points, prices, alive[number], node)
        alive[number] = everything[:0]
        if not len(at):
            continue
        order = np.argsort(-points.units[at], kind="mergesort")
        least = _least_falls(points, prices, at, value, falls, node, floor, bound)
        loose = relaxed(points, Offers(points.units[at[order]], value[order], points.cache[at[order]],
                                       points.power_w[at[order]], at[order]), node, floor, least)
        if loose.most <= floor:
            continue
        choice = _choice(points, prices, at, value, loose.node, loose.allowance)
        if _most_of(points, choice, node) > min(loose.most, choice.caps.sum()):
            # Limits on groups cut off little value at high multipliers, and most without any. So the knapsack is also
            # solved without multipliers, and the better bound is kept.
            free = _choice(points, prices, at, value, Node(node.size, node.cache, node.power_w, 0.0, 0.0), 1)
            choice = free if _most_of(points, free, node) < _most_of(points, choice, node) else choice
        most = min(bound, loose.most, _most_of(points, choice, node))
        if most <= floor:
            continue
        if not _listed(points, prices, choice, loose.node, visits, members, sizes, taken, target):
            for half in halves(points, loose.node):
                waiting = push(heap, waiting, -most, len(opened))
                opened.append(half)
                alive.append(at)
    left = -heap[0, 0] if waiting else np.int64(floor)
    return Found(members[: taken[0]], sizes[: taken[0]], max(left, target.max()))


@compiled
def _most_of(points: RatePoints, choice: _Choice, node: Node) -> int:
    """An upper bound on the value of every pattern in a node, by the node's knapsack."""
    return int(choice.last[0, node.size, points.limit]) + choice.allowance


@compiled
def _most_together(points: RatePoints, demand: Floats) -> Floats:
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


@compiled
def _offers(points: RatePoints, prices: Prices, alive: Ints, node: Node) -> tuple[Ints, Ints, Floats]:
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
            rps[many, corner] = min(carried, points.most_rps[one]) if carried >= points.least_rps[one] else 0.0
        worth = np.int64(np.ceil(prices.per_rps[one] * rps[many, 0] + prices.bonus[one] + CEILING))
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
        falls[many, 0], falls[many, 1] = prices.per_rps[one] * fall[0], prices.per_rps[one] * fall[1]
        many += 1
    return kept[:many].copy(), value[:many].copy(), falls[:many].copy()


@compiled
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
    if points.power_w[at] <= power_w < most_w and points.idle_w + power_w >= points.cap_w and points.power_ms[at] == 0:
        by_power = rps * busy[0] / hold * points.clock_loss / clock_at(points, power_w)
    return max(by_cache * (1 - CHORD), 0.0), max(by_power * (1 - CHORD), 0.0)


@compiled
def _least_falls(points: RatePoints, prices: Prices, at: Ints, value: Ints, falls: Floats, node: Node, floor: int,
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


@compiled
def _replaces(points: RatePoints, one: int, busy: Floats, rps: Floats, other: int, its_busy: Floats, its_rps: Floats
              ) -> bool:
    """Whether a point carries no less than another point everywhere in a node, given times on the GPU and rates at
    corners.

    If the time per request is linear in cache demand and in the reciprocal of the clock, it suffices to compare the
    corners. Otherwise, the point must carry at its worst corner what the other point carries at its best corner.
    """
    if points.cache[one] > points.cache[other] or points.power_w[one] > points.power_w[other]:
        return False
    if not points.straight:
        return bool(rps[CORNERS - 1] >= its_rps[0])
    for corner in range(CORNERS):
        later = busy[corner] * points.room_ms[other] > its_busy[corner] * points.room_ms[one]
        if later or rps[corner] < its_rps[corner]:
            return False
    return True


@compiled
def _choice(points: RatePoints, prices: Prices, at: Ints, value: Ints, node: Node, allowance: int) -> _Choice:
    """The knapsack of a node at the multipliers of its cache demand and power."""
    groups, limit, count, many = len(prices.per_rps), points.limit, node.size, len(at)
    caps = np.empty(groups, np.int64)
    for group in range(groups):
        caps[group] = np.int64(np.ceil(prices.per_rps[group] * points.total_rps[group]
                                       + max(prices.bonus[group], 0.0) * count + CEILING))
    less, paid = np.empty(many, np.int64), np.empty(many, np.int64)
    for one in range(many):
        taken = node.cache_price * points.cache[at[one]] + node.power_price * points.power_w[at[one]]
        paid[one] = np.int64(np.floor(taken))
        less[one] = value[one] - paid[one]
    best = np.empty((many, count + 1, limit + 1), np.int64)
    last = np.empty((groups + 1, count + 1, limit + 1), np.int64)
    exact, own = np.empty((count + 1, limit + 1), np.int64), np.empty((count + 1, limit + 1), np.int64)
    owed = np.empty((count + 1, limit + 1), np.int64)
    exact[:], exact[0] = NEVER, 0
    last[groups] = 0
    end = many
    for group in range(groups - 1, -1, -1):
        begin = end
        while begin > 0 and points.group[at[begin - 1]] == group:
            begin -= 1
        own[:], own[0], owed[:], owed[0] = NEVER, 0, NEVER, 0
        for one in range(end - 1, begin - 1, -1):
            best[one] = exact if one == end - 1 else best[one + 1]
            _take(best[one], points.units[at[one]], less[one])
            _take(own, points.units[at[one]], less[one])
            _take(owed, points.units[at[one]], -paid[one])
        if begin < end:
            exact = _joined(exact, np.minimum(own, caps[group] + owed), points.copies[group])
        last[group] = exact
        for number in range(1, count + 1):
            for units in range(limit + 1):
                last[group, number, units] = max(last[group, number, units], last[group, number - 1, units])
        end = begin
    return _Choice(at, less, paid, caps, best, last, allowance)


@compiled
def _take(table: Ints, units: int, value: int) -> None:
    """Allow an offer any number of times in ``table``: entry [n, u] is the highest value of n offers in u units."""
    for number in range(1, table.shape[0]):
        for total in range(units, table.shape[1]):
            table[number, total] = max(table[number, total], table[number - 1, total - units] + value)


@compiled
def _joined(others: Ints, own: Ints, copies: int) -> Ints:
    """The highest values of offers when one more group is allowed, of which ``own`` are the highest values."""
    counts, limits = own.shape
    joined = others.copy()
    for number in range(1, min(counts, copies + 1)):
        before = np.int64(NEVER)
        for units in range(1, limits):
            worth = own[number, units]
            if worth <= before or worth < NEVER // 2:
                continue
            before = worth
            for further in range(counts - number):
                for total in range(limits - units):
                    joined[number + further, total + units] = max(joined[number + further, total + units],
                                                                  others[further, total] + worth)
    return joined


@compiled
def _listed(points: RatePoints, prices: Prices, choice: _Choice, node: Node, visits: int, members: Ints, sizes: Ints,
            taken: Ints, target: Ints) -> bool:
    """Record the patterns of a node whose value exceeds ``target``; return whether the list is complete."""
    count, limit, many = node.size, points.limit, len(choice.at)
    chosen, place, used = np.empty(count, np.int64), np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    before, own, times = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    owed, cache, power_w, depth = np.zeros(count + 1, np.int64), np.zeros(count + 1), np.zeros(count + 1), 0
    while depth >= 0:
        one, free, left = place[depth], limit - used[depth], count - depth
        if one >= many:
            depth -= 1
            continue
        at = choice.at[one]
        group = points.group[at]
        last = points.group[chosen[depth - 1]] if depth else np.int64(-1)
        done, here, again, room = before[depth], own[depth], times[depth], choice.caps[group] - owed[depth]
        if group != last:
            done += min(own[depth], choice.caps[last] - owed[depth]) if depth else 0
            here, again, room = np.int64(0), np.int64(0), choice.caps[group]
        first = points.group[chosen[0]] if depth else group
        needed = target[first] - choice.allowance
        if done + here + choice.best[one, left, free] <= needed:
            if depth or one + 1 >= many or not _later(points, choice, one, done, left, free, target):
                depth -= 1
            else:
                place[0] += 1
            continue
        place[depth] += 1
        rest, child = free - points.units[at], depth + 1
        if rest < 0 or again >= points.copies[group]:
            continue
        most = here + choice.value[one] + choice.best[one, left - 1, rest]
        room -= choice.paid[one]
        if done + min(most, room + choice.last[group + 1, left - 1, rest]) <= needed:
            continue
        cache[child], power_w[child] = cache[depth] + points.cache[at], power_w[depth] + points.power_w[at]
        if cache[child] > node.cache[1] + SLIGHT or power_w[child] > node.power_w[1] + SLIGHT:
            continue
        visits -= 1
        if visits < 0:
            return False
        chosen[depth], used[child] = at, limit - rest
        before[child], own[child], times[child] = done, here + choice.value[one], again + 1
        owed[child] = choice.caps[group] - room
        if child < count:
            place[child], depth = one, child
            continue
        worth = worth_of(points, prices, chosen, cache[child], power_w[child])
        if worth > target[first]:
            target[first] = worth
            members[taken[0], :count], sizes[taken[0]] = chosen, count
            taken[0] += 1
            if taken[0] == len(sizes):
                return False
    return True


@compiled
def _later(points: RatePoints, choice: _Choice, one: int, done: int, left: int, free: int, target: Ints) -> bool:
    """Whether some pattern that begins with a later group than the given offer's may exceed that group's target."""
    for other in range(one + 1, len(choice.at)):
        group = points.group[choice.at[other]]
        if done + choice.best[other, left, free] > target[group] - choice.allowance:
            return True
    return False


@compiled
def worth_of(points: RatePoints, prices: Prices, members: Ints, cache: float, power_w: float) -> int:
    """The value of a pattern, rounded up; 0 if it violates an SLO.

    ``members`` are in the order of their groups. ``cache`` and ``power_w`` are the total demands of all members.
    """
    worth, rps, group = 0.0, 0.0, np.int64(-1)
    for at in members:
        carried = carried_rps(points, at, gpu_ms(points, at, len(members), cache, power_w, -ROUNDED))
        one = points.group[at]
        if carried <= 0 or carried < points.least_rps[one]:
            return 0
        if one != group:
            if group >= 0:
                worth += prices.per_rps[group] * min(rps, points.total_rps[group])
            group, rps = one, 0.0
        rps += min(carried, points.most_rps[one])
        worth += prices.bonus[one]
    worth += prices.per_rps[group] * min(rps, points.total_rps[group])
    return int(np.ceil(worth + CEILING))
