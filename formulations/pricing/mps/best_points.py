"""The highest throughput of a set of replicas that share one GPU, under iGniter's model.

The search is a best-first branch and bound. A node holds a range of units and a range of batches for every member of
the set. To bound a node, interference is relaxed: each member is slowed only by the least cache demand and the least
power that the others can have in the node. With these slowdowns, dynamic programming divides the units of the GPU. The
operating points that attain the bound are also tried as a solution. If they demand more than the assumed least amounts,
the node is cut in two, between the low end of a range and the point that was chosen.
"""

import heapq
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.choices import Choices
from provision.formulations.pricing.mps.kernels import clock_at, delay_at
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled

NOTHING = -1.0
"""The value of operating points that violate an SLO, a rate or the units of the GPU; it is less than any real value."""
CLOSE = 1e-10
"""A relative gap between bound and value that counts as closed."""
ROUNDS = 4
"""The most rounds in which the least demands of the members of a node are raised."""


class BestPoints(NamedTuple):
    """The best operating points that a search found for some replicas, and an upper bound for all points.

    ``points`` is (members, 2): the positions of units and batch. ``value`` is their requests/s; it is NOTHING if the
    search found no points. No points carry more than ``bound`` requests/s; it is NOTHING if no points are feasible.
    """

    value: float
    bound: float
    points: Ints


@compiled
def most_throughput(choices: Choices, members: Ints, nodes: int) -> BestPoints:
    """Search for the best operating points of some replicas that share a GPU.

    Parameters
    ----------
    choices
        The operating points of all demands.
    members
        (members,) the demand of each replica, as an index into the Choices' demands.
    nodes
        The most nodes that the search examines.

    Returns
    -------
    BestPoints
    """
    size, value, left = len(members), NOTHING, NOTHING
    best = np.zeros((size, 2), np.int64)
    units, batches = choices.active_ms.shape[1:]
    if size > min(choices.most, units):
        return BestPoints(value, left, best)
    kept, made = np.empty((2 * nodes + 1, size, 4), np.int64), 1
    kept[0] = np.array([0, units - 1, 0, batches - 1])
    heap = [(-np.inf, 0)]
    for _ in range(nodes):
        if not len(heap) or -heap[0][0] <= value * (1 + CLOSE):
            break
        _, at = heapq.heappop(heap)
        most, points, slack = _relaxed(choices, members, kept[at])
        if most <= max(value, 0.0) * (1 + CLOSE):
            continue
        reached, tried = _tried(choices, members, points)
        if reached > value:
            value, best = reached, tried
        widest = slack.argmax()
        if slack[widest] == 0:
            left = max(left, most)
            continue
        kept[made : made + 2] = kept[at]
        _cut(kept[made : made + 2, widest], points[widest])
        heapq.heappush(heap, (-most, made))
        heapq.heappush(heap, (-most, made + 1))
        made += 2
    if len(heap):
        left = max(left, -heap[0][0])
    return BestPoints(value, max(value, left), best)


@compiled
def _relaxed(choices: Choices, members: Ints, node: Ints) -> tuple[float, Ints, Floats]:
    """The bound of a node in requests/s, the points that attain it, and their excess over the assumed least demands.

    The excess is (members,). It is 0 for a member that slows the others no more than the bound assumes. The bound is
    NOTHING if no points of the node are feasible.
    """
    size, units = len(members), choices.active_ms.shape[1]
    points, slack = np.zeros((size, 2), np.int64), np.zeros(size)
    worth, batch = np.full((size, units), NOTHING), np.zeros((size, units), np.int64)
    cache, power_w = _narrowed(choices, members, node)
    if np.isinf(cache).any():
        return NOTHING, points, slack
    for at in range(size):
        beside, beside_w = cache.sum() - cache[at], power_w.sum() - power_w[at]
        for unit in range(node[at, 0], node[at, 1] + 1):
            batches = node[at, 2], node[at, 3] + 1
            worth[at, unit], batch[at, unit] = _best(choices, members[at], unit, batches, size, beside, beside_w)
    most, points[:, 0] = _shared_out(worth)
    for at in range(size if most > NOTHING else 0):
        points[at, 1] = batch[at, points[at, 0]]
        where = choices.model[members[at]], points[at, 0], points[at, 1]
        slack[at] = choices.cache[where] - cache[at] + (choices.power_w[where] - power_w[at]) * choices.gpu.clock_loss
    return most, points, slack


