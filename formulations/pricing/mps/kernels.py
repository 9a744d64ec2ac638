"""Compiled kernels for sets of replicas that share a GPU under interference (see ``laws`` and ``tables``).

For a set of replicas, ``settle`` finds operating points that are feasible together, and ``relax`` finds a lower bound
on the units of all feasible operating points. Both compute a least fixpoint: every member starts with what it needs
alone. Then it gets what it needs beside the present neighbours, until nothing changes.
"""

import numpy as np

from provision.formulations.pricing.mps.tables import PointTables
from provision.models.base.arrays import Floats, Ints, Record, Records
from provision.models.base.compiled import compiled, inner

NONE = -1
UNKNOWN = -2
TRIES = 20000
"""The most operating points that are tried for one set."""
ROUNDED = 1e-13
"""The relative rounding error of a difference of sums of demands.

Kernels take it as a signed argument. If they took a flag instead, they would be compiled once for each of its values.
"""


@inner
def clock_at(gpu: Records, power_w: float) -> float:
    """The clock as a fraction of its maximum, at ``power_w`` W above idle (iGniter, eq. 9)."""
    return 1 - gpu[0].clock_loss * max(gpu[0].idle_w + power_w - gpu[0].cap_w, 0.0)


@inner
def delay_at(gpu: Records, count: int) -> float:
    """The extra scheduling delay of a kernel among ``count`` replicas, in ms (iGniter, eq. 6)."""
    return gpu[0].delay_slope_ms * count + gpu[0].delay_intercept_ms if count > 1 else 0.0


@inner
def busy_ms(gpu: Records, point: Record, count: int, cache: float, power_w: float, rounded: float) -> float:
    """Time of a batch at a point at full clock, in ms, among ``count`` replicas.

    The others have a cache demand of ``cache`` and a power of ``power_w`` W. The result is rounded up (for plans) if
    ``rounded`` is ROUNDED, and down (for bounds) if it is -ROUNDED. The kernel contains no division: the check for a
    zero divisor would double its time.
    """
    alone_ms = point.base_ms + point.kernels * delay_at(gpu, count)
    if count == 1:
        return alone_ms
    by_cache_ms = point.cache_ms * _combined(gpu[0].root, cache, point.cache, rounded)
    by_power_ms = point.power_ms * _combined(gpu[0].root, power_w, point.power_w, rounded)
    return alone_ms + by_cache_ms + by_power_ms


@inner
def _combined(root: float, beside: float, own: float, rounded: float) -> float:
    """The joint effect of the neighbours' demands: their sum to the power ``root``.

    ``beside`` is the sum over all replicas less the replica's ``own`` demand. Its rounding error is added (for plans)
    or subtracted (for bounds), because a root below 1 magnifies the error where the sum is close to 0.
    """
    if root == 1:
        return max(beside, 0.0)
    return max(beside + rounded * (beside + own), 0.0) ** root


@inner
def settle(tables: PointTables, members: Ints, size: int, units: Ints, points: Ints) -> int:
    """Find operating points under which all members of a set keep their SLO and rate.

    With its present units, every member takes the feasible point of least burden. If it has none, it gets another unit.
    When units change, all members start again at the least burden, so that a larger batch on fewer units is not missed.

    Parameters
    ----------
    tables
        PointTables.
    members
        The class of each member, in the first ``size`` entries.
    units
        The least units of each member to begin with; overwritten by the units that it needs.
    points
        Overwritten by the operating point of each member.

    Returns
    -------
    int
        The units of all members together; NONE if the GPU has too few.
    """
    limit = tables.limit
    while True:
        total, cache, power_w = 0, 0.0, 0.0
        for at in range(size):
            points[at] = tables.first[members[at], units[at]]
            if points[at] == tables.first[members[at], limit + 1]:
                return NONE
            here = tables.at[points[at]]
            units[at] = here.units
            total, cache, power_w = total + here.units, cache + here.cache, power_w + here.power_w
        if total > limit or size > tables.most:
            return NONE
        grown, changed = False, True
        while changed and not grown:
            changed = False
            for at in range(size):
                point, end = points[at], tables.first[members[at], units[at] + 1]
                others, beside_w = cache - tables.at[point].cache, power_w - tables.at[point].power_w
                while point < end and not holds(tables, point, size, others, beside_w, ROUNDED):
                    point += 1
                if point == end:
                    units[at] += 1
                    grown = True
                elif point != points[at]:
                    cache += tables.at[point].cache - tables.at[points[at]].cache
                    power_w += tables.at[point].power_w - tables.at[points[at]].power_w
                    points[at] = point
                    changed = True
        if not grown:
            return total


