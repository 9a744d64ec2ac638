"""Compiled kernels for sets of replicas that share a GPU under interference (see ``laws`` and ``tables``).

Two answers about a set: ``settle`` finds operating points that hold together, ``relax`` tells what no choice of
points can do without. Both are least fixpoints: start where every member is alone, let each take what the present
neighbours force on it, repeat until nothing changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from provision.models.base.compiled import compiled

if TYPE_CHECKING:
    from provision.models.base.arrays import Bools, Floats, Ints
    from provision.models.contents.interference.menus import Menu
    from provision.models.contents.interference.tables import PointTables

NONE = -1
UNKNOWN = -2
TRIES = 20000
"""Most operating points to try for one set."""
ROUNDED = 1e-13
"""Rounding of a difference of sums of demands, as a part of the sum."""


@compiled
def unbeaten(costs: Floats) -> Bools:
    """Flags of the rows of (points, criteria) costs to which no earlier row is below or equal throughout."""
    kept = np.empty(len(costs), np.int64)
    keep = np.zeros(len(costs), np.bool_)
    many = 0
    for at in range(len(costs)):
        beaten = False
        for other in kept[:many]:
            beaten = True
            for criterion in range(costs.shape[1]):
                if costs[other, criterion] > costs[at, criterion]:
                    beaten = False
                    break
            if beaten:
                break
        if not beaten:
            keep[at] = True
            kept[many] = at
            many += 1
    return keep


@compiled
def clock_at(tables: PointTables | Menu, power_w: float) -> float:
    """The clock as a part of its maximum at a power above idle (eq. 9)."""
    return 1 - tables.clock_loss * max(tables.idle_w + power_w - tables.cap_w, 0.0)


@compiled
def delay_at(tables: PointTables | Menu, count: int) -> float:
    """Extra scheduling delay of a kernel among ``count`` replicas (eq. 6), in ms."""
    return tables.delay_slope_ms * count + tables.delay_intercept_ms if count > 1 else 0.0


@compiled
def busy_ms(tables: PointTables, point: int, count: int, cache: float, power_w: float, planned: bool) -> float:
    """What a batch at a point takes at full clock among ``count`` replicas whose others bring some cache and power.

    Rounding is on the safe side of a plan, or else of a bound. There is no division: one that may fail costs callers
    as much as all the rest.
    """
    alone_ms = tables.base_ms[point] + tables.kernels[point] * delay_at(tables, count)
    if count == 1:
        return alone_ms
    by_cache_ms = tables.cache_ms[point] * _combined(tables.root, cache, tables.cache[point], planned)
    by_power_ms = tables.power_ms[point] * _combined(tables.root, power_w, tables.power_w[point], planned)
    return alone_ms + by_cache_ms + by_power_ms


@compiled
def _combined(root: float, beside: float, own: float, planned: bool) -> float:
    """What demands of neighbours that sum up to ``beside`` come to together.

    The sum is that of all replicas less a replica's ``own``. A root magnifies the rounding of what is next to nothing.
    """
    if root == 1:
        return max(beside, 0.0)
    rounding = ROUNDED * (beside + own)
    return max(beside + (rounding if planned else -rounding), 0.0) ** root


@compiled
def settle(tables: PointTables, members: Ints, size: int, units: Ints, points: Ints) -> int:
    """Operating points under which all members of a set keep SLO and rate.

    Every member has the least burden that does at its units, and gets more units when none does. When units
    change, all begin again with the least burden: so a larger batch on fewer units is not missed.

    Parameters
    ----------
    tables
        PointTables.
    members
        Classes; the first ``size`` count.
    units
        Least units of each to start with; overwritten by what they need.
    points
        Overwritten by the points.

    Returns
    -------
    int
        All units together, or NONE when the GPU is too small.
    """
    limit = tables.limit
    while True:
        total, cache, power_w = 0, 0.0, 0.0
        for at in range(size):
            point = tables.first[members[at], units[at]]
            if point == tables.first[members[at], limit + 1]:
                return NONE
            points[at] = point
            units[at] = tables.units[point]
            total += units[at]
            cache += tables.cache[point]
            power_w += tables.power_w[point]
        if total > limit or size > tables.most:
            return NONE
        grown, changed = False, True
        while changed and not grown:
            changed = False
            for at in range(size):
                point, end = points[at], tables.first[members[at], units[at] + 1]
                others, beside_w = cache - tables.cache[point], power_w - tables.power_w[point]
                while point < end and not holds(tables, point, size, others, beside_w, True):
                    point += 1
                if point == end:
                    units[at] += 1
                    grown = True
                elif point != points[at]:
                    cache += tables.cache[point] - tables.cache[points[at]]
                    power_w += tables.power_w[point] - tables.power_w[points[at]]
                    points[at] = point
                    changed = True
        if not grown:
            return total


@compiled
def relax(tables: PointTables, members: Ints, size: int, by_units: Ints, by_power: Ints) -> int:
    """Units that a set needs at least, whatever its operating points.

    Each member's units and power are lower bounds found apart: the least units of any point, and the least power of
    any point, that holds beside neighbours that bring their least power and cache demand. The last is that of any
    point with so much power. All only grow, as they do with more members; so a search may begin from the answer for a
    part of the set.

    Parameters
    ----------
    tables
        PointTables.
    members
        Classes; the first ``size`` count.
    by_units
        For each the first point, by units, that may hold; overwritten.
    by_power
        For each the first position in ``tables.by_power`` that may hold; overwritten.

    Returns
    -------
    int
        Least units of all together, or NONE when the GPU is too small.
    """
    changed = True
    total = 0
    if size > tables.most:
        return NONE
    while changed:
        changed = False
        cache, power_w = 0.0, 0.0
        for at in range(size):
            cache += tables.least_cache[by_power[at]]
            power_w += tables.power_w[tables.by_power[by_power[at]]]
        total = 0
        for at in range(size):
            others = cache - tables.least_cache[by_power[at]]
            beside_w = power_w - tables.power_w[tables.by_power[by_power[at]]]
            end = tables.first[members[at], tables.limit + 1]
            point = by_units[at]
            while point < end and not holds(tables, point, size, others, beside_w, False):
                point += 1
            if point == end:
                return NONE
            by_units[at] = point
            total += tables.units[point]
            place = by_power[at]
            while place < end and not holds(tables, tables.by_power[place], size, others, beside_w, False):
                place += 1
            if place == end:
                return NONE
            if place != by_power[at]:
                changed = True
                by_power[at] = place
        if total > tables.limit:
            return NONE
    return total


@compiled
def holds(tables: PointTables, point: int, count: int, cache: float, power_w: float, planned: bool) -> bool:
    """Whether a point keeps SLO and rate beside neighbours of some cache demand and power: in a plan, or loosely."""
    room_ms = tables.room_ms[point] if planned else tables.loose_ms[point]
    clock = clock_at(tables, power_w + tables.power_w[point])
    return clock > 0 and busy_ms(tables, point, count, cache, power_w, planned) <= clock * room_ms


@compiled
def arrange(tables: PointTables, members: Ints, size: int, units: Ints, points: Ints, tries: int) -> int:
    """Operating points for a set, as ``settle`` finds them or else by trying all that ``relax`` leaves.

    Burdens are not monotone in the units, so a set on which ``settle`` fails may still be possible.

    Parameters
    ----------
    tables, members, size, units, points
        As for ``settle``.
    tries
        Most points to try.

    Returns
    -------
    int
        All units together; NONE when the set is impossible even loosely; UNKNOWN when it is possible no more than
        loosely or the tries did not suffice.
    """
    by_units, by_power = np.empty(size, np.int64), np.empty(size, np.int64)
    for at in range(size):
        by_units[at] = by_power[at] = tables.first[members[at], 0]
        if by_units[at] == tables.first[members[at], tables.limit + 1]:
            return NONE
    total = relax(tables, members, size, by_units, by_power)
    if total == NONE:
        return NONE
    units[:size] = 0
    settled = settle(tables, members, size, units, points)
    if settled != NONE:
        return settled
    least = tables.least_cache[by_power], tables.power_w[tables.by_power[by_power]]
    return _tried(tables, members[:size], points, tries, by_units, tables.limit - total, *least)


@compiled
def _tried(
    tables: PointTables,
    members: Ints,
    points: Ints,
    tries: int,
    by_units: Ints,
    spare: int,
    least_cache: Floats,
    least_w: Floats,
) -> int:
    """What ``arrange`` returns, by depth-first search: from ``by_units`` on, so many units more than these to spare.

    Whoever has no point yet brings the least cache demand and power, which are given by member.
    """
    size, total = len(members), tables.units[by_units].sum()
    depth, taken, answer = 0, 0, NONE
    cache, power_w = np.full(size + 1, least_cache.sum()), np.full(size + 1, least_w.sum())
    points[0] = by_units[0] - 1
    while depth >= 0:
        if points[depth] >= by_units[depth]:
            taken -= tables.units[points[depth]] - tables.units[by_units[depth]]
        points[depth] += 1
        one, point = members[depth], points[depth]
        extra = tables.units[point] - tables.units[by_units[depth]] if point < len(tables.units) else spare + 1
        if point == tables.first[one, tables.limit + 1] or taken + extra > spare:
            depth -= 1
            continue
        taken += extra
        tries -= 1
        if tries < 0:
            return UNKNOWN
        cache[depth + 1] = cache[depth] + tables.cache[point] - least_cache[depth]
        power_w[depth + 1] = power_w[depth] + tables.power_w[point] - least_w[depth]
        brought = size, cache[depth + 1], power_w[depth + 1]
        if not all_hold(tables, points[: depth + 1], *brought, False):
            continue
        if depth + 1 < size:
            depth += 1
            points[depth] = by_units[depth] - 1
        elif all_hold(tables, points[:size], *brought, True):
            return total + taken
        else:
            answer = UNKNOWN
    return answer


@compiled
def all_hold(tables: PointTables, points: Ints, count: int, cache: float, power_w: float, planned: bool) -> bool:
    """Whether points keep SLO and rate among ``count`` replicas of so much cache demand and power together."""
    for point in points:
        if not holds(tables, point, count, cache - tables.cache[point], power_w - tables.power_w[point], planned):
            return False
    return True
