"""Compiled kernels for sets of replicas that share a GPU under interference (see ``laws`` and ``tables``).

For a set of replicas, ``settle`` finds operating points that are feasible together, and ``relax`` finds a lower bound
on the units of all feasible operating points. Both compute a least fixpoint: every member starts as if alone, and is
then given what it needs beside its present neighbours, until nothing changes.
"""

import numpy as np

from provision.formulations.pricing.mps.choices import Choices
from provision.formulations.pricing.mps.tables import PointTables
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled

NONE = -1
UNKNOWN = -2
TRIES = 20000
"""Most operating points to try for one set."""
ROUNDED = 1e-13
"""Relative rounding error of a difference of sums of demands. Kernels get it as a signed argument: a flag would have
them compiled once for each of its values."""


@compiled
def clock_at(tables: PointTables | Choices, power_w: float) -> float:
    """The clock, as a part of its maximum, at a power in W above idle (iGniter, eq. 9)."""
    return 1 - tables.clock_loss * max(tables.idle_w + power_w - tables.cap_w, 0.0)


@compiled
def delay_at(tables: PointTables | Choices, count: int) -> float:
    """Extra scheduling delay of a kernel among ``count`` replicas (eq. 6), in ms."""
    return tables.delay_slope_ms * count + tables.delay_intercept_ms if count > 1 else 0.0


@compiled
def busy_ms(tables: PointTables, point: int, count: int, cache: float, power_w: float, rounded: float) -> float:
    """Time of a batch at a point at full clock, in ms, among ``count`` replicas.

    The others have a cache demand of ``cache`` and a power of ``power_w`` W. The result is rounded up (for plans) if
    ``rounded`` is ROUNDED, and down (for bounds) if it is -ROUNDED. The kernel contains no division: the check for a
    zero divisor would double its time.
    """
    alone_ms = tables.base_ms[point] + tables.kernels[point] * delay_at(tables, count)
    if count == 1:
        return alone_ms
    by_cache_ms = tables.cache_ms[point] * _combined(tables.root, cache, tables.cache[point], rounded)
    by_power_ms = tables.power_ms[point] * _combined(tables.root, power_w, tables.power_w[point], rounded)
    return alone_ms + by_cache_ms + by_power_ms


@compiled
def _combined(root: float, beside: float, own: float, rounded: float) -> float:
    """The joint effect of neighbours' demands: their sum to the power ``root``.

    ``beside`` is the sum over all replicas less a replica's ``own`` demand. Its rounding error is added or subtracted
    because a root below 1 magnifies it where the sum is close to 0.
    """
    if root == 1:
        return max(beside, 0.0)
    return max(beside + rounded * (beside + own), 0.0) ** root


@compiled
def settle(tables: PointTables, members: Ints, size: int, units: Ints, points: Ints) -> int:
    """Operating points under which all members of a set keep SLO and rate.

    Every member takes, at its units, the feasible point of least burden, and gets another unit if none is feasible.
    When units change, all members start again at the least burden, so that a larger batch on fewer units is not missed.

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
                while point < end and not holds(tables, point, size, others, beside_w, ROUNDED):
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
    """A lower bound on the units of a set at any operating points.

    Each member has separate lower bounds on its units and on its power: the least of any point that is feasible beside
    neighbours with their least power and cache demand. A member's least cache demand is the least of all points with at
    least its power. The bounds only grow, also when members are added, so a search may start from the bounds of a
    subset.

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
            while point < end and not holds(tables, point, size, others, beside_w, -ROUNDED):
                point += 1
            if point == end:
                return NONE
            by_units[at] = point
            total += tables.units[point]
            place = by_power[at]
            while place < end and not holds(tables, tables.by_power[place], size, others, beside_w, -ROUNDED):
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
def holds(tables: PointTables, point: int, count: int, cache: float, power_w: float, rounded: float) -> bool:
    """Whether a point keeps SLO and rate among ``count`` replicas; the others have ``cache`` and ``power_w`` W in all.

    With ``rounded`` = ROUNDED the limits are those of plans, with -ROUNDED the looser ones of bounds.
    """
    room_ms = tables.room_ms[point] if rounded > 0 else tables.loose_ms[point]
    clock = clock_at(tables, power_w + tables.power_w[point])
    return clock > 0 and busy_ms(tables, point, count, cache, power_w, rounded) <= clock * room_ms


@compiled
def arrange(tables: PointTables, members: Ints, size: int, units: Ints, points: Ints, tries: int) -> int:
    """Operating points for a set: those of ``settle``, or else found by trying all points that ``relax`` admits.

    Burdens are not monotone in the units, so a set for which ``settle`` finds no points may still be feasible.

    Parameters
    ----------
    tables, members, size, units, points
        As for ``settle``.
    tries
        Most points to try.

    Returns
    -------
    int
        The units of all members; NONE if no points are feasible even within the looser limits of bounds; UNKNOWN if
        points are feasible only within these, or the tries were used up.
    """
    by_units, by_power = np.empty(size, np.int64), np.empty(size, np.int64)
    for at in range(size):
        by_units[at] = by_power[at] = tables.first[members[at], 0]
        if by_units[at] == tables.first[members[at], tables.limit + 1]:
            return NONE
    total = relax(tables, members, size, by_units, by_power)
    if total == NONE:
        return NONE
    for at in range(size):
        units[at] = 0
    settled = settle(tables, members, size, units, points)
    if settled != NONE:
        return settled
    least_cache, least_w = np.empty(size), np.empty(size)
    for at in range(size):
        least_cache[at] = tables.least_cache[by_power[at]]
        least_w[at] = tables.power_w[tables.by_power[by_power[at]]]
    return _tried(tables, members[:size], points, tries, by_units, tables.limit - total, least_cache, least_w)


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
    """What ``arrange`` returns, by depth-first search over points from ``by_units`` on.

    The search may take ``spare`` units more than these points do. A member without a point yet counts with its
    ``least_cache`` and ``least_w``, both (members,).
    """
    size, total = len(members), 0
    depth, taken, answer = 0, 0, NONE
    cache, power_w = np.zeros(size + 1), np.zeros(size + 1)
    for at in range(size):
        total += tables.units[by_units[at]]
        cache[0] += least_cache[at]
        power_w[0] += least_w[at]
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
        if not all_hold(tables, points[: depth + 1], *brought, -ROUNDED):
            continue
        if depth + 1 < size:
            depth += 1
            points[depth] = by_units[depth] - 1
        elif all_hold(tables, points[:size], *brought, ROUNDED):
            return total + taken
        else:
            answer = UNKNOWN
    return answer


@compiled
def all_hold(tables: PointTables, points: Ints, count: int, cache: float, power_w: float, rounded: float) -> bool:
    """Whether some points keep SLO and rate among ``count`` replicas that together bring ``cache`` and ``power_w``."""
    for point in points:
        if not holds(tables, point, count, cache - tables.cache[point], power_w - tables.power_w[point], rounded):
            return False
    return True