@inner
def relax(tables: PointTables, members: Ints, size: int, by_units: Ints, by_power: Ints) -> int:
    """A lower bound on the units of a set at any operating points.

    Each member has one lower bound on its units and another on its power: the least of any point that is feasible
    beside neighbours with their least power and least cache demand. A member's least cache demand is the least of all
    its points with at least its least power. The bounds only grow, also when members are added. So a search may start
    from the bounds of a subset.

    Parameters
    ----------
    tables
        PointTables.
    members
        The class of each member, in the first ``size`` entries.
    by_units
        For each member, the first point in the order of units that may be feasible; overwritten.
    by_power
        For each member, the first position in ``tables.by_power`` whose point may be feasible; overwritten.

    Returns
    -------
    int
        The least units of all members together; NONE if the GPU has too few.
    """
    changed = True
    total = 0
    if size > tables.most:
        return NONE
    while changed:
        changed = False
        cache, power_w = 0.0, 0.0
        for at in range(size):
            cache += tables.at[by_power[at]].least_cache
            power_w += tables.at[tables.at[by_power[at]].by_power].power_w
        total = 0
        for at in range(size):
            others = cache - tables.at[by_power[at]].least_cache
            beside_w = power_w - tables.at[tables.at[by_power[at]].by_power].power_w
            end = tables.first[members[at], tables.limit + 1]
            point = by_units[at]
            while point < end and not holds(tables, point, size, others, beside_w, -ROUNDED):
                point += 1
            if point == end:
                return NONE
            by_units[at] = point
            total += tables.at[point].units
            place = by_power[at]
            while place < end and not holds(tables, tables.at[place].by_power, size, others, beside_w, -ROUNDED):
                place += 1
            if place == end:
                return NONE
            if place != by_power[at]:
                changed = True
                by_power[at] = place
        if total > tables.limit:
            return NONE
    return total


@inner
def holds(tables: PointTables, point: int, count: int, cache: float, power_w: float, rounded: float) -> bool:
    """Whether a point keeps its SLO and rate among ``count`` replicas.

    The others together have the cache demand ``cache`` and the power ``power_w`` in W. With ``rounded`` = ROUNDED the
    limits are those of plans; with -ROUNDED they are the looser limits of bounds.
    """
    here = tables.at[point]
    room_ms = here.room_ms if rounded > 0 else here.loose_ms
    clock = clock_at(tables.gpu, power_w + here.power_w)
    return clock > 0 and busy_ms(tables.gpu, here, count, cache, power_w, rounded) <= clock * room_ms


@compiled
def arrange(tables: PointTables, members: Ints, size: int, units: Ints, points: Ints) -> int:
    """Find operating points for a set by ``settle`` or, if that fails, by trying all points that ``relax`` admits.

    A member's burden on others may rise or fall with its units. So a set for which ``settle`` finds no points may still
    be feasible.

    Parameters
    ----------
    tables, members, size, units, points
        As for ``settle``.

    Returns
    -------
    int
        The units of all members. NONE if no points are feasible, not even within the looser limits of bounds. UNKNOWN
        if points are feasible within the looser limits only, or if TRIES points were tried in vain.
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
        least_cache[at] = tables.at[by_power[at]].least_cache
        least_w[at] = tables.at[tables.at[by_power[at]].by_power].power_w
    return _tried(tables, members, size, points, by_units, tables.limit - total, least_cache, least_w)


@inner
def _tried(
    tables: PointTables, members: Ints, size: int, points: Ints, by_units: Ints, spare: int, least_cache: Floats,
    least_w: Floats,
) -> int:
    """Do the trying of ``arrange``, by depth-first search over the points from ``by_units`` on, and return its result.

    The points may together take ``spare`` more units than those of ``by_units``. A member without a point yet counts
    with its ``least_cache`` and ``least_w``, both (members,).
    """
    total, depth, taken, tries, answer = 0, 0, 0, 0, NONE
    cache, power_w = np.empty(size + 1), np.empty(size + 1)
    cache[0] = power_w[0] = 0.0
    for at in range(size):
        total += tables.at[by_units[at]].units
        cache[0] += least_cache[at]
        power_w[0] += least_w[at]
    points[0] = by_units[0] - 1
    while depth >= 0:
        if points[depth] >= by_units[depth]:
            taken -= tables.at[points[depth]].units - tables.at[by_units[depth]].units
        points[depth] += 1
        one, point = members[depth], points[depth]
        extra = tables.at[point].units - tables.at[by_units[depth]].units if point < len(tables.at) else spare + 1
        if point == tables.first[one, tables.limit + 1] or taken + extra > spare:
            depth -= 1
            continue
        taken += extra
        tries += 1
        if tries > TRIES:
            return UNKNOWN
        cache[depth + 1] = cache[depth] + tables.at[point].cache - least_cache[depth]
        power_w[depth + 1] = power_w[depth] + tables.at[point].power_w - least_w[depth]
        if not all_hold(tables, points, depth + 1, size, cache[depth + 1], power_w[depth + 1], -ROUNDED):
            continue
        if depth + 1 < size:
            depth += 1
            points[depth] = by_units[depth] - 1
        elif all_hold(tables, points, size, size, cache[size], power_w[size], ROUNDED):
            return total + taken
        else:
            answer = UNKNOWN
    return answer


@inner
def all_hold(
    tables: PointTables, points: Ints, first: int, count: int, cache: float, power_w: float, rounded: float
) -> bool:
    """Whether replicas at the first ``first`` of the ``points`` keep their SLOs and rates. In all there are ``count``
    replicas on the GPU, with the total demands ``cache`` and ``power_w``.
    """
    for at in range(first):
        here = tables.at[points[at]]
        if not holds(tables, points[at], count, cache - here.cache, power_w - here.power_w, rounded):
            return False
    return True
