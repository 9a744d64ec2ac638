"""Exact pricing of patterns that carry rates: the pattern of highest value on a whole GPU, at given prices.

The search is a best-first branch and bound over ``nodes``: ranges of the number, total cache demand and total power of
the replicas. In a node, an operating point has the value of the rate that it carries beside the least demands of the
node. A knapsack bounds the node; in it, the replicas of one group together count for no more than the group's rate. A
depth-first search lists the patterns whose bound exceeds the best values known, and computes what each pattern really
carries. A node with too many patterns is cut in two.
"""

from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import ROUNDED
from provision.formulations.pricing.mps.nodes import NEVER, SLIGHT, Node, Offers, halves, relaxed
from provision.formulations.pricing.mps.rate_points import (
    CEILING,
    Prices,
    RatePoints,
    beyond_cap,
    carried_rps,
    gpu_ms,
    least_falls,
    offers_in,
    root_nodes,
    worth_of_rps,
)
from provision.models.base.arrays import Ints
from provision.models.base.compiled import compiled, inner
from provision.models.base.heaps import drop_first, push


class Choice(NamedTuple):
    """The offers of a node, sorted by group: their points ``at``, and ``value``, their value less the price for their
    demands at the multipliers. ``paid`` is this price, less the value of their requests/s beyond ``Prices.cap_rps``.

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


@inner
def choice_of(points: RatePoints, prices: Prices, at: Ints, value: Ints, node: Node, allowance: int) -> Choice:
    """The knapsack of a node at the multipliers of its cache demand and power."""
    groups, limit, count, many = len(prices.per_rps), points.limit, node.size, len(at)
    caps = np.empty(groups, np.int64)
    for group in range(groups):
        worth = prices.per_rps[group] * points.total_rps[group]
        if prices.cap_rps[group] < points.total_rps[group]:
            worth = (prices.per_rps[group] - prices.beyond) * prices.cap_rps[group]
        bonus = max(prices.bonus[group], 0.0) * min(count, prices.counted[group])
        caps[group] = np.int64(np.ceil(worth + bonus + CEILING))
    less, paid = np.empty(many, np.int64), np.empty(many, np.int64)
    for one in range(many):
        taken = node.cache_price * points.cache[at[one]] + node.power_price * points.power_w[at[one]]
        paid[one] = np.int64(np.floor(taken))
        less[one] = value[one] - paid[one]
        group = points.group[at[one]]
        if prices.cap_rps[group] < points.total_rps[group]:
            paid[one] -= np.int64(np.ceil(beyond_cap(prices, group, value[one]) + CEILING))
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
        for number in range(prices.counted[group] + 1, count + 1):
            own[number] -= np.int64(np.floor(max(prices.bonus[group], 0.0) * (number - prices.counted[group])))
        if begin < end:
            exact = _joined(exact, np.minimum(own, caps[group] + owed), points.copies[group])
        last[group] = exact
        for number in range(1, count + 1):
            for units in range(limit + 1):
                last[group, number, units] = max(last[group, number, units], last[group, number - 1, units])
        end = begin
    return Choice(at, less, paid, caps, best, last, allowance)


@inner
def _take(table: Ints, units: int, value: int) -> None:
    """Allow an offer any number of times in ``table``: entry [n, u] is the highest value of n offers in u units."""
    for number in range(1, table.shape[0]):
        for total in range(units, table.shape[1]):
            table[number, total] = max(table[number, total], table[number - 1, total - units] + value)


@inner
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


@inner
def most_of(points: RatePoints, choice: Choice, node: Node) -> int:
    """An upper bound on the value of every pattern in a node, by the node's knapsack."""
    return int(choice.last[0, node.size, points.limit]) + choice.allowance


@inner
def list_patterns(points: RatePoints, prices: Prices, choice: Choice, node: Node, visits: int, members: Ints,
                  sizes: Ints, taken: Ints, target: Ints) -> bool:
    """Record the patterns of a node whose value exceeds ``target``, which rises to the value of each such pattern;
    return whether the list is complete.
    """
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
        if prices.cap_rps[group] >= points.total_rps[group]:  # else further offers of the group may add to its value
            most = min(most, room + choice.last[group + 1, left - 1, rest])
        if done + most <= needed:
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


