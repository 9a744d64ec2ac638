"""Sets of replicas that share a GPU under interference (see ``laws`` and ``tables``).

For a set of replicas, ``settle`` finds operating points that are feasible together, and ``possible`` tells whether
there may be any. Both compute a least fixpoint: every member starts with what it needs alone. Then it gets what it
needs beside the present neighbours, until nothing changes.
"""

from collections.abc import Sequence

import numpy as np

from provision.formulations.pricing.mps.tables import PointTables, running_at
from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.rates import TooManyError
from provision.formulations.pricing.schedule import SCHEDULE
from provision.models.base.arrays import Ints, Record, Records
from provision.models.base.clock import Deadline
from provision.models.base.compiled import compiled, inner

NONE = -1
UNKNOWN = -2
ROUNDED = 1e-13
"""The relative rounding error of a difference of sums of demands.

Kernels take it as a signed argument. If they took a flag instead, they would be compiled once for each of its values.
"""


@inner
def clock_at(gpu: Records, power_w: float) -> float:
    """The clock as a fraction of its maximum, at ``power_w`` W above idle (iGniter, eq. 9)."""
    return 1 - gpu[0].clock_loss * max(gpu[0].idle_w + power_w - gpu[0].cap_w, 0.0)


@inner
def busy_ms(gpu: Records, point: Record, count: int, cache: float, power_w: float, rounded: float) -> float:
    """Time of a batch at a point at full clock, in ms, among ``count`` replicas.

    The others have a cache demand of ``cache`` and a power of ``power_w`` W. The result is rounded up (for plans) if
    ``rounded`` is ROUNDED, and down (for bounds) if it is -ROUNDED. The kernel contains no division: the check for a
    zero divisor would double its time.
    """
    if count == 1:
        return float(point.base_ms)
    delay_ms = gpu[0].delay_slope_ms * count + gpu[0].delay_intercept_ms  # of a kernel (iGniter, eq. 6)
    by_cache_ms = point.cache_ms * _combined(gpu[0].root, cache, point.cache, rounded)
    by_power_ms = point.power_ms * _combined(gpu[0].root, power_w, point.power_w, rounded)
    return point.base_ms + point.kernels * delay_ms + by_cache_ms + by_power_ms


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
def possible(tables: PointTables, members: Ints) -> bool:
    """Whether the GPU may hold a set, within the looser limits of bounds. It cannot hold a set for which this is false.

    Each member has one lower bound on its units and another on its power: the least of any point that is feasible
    beside neighbours with their least power and least cache demand, and that leaves them their least units. A member's
    least cache demand is the least of all its points with at least its least power.
    """
    size, limit, total, changed = len(members), tables.limit, 0, True
    # For each member: the first point in the order of units that may be feasible, and the first place of ``by_power``.
    by_units, by_power = np.empty(size, np.int64), np.empty(size, np.int64)
    for at in range(size):
        by_units[at] = by_power[at] = tables.first[members[at], 0]
        if by_units[at] == tables.first[members[at], limit + 1]:
            return False
        total += tables.at[by_units[at]].units
    while changed:
        changed = False
        cache, power_w = 0.0, 0.0
        for at in range(size):
            cache += tables.at[by_power[at]].least_cache
            power_w += tables.at[tables.at[by_power[at]].by_power].power_w
        for at in range(size):
            if total > limit or size > tables.most:
                return False
            others = cache - tables.at[by_power[at]].least_cache
            beside_w = power_w - tables.at[tables.at[by_power[at]].by_power].power_w
            point, place = by_units[at], by_power[at]
            least = tables.at[point].units
            most, end = least + limit - total, tables.first[members[at], limit + 1]
            while point < end and not holds(tables, point, size, others, beside_w, -ROUNDED):
                point += 1
            while place < end and (tables.at[tables.at[place].by_power].units > most or not holds(
                    tables, tables.at[place].by_power, size, others, beside_w, -ROUNDED)):
                place += 1
            if point == end or place == end:
                return False
            changed = changed or point != by_units[at] or place != by_power[at]
            by_units[at], by_power[at] = point, place
            total += tables.at[point].units - least
    return total <= limit


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
def arrange(tables: PointTables, members: Ints, units: Ints, points: Ints) -> int:
    """Find operating points for a set. First ``settle`` tries all members at once. If that fails, it adds one member
    after the other, as greedy does. Arguments and result are those of ``settle``; all units begin at 0.

    A member's burden on others may rise or fall with its units. So a set for which no points are found may still be
    feasible: then the result is UNKNOWN, unless the set is not ``possible``.
    """
    settled = settle(tables, members, len(members), units, points)
    if settled == NONE:
        if not possible(tables, members):
            return NONE
        for size in range(1, len(members) + 1):
            units[size - 1] = 0
            settled = settle(tables, members, size, units, points)
            if settled == NONE:
                return UNKNOWN
    return settled


def feasible_sets(tables: PointTables, copies: Sequence[int], until: Deadline) -> list[tuple[int, ...]] | None:
    """All sets of demands that can share the GPU, each in ascending order, and sets that may be able to.

    None if there are too many sets, or if the time is over. Sets grow by one replica at a time, because all subsets of
    a feasible set are feasible. ``copies`` (demands,) are the most replicas of each demand.
    """
    grown: list[tuple[int, ...]] = [()]
    known = set(grown)
    for demands in grown:
        if len(grown) > SCHEDULE.shared or until.over:
            return None
        for one in range(demands[-1] if demands else 0, len(copies)):
            larger = (*demands, one)
            smaller = (larger[:at] + larger[at + 1 :] for at in range(len(larger)))
            if demands.count(one) < copies[one] and known.issuperset(smaller) and _arranged(tables, larger)[0] != NONE:
                grown.append(larger)
                known.add(larger)
    return grown[1:]


def runs_of(tables: PointTables, demands: Sequence[int], proven: bool = False) -> list[Running] | None:
    """Operating points of a set, in the order of its demands; None if none are found.

    Raises
    ------
    TooManyError
        If no points are found, and this is to be ``proven``, but it is not.
    """
    units, points = _arranged(tables, demands)
    if proven and units == UNKNOWN:
        raise TooManyError
    return None if units <= 0 else [running_at(tables.gpu, tables.at[at]) for at in points]  # NONE or UNKNOWN


def _arranged(tables: PointTables, demands: Sequence[int]) -> tuple[int, Ints]:
    """The units of a set and its operating points; see ``arrange``."""
    units, points = np.zeros((2, len(demands)), int)
    return arrange(tables, np.array(demands), units, points), points