@compiled
def _best(
    choices: Choices, demand: int, unit: int, batches: tuple[int, int], count: int, beside: float, beside_w: float
) -> tuple[float, int]:
    """The highest requests/s of one replica with ``unit`` over a range of batches, and the batch with which it is
    reached.

    The replica is one of ``count``. The others together have the cache demand ``beside`` and the power ``beside_w`` in
    W. The value is NOTHING if no batch is feasible.
    """
    worth, best = NOTHING, 0
    for batch in range(batches[0], batches[1]):
        carried = throughput(choices, demand, unit, batch, count, beside, beside_w, choices.loose_ms)
        if carried > worth:
            worth, best = carried, batch
    return worth, best


@compiled
def _shared_out(worth: Floats) -> tuple[float, Ints]:
    """Divide the units of a GPU so that the sum of values is highest, by dynamic programming.

    Returns the sum, and (members,) the position of each member's units. ``worth`` is (members, units): the requests/s
    of a member with each number of units; position 0 stands for one unit.
    """
    size, units = worth.shape
    best, taken = np.full((size + 1, units + 1), NOTHING), np.zeros((size, units + 1), np.int64)
    best[0] = 0.0
    for at in range(size):
        for unit in range(units):
            for total in range(unit + 1, units + 1 if worth[at, unit] > NOTHING else 0):
                before = best[at, total - unit - 1]
                if before > NOTHING and before + worth[at, unit] > best[at + 1, total]:
                    best[at + 1, total], taken[at, total] = before + worth[at, unit], unit
    chosen, left = np.zeros(size, np.int64), units
    for at in range(size - 1, -1, -1):
        chosen[at] = taken[at, left]
        left -= chosen[at] + 1
    return float(best[size, units]), chosen


@compiled
def _narrowed(choices: Choices, members: Ints, node: Ints) -> tuple[Floats, Floats]:
    """Cut the ranges of a node, in place, to points that can be feasible.

    Returns each member's least cache demand and least power in the node. Both are infinite for a member without
    feasible points.
    """
    size = len(members)
    cache, power_w, narrow = np.zeros(size), np.zeros(size), np.empty(4, np.int64)
    for _ in range(ROUNDS):
        changed = False
        for at in range(size):
            model, beside, beside_w = choices.model[members[at]], cache.sum() - cache[at], power_w.sum() - power_w[at]
            least, least_w = np.inf, np.inf
            narrow[::2], narrow[1::2] = node[at, 1::2], node[at, ::2]
            for unit in range(node[at, 0], node[at, 1] + 1):
                for batch in range(node[at, 2], node[at, 3] + 1):
                    if (
                        throughput(choices, members[at], unit, batch, size, beside, beside_w, choices.loose_ms)
                        > NOTHING
                    ):
                        least = min(least, choices.cache[model, unit, batch])
                        least_w = min(least_w, choices.power_w[model, unit, batch])
                        narrow[0], narrow[1] = min(narrow[0], unit), max(narrow[1], unit)
                        narrow[2], narrow[3] = min(narrow[2], batch), max(narrow[3], batch)
            changed = changed or least != cache[at] or least_w != power_w[at]
            cache[at], power_w[at] = least, least_w
            if np.isinf(least):
                return cache, power_w
            node[at] = narrow
        if not changed:
            break
    return cache, power_w


