"""Pricing of patterns on one GPU under interference: the sets of classes of highest value at given duals.

The search is a best-first branch and bound over ``nodes``. In each node, a depth-first search lists the sets of offers
whose value exceeds that of the patterns found so far, and checks them exactly; the node's knapsack bounds it. A node
with infeasible sets, or with too many sets, is cut in two. All nodes together contain every pattern, so the search
always has a bound. Duals are whole numbers, so that sums are exact.
"""

from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE, TRIES, UNKNOWN, arrange, settle
from provision.formulations.pricing.mps.nodes import NEVER, Node, NodeBound, first_nodes, halves, relaxed
from provision.formulations.pricing.mps.options import SLIGHT, Offers, Options, dearest, offers_in
from provision.formulations.pricing.mps.tables import PointTables
from provision.models.base.arrays import Ints
from provision.models.base.compiled import compiled
from provision.models.base.heaps import drop_first, push

NODES = 3000
"""The most steps of the depth-first search in one node of the branch and bound. A node that needs more is cut."""
LEAP = 16
"""The number of steps to a harder class that are first tried at once."""


class FoundPatterns(NamedTuple):
    """The patterns that a search found.

    ``members`` (patterns, places) are the classes of feasible patterns, and ``size`` (patterns,) their numbers of
    replicas. ``most`` is a bound: no pattern has a higher value. After an ``exhaustive`` search it is close; otherwise
    it may be far above.
    """

    members: Ints
    size: Ints
    most: int
    exhaustive: bool


class _Known(NamedTuple):
    """The state of a search.

    ``members`` and ``size`` are as in FoundPatterns. ``taken`` and ``highest`` (arrays of one entry) are the number of
    patterns and the highest value. ``target`` (classes,) is the highest value of the patterns in which the class is the
    member with most units.
    """

    members: Ints
    size: Ints
    taken: Ints
    highest: Ints
    target: Ints


@compiled
def search(
    tables: PointTables, options: Options, values: Ints, floor: int, nodes: int, room: int, sizes: Ints
) -> FoundPatterns:
    """Find patterns of value above ``floor``: for every class the best pattern in which it has the most units, and
    others.

    Parameters
    ----------
    tables, options
        PointTables and their Options.
    values
        (classes,) whole-number duals.
    floor
        The value that patterns must exceed.
    nodes
        The most nodes to search.
    room
        The most patterns to return.
    sizes
        The numbers of members of the patterns to search for.

    Returns
    -------
    FoundPatterns
    """
    worth, one = dearest(options, values)
    known = _Known(np.empty((room, tables.most), np.int64), np.empty(room, np.int64), np.zeros(1, np.int64),
                   np.full(1, floor), np.full(len(values), floor))
    heap, size = np.empty((2 * tables.most + 2 * nodes, 2), np.int64), 0
    opened: list[Node] = []
    for count in sizes:
        for node in first_nodes(tables, options, count):
            size = push(heap, size, NEVER, len(opened))
            opened.append(node)
    while size and -heap[0, 0] > floor and nodes > 0:
        bound, node = heap[0, 0], opened[heap[0, 1]]
        size = drop_first(heap, size)
        nodes -= 1
        offers = offers_in(tables, options, worth, one, node)
        found = relaxed(tables, offers, node, floor, (0.0, 0.0))
        if found.most <= floor:
            continue
        left = min(-bound, found.most, _listed(tables, offers, options.copies, found, known))
        if left > floor:
            for half in halves(tables, found.node):
                size = push(heap, size, -left, len(opened))
                opened.append(half)
    highest, taken = known.highest[0], known.taken[0]
    most = max(highest, -heap[0, 0]) if size else highest
    return FoundPatterns(known.members[:taken], known.size[:taken], most, most == highest)


