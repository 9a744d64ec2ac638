"""Exact pricing of patterns that carry rates: the pattern of highest value on a whole GPU, at given prices.

The search is a best-first branch and bound over ``nodes``: ranges of the number, total cache demand and total power of
the replicas. In a node, an operating point has the value of the rate that it carries beside the least demands of the
node. A knapsack bounds the node; in it, the replicas of one group together count for no more than the group's rate. A
depth-first search lists the patterns whose bound exceeds the best values known, and computes what each pattern really
carries. A node with too many patterns is cut in two.
"""

from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.nodes import NEVER, Node, halves, relaxed
from provision.formulations.pricing.mps.options import Offers
from provision.formulations.pricing.mps.rate_knapsack import choice_of, list_patterns, most_of
from provision.formulations.pricing.mps.rate_offers import Prices, least_falls, offers_in, root_nodes
from provision.formulations.pricing.mps.rate_points import RatePoints
from provision.models.base.arrays import Ints
from provision.models.base.compiled import compiled
from provision.models.base.heaps import drop_first, push


class Found(NamedTuple):
    """The patterns found: ``members`` (patterns, places) are points, ``size`` (patterns,) numbers of replicas.

    No pattern has a value above ``most``.
    """

    members: Ints
    size: Ints
    most: int


@compiled
def search(points: RatePoints, prices: Prices, floor: int, nodes: int, visits: int, room: int, every: bool = False
           ) -> Found:
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
    every
        Whether all patterns above the floor are wanted, except those that others dominate. If all are returned, the
        bound on values is the floor.
    """
    groups, everything = len(prices.per_rps), np.arange(len(points.units))
    members, sizes = np.empty((room, max(points.most, 1)), np.int64), np.empty(room, np.int64)
    taken, target = np.zeros(1, np.int64), np.full(groups, floor)
    heap, waiting = np.empty((2 * points.most + 2 * nodes + 4, 2), np.int64), 0
    opened, alive = [Node(0, (0.0, 0.0), (0.0, 0.0), 0.0, 0.0)], [everything[:0]]
    for root in root_nodes(points):
        waiting = push(heap, waiting, NEVER, len(opened))
        opened.append(root)
        alive.append(everything)
    while waiting and -heap[0, 0] > floor and nodes > 0 and taken[0] < room:
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
        before = taken[0]
        if not list_patterns(points, prices, choice, loose.node, visits, members, sizes, taken, target, every):
            taken[0] = before if every and taken[0] < room else taken[0]  # the halves list these patterns again
            for half in halves(points, loose.node):
                waiting = push(heap, waiting, -most, len(opened))
                opened.append(half)
                alive.append(at)
    left = -heap[0, 0] if waiting else np.int64(floor)
    return Found(members[: taken[0]], sizes[: taken[0]], max(left, target.max()))