@compiled
def throughput(
    choices: Choices, demand: int, unit: int, batch: int, count: int, beside: float, beside_w: float, room_ms: Floats
) -> float:
    """The requests/s of a point among ``count`` replicas; NOTHING if its batches take longer than ``room_ms``.

    The others together have the cache demand ``beside`` and the power ``beside_w`` in W. ``room_ms`` is (demands,
    batches).
    """
    model = choices.model[demand]
    clock = clock_at(choices, beside_w + choices.power_w[model, unit, batch])
    busy_ms = choices.scheduling_ms[model] + choices.kernels[model] * delay_at(choices, count)
    busy_ms += choices.active_ms[model, unit, batch] * (1 + choices.sensitivity[model] * beside)
    if clock <= 0 or busy_ms > clock * room_ms[demand, batch]:
        return NOTHING
    hold_ms = busy_ms / clock + choices.feedback_ms[model, batch]
    return _carried(choices.hold_ms[demand, batch], choices.each_ms[demand, batch], hold_ms)


@compiled
def _carried(bends_ms: Floats, each_ms: Floats, hold_ms: float) -> float:
    """The requests/s at a hold time; NOTHING beyond the last bend.

    The time per request is interpolated between the bends, which are given by hold times and times per request.
    """
    at = np.searchsorted(bends_ms, hold_ms)
    if bends_ms[at] == np.inf:
        return NOTHING
    if at == 0:
        return 1000 * bends_ms[0] / (each_ms[0] * hold_ms)
    part = (hold_ms - bends_ms[at - 1]) / (bends_ms[at] - bends_ms[at - 1])
    return 1000 / (each_ms[at - 1] + part * (each_ms[at] - each_ms[at - 1]))


@compiled
def alone(choices: Choices) -> Floats:
    """(demands, units) the highest requests/s of a replica alone on a GPU, by its units; NOTHING where it cannot run.
    """
    demands, (_, units, batches) = len(choices.model), choices.active_ms.shape
    worth = np.empty((demands, units))
    for one in range(demands):
        for unit in range(units):
            worth[one, unit], _ = _best(choices, one, unit, (0, batches), 1, 0.0, 0.0)
    return worth


@compiled
def _tried(choices: Choices, members: Ints, points: Ints) -> tuple[float, Ints]:
    """Lower the batch of a member that violates its SLO or rate, until no member does; return the value and the points.
    """
    tried = points.copy()
    while True:
        value, late = _together(choices, members, tried)
        if late < 0:
            return value, tried
        if tried[late, 1] == 0:
            return NOTHING, tried
        tried[late, 1] -= 1


@compiled
def _together(choices: Choices, members: Ints, points: Ints) -> tuple[float, int]:
    """The requests/s of points together on one GPU, and the first member that violates its SLO or rate (-1 for none).
    """
    size, value = len(members), 0.0
    cache, power_w = np.empty(size), np.empty(size)
    for at in range(size):
        where = choices.model[members[at]], points[at, 0], points[at, 1]
        cache[at], power_w[at] = choices.cache[where], choices.power_w[where]
    for at in range(size):
        beside, beside_w = cache.sum() - cache[at], power_w.sum() - power_w[at]
        carried = throughput(
            choices, members[at], points[at, 0], points[at, 1], size, beside, beside_w, choices.room_ms
        )
        if carried == NOTHING:
            return NOTHING, at
        value += carried
    return value, -1


@compiled
def _cut(halves: Ints, point: Ints) -> None:
    """Cut a member's ranges in two, in place, between their low end and a point, along the longer side.

    ``halves`` is (2, 4): each row holds the ranges of units and of batches. At first both rows are equal.
    """
    low, high = halves[0, ::2], halves[0, 1::2]
    far = point - low
    if far.max() == 0:
        far, point = high - low, high
    side = far.argmax()
    middle = (low[side] + point[side]) // 2
    halves[0, 2 * side + 1], halves[1, 2 * side] = middle, middle + 1