@compiled
def _listed(tables: PointTables, offers: Offers, copies: Ints, relaxed: NodeBound, known: _Known) -> int:
    """Record the patterns of a node; return an upper bound on the value of the patterns that were not recorded, 0 for
    none.
    """
    count, limit, many, best = relaxed.node.size, tables.limit, len(offers.units), relaxed.best
    members = np.empty(count, np.int64)
    position, used = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    value, worth = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    cache, power_w = np.zeros(count + 1), np.zeros(count + 1)
    nodes, left = NODES, 0
    for top in range(many):
        depth, position[0] = 0, top
        while depth >= 0:
            at, free = position[depth], limit - used[depth]
            goal = max(known.target[offers.one[top]], left)
            needed = goal - relaxed.allowance - value[depth]
            if (depth == 0 and at > top) or at >= many or best[at, count - depth, free] <= needed:
                depth -= 1
                continue
            position[depth] += 1
            one, rest, child = offers.one[at], free - offers.units[at], depth + 1
            cache[child], power_w[child] = cache[depth] + offers.cache[at], power_w[depth] + offers.power_w[at]
            if rest < 0 or relaxed.values[at] + best[at, count - child, rest] <= needed:
                continue
            if cache[child] > relaxed.node.cache[1] + SLIGHT or power_w[child] > relaxed.node.power_w[1] + SLIGHT:
                continue
            nodes -= 1
            if nodes < 0:
                return -NEVER
            if _times(members, depth, one) >= copies[one]:
                continue
            members[depth], used[child] = one, limit - rest
            value[child], worth[child] = value[depth] + relaxed.values[at], worth[depth] + offers.value[at]
            if child < count:
                position[child] = at
                depth = child
            elif worth[child] > goal and not _noted(tables, members, worth[child], offers.one[top], known):
                left = worth[child]
    return left


@compiled
def _times(members: Ints, size: int, one: int) -> int:
    """How often the class ``one`` is among the first ``size`` members."""
    times = 0
    for at in range(size):
        times += members[at] == one
    return times


@compiled
def _noted(tables: PointTables, members: Ints, worth: int, top: int, known: _Known) -> bool:
    """Check a set exactly, and record it if it is feasible; return whether it is feasible within the looser limits of
    bounds.
    """
    units, points = np.empty(len(members), np.int64), np.empty(len(members), np.int64)
    total = arrange(tables, members, len(members), units, points, np.int64(TRIES))
    if total == NONE:
        return False
    known.highest[0] = max(known.highest[0], worth)
    if total != UNKNOWN:
        known.target[top] = worth
        if known.taken[0] < len(known.size):
            for at in range(len(members)):
                known.members[known.taken[0], at] = members[at]
            known.size[known.taken[0]] = len(members)
            known.taken[0] += 1
    return True


@compiled
def hardened(tables: PointTables, found: FoundPatterns, harder_first: Ints, harder: Ints) -> None:
    """Replace the classes in every pattern by harder classes of the same models, as long as the pattern stays feasible.

    ``harder[harder_first[c] : harder_first[c + 1]]`` are the next harder classes of c. Since each attempt needs a
    check, many steps are first tried at once. A check starts from the units that the members have so far; the check of
    the final pattern starts anew.
    """
    reached, units, points = np.empty((3, tables.most), np.int64)
    for row in range(len(found.size)):
        members, size, leap = found.members[row].copy(), found.size[row], LEAP
        reached[:] = 0
        if settle(tables, members, size, reached, points) == NONE:
            continue
        while leap > 0:
            changed = False
            for turn in range(size):
                at = (turn + row) % size
                one = members[at]
                for first in range(harder_first[one], harder_first[one + 1]):
                    members[at] = _leapt(harder[first], leap - 1, harder_first, harder)
                    units[:] = reached
                    if settle(tables, members, size, units, points) != NONE:
                        reached[:] = units
                        changed = True
                        break
                    members[at] = one
            if not changed:
                leap //= 2
        units[:] = 0
        if settle(tables, members, size, units, points) != NONE:
            found.members[row] = members


@compiled
def _leapt(one: int, steps: int, harder_first: Ints, harder: Ints) -> int:
    """The class that is ``steps`` steps harder, or the hardest class on that path."""
    while steps > 0 and harder_first[one] < harder_first[one + 1]:
        one, steps = harder[harder_first[one]], steps - 1
    return one