@inner
def _later(points: RatePoints, choice: Choice, one: int, done: int, left: int, free: int, target: Ints) -> bool:
    """Whether some pattern that begins with a later group than the given offer's may exceed that group's target."""
    for other in range(one + 1, len(choice.at)):
        group = points.group[choice.at[other]]
        if done + choice.best[other, left, free] > target[group] - choice.allowance:
            return True
    return False


@inner
def worth_of(points: RatePoints, prices: Prices, members: Ints, cache: float, power_w: float) -> int:
    """The value of a pattern, rounded up; 0 if a replica violates its SLO or carries less than its group's least rate.

    ``members`` are in the order of their groups. ``cache`` and ``power_w`` are the total demands of all members.
    """
    worth, rps, group, times = 0.0, 0.0, np.int64(-1), 0
    for at in members:
        carried = carried_rps(points, at, gpu_ms(points, at, len(members), cache, power_w, -ROUNDED))
        one = points.group[at]
        if carried <= 0 or carried < points.least_rps[one]:
            return 0
        if one != group:
            if group >= 0:
                worth += worth_of_rps(prices, group, min(rps, points.total_rps[group]))
            group, rps, times = one, 0.0, 0
        rps += min(carried, points.most_rps[one])
        worth += prices.bonus[one] if times < prices.counted[one] else min(prices.bonus[one], 0.0)
        times += 1
    worth += worth_of_rps(prices, group, min(rps, points.total_rps[group]))
    return int(np.ceil(worth + CEILING))


class Found(NamedTuple):
    """The patterns found: ``members`` (patterns, places) are points, ``size`` (patterns,) numbers of replicas.

    No pattern has a value above ``most``.
    """

    members: Ints
    size: Ints
    most: int


@compiled
def search(points: RatePoints, prices: Prices, floor: int, nodes: int, visits: int, room: int, size: int) -> Found:
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
    size
        The number of replicas of patterns, of which only the best is wanted; 0 if they may have any number.
    """
    groups, everything = len(prices.per_rps), np.arange(len(points.units))
    members, sizes = np.empty((room, max(points.most, 1)), np.int64), np.empty(room, np.int64)
    taken, target = np.zeros(1, np.int64), np.full(groups, floor)
    heap, waiting = np.empty((2 * points.most + 2 * nodes + 4, 2), np.int64), 0
    opened, alive = [Node(0, (0.0, 0.0), (0.0, 0.0), 0.0, 0.0)], [everything[:0]]
    for root in root_nodes(points):
        if size and root.size != size:
            continue
        waiting = push(heap, waiting, NEVER, len(opened))
        opened.append(root)
        alive.append(everything)
    while waiting and -heap[0, 0] > (target.max() if size else floor) and nodes > 0 and taken[0] < room:
        bound, number = -heap[0, 0], heap[0, 1]
        waiting = drop_first(heap, waiting)
        nodes -= 1
        node = opened[number]
        at, value, falls = offers_in(points, prices, alive[number], node)
        alive[number] = everything[:0]
        if not len(at):
            continue
        order = np.argsort(-points.units[at], kind="mergesort")
        least = least_falls(points, prices, at, value, falls, node, floor, bound)
        loose = relaxed(points, Offers(points.units[at[order]], value[order], points.cache[at[order]],
                                       points.power_w[at[order]], at[order]), node, floor, least)
        if loose.most <= floor:
            continue
        choice = choice_of(points, prices, at, value, loose.node, loose.allowance)
        if most_of(points, choice, node) > min(loose.most, choice.caps.sum()):
            # Limits on groups cut off little value at high multipliers, and most without any. So the knapsack is also
            # solved without multipliers, and the better bound is kept.
            free = choice_of(points, prices, at, value, Node(node.size, node.cache, node.power_w, 0.0, 0.0), 1)
            choice = free if most_of(points, free, node) < most_of(points, choice, node) else choice
        most = min(bound, loose.most, most_of(points, choice, node))
        if most <= floor:
            continue
        if not list_patterns(points, prices, choice, loose.node, visits, members, sizes, taken, target):
            for half in halves(points, loose.node):
                waiting = push(heap, waiting, -most, len(opened))
                opened.append(half)
                alive.append(at)
    left = -heap[0, 0] if waiting else np.int64(floor)
    return Found(members[: taken[0]], sizes[: taken[0]], max(left, target.max()))
