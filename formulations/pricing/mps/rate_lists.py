"""Small patterns that carry rates: few replicas that share a whole GPU, for all divisions of its units among them.

For each set of groups and each division, batches begin at the largest that is of use alone. They are lowered as long as
a replica violates its SLO or the next smaller batch carries no less. Under random arrivals the largest feasible batch
leaves no time to queue, so it carries nearly nothing; and where a batch carries more than the rate that counts, a
smaller one suffices. These are not all patterns, but a plan with few replicas on each GPU rarely needs another one.
Bounds come from exact pricing (``rate_search``).
"""

import math
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE, ROUNDED
from provision.formulations.pricing.mps.rate_points import RatePoints, carried_rps, gpu_ms, together_rps
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled, inner


class PointTable(NamedTuple):
    """Where operating points are: (rows, units, batches) their indices, NONE where there is none, and (rows,) the group
    of each row; a row is a group with one of its models.
    """

    at: Ints
    group: Ints


def table_of(points: RatePoints) -> PointTable:
    """The PointTable of some points."""
    rows, of_row = np.unique(np.stack([points.group, points.model]), axis=1, return_inverse=True)
    at = np.full((rows.shape[1], points.limit + 1, int(points.batch.max(initial=1)) + 1), NONE)
    at[of_row.ravel(), points.units, points.batch] = np.arange(len(points.units))
    return PointTable(at, np.ascontiguousarray(rows[0]))


def small_patterns(points: RatePoints, replicas: int, most: int, groups: Ints | None = None) -> Ints:
    """Patterns of up to ``replicas`` replicas, of some groups or of all: (patterns, places) operating points, NONE at
    empty places. Units are divided in steps that give about ``most`` patterns of each size; sizes with more sets of
    replicas than that are left out.
    """
    at, group_of = _useful(points)
    if groups is not None:
        kept = np.isin(group_of, groups)
        group_of, at = group_of[kept], at[kept]
    found = list[Ints]()
    for size in range(1, min(replicas, points.most) + 1):
        sets = math.comb(len(group_of) + size - 1, size)
        if sets > most and found:
            break
        step = _step(points.limit, size, most // max(sets, 1))
        members = _divided(points, at, group_of, size, step, sets, math.comb(points.limit // step + 1, size - 1))
        found.append(np.pad(members, ((0, 0), (0, replicas - size)), constant_values=NONE))
    return np.concatenate(found)


def _useful(points: RatePoints) -> PointTable:
    """The table of points, without batches above the largest one that carries more alone than the next smaller batch.
    """
    at, group = table_of(points)
    endless = points._replace(most_rps=np.full(len(points.most_rps), np.inf))
    alone_rps = np.where(at == NONE, 0.0, together_rps(endless, at.reshape(-1, 1)).reshape(at.shape))
    rises = np.diff(alone_rps, axis=2) > 0
    at[:, :, 1:][~np.logical_or.accumulate(rises[:, :, ::-1], axis=2)[:, :, ::-1]] = NONE
    return PointTable(at, group)


def _step(limit: int, size: int, most: int) -> int:
    """The least step at which ``size`` replicas can divide the units of a GPU in no more than ``most`` ways."""
    step = 1
    while step < limit // size and math.comb(limit // step - 1, size - 1) > most:
        step += 1
    return step


@compiled
def _divided(points: RatePoints, at: Ints, group_of: Ints, size: int, step: int, sets: int, room: int) -> Ints:
    """Patterns of ``size`` replicas, for all ``sets`` multisets of rows, at most ``room`` of each."""
    members, taken = np.empty((sets * room, size), np.int64), 0
    rows, more = np.zeros(size, np.int64), size * step <= points.limit
    scratch, carried = np.empty((2, size), np.int64), np.empty(size)
    while more:
        if _within_copies(points, group_of, rows):
            taken += _divisions(points, at, rows, step, members[taken : taken + room], scratch, carried)
        more = _next_set(rows, len(at))
    return members[:taken].copy()


@inner
def _divisions(points: RatePoints, at: Ints, rows: Ints, step: int, members: Ints, scratch: Ints, carried: Floats
               ) -> int:
    """Write to ``members`` the patterns of given rows, with the largest batches, and return their number. Units are
    multiples of ``step``; the last replica gets the rest. ``scratch`` (2, replicas) and ``carried`` (replicas,) are
    overwritten.
    """
    size, taken, units, largest = len(rows), 0, scratch[0], scratch[1]
    for place in range(size):
        units[place] = step
    units[size - 1] = points.limit - step * (size - 1)
    while units[0] > 0:
        if _largest(points, at, rows, units, largest, carried) and taken < len(members):
            for place in range(size):
                members[taken, place] = largest[place]
            taken += 1
        _next_division(units, step, points.limit)
    return taken


@inner
def _next_division(units: Ints, step: int, limit: int) -> None:
    """Replace ``units`` by the next division in lexical order. After the last division, the first entry is set to 0."""
    last = len(units) - 1
    for place in range(last - 1, -1, -1):
        left = limit
        for before in range(place):
            left -= units[before]
        if left - units[place] - step >= step * (last - place):
            units[place] += step
            left -= units[place]
            for after in range(place + 1, last):
                units[after] = step
                left -= step
            units[last] = left
            return
    units[0] = 0


@inner
def _next_set(rows: Ints, many: int) -> bool:
    """Replace ``rows``, ascending numbers below ``many`` that may repeat, by the next such rows in lexical order;
    return whether there are any.
    """
    for place in range(len(rows) - 1, -1, -1):
        if rows[place] + 1 < many:
            rows[place:] = rows[place] + 1
            return True
    return False


@inner
def _within_copies(points: RatePoints, group_of: Ints, rows: Ints) -> bool:
    """Whether no group has more replicas than it may have."""
    for row in rows:
        times = 0
        for other in rows:
            times += group_of[other] == group_of[row]
        if times > points.copies[group_of[row]]:
            return False
    return True


@inner
def _largest(points: RatePoints, at: Ints, rows: Ints, units: Ints, chosen: Ints, carried: Floats) -> bool:
    """Lower batches from the largest, until all are feasible together and no next smaller one carries as much; return
    whether every replica then carries the least rate of its group.

    ``chosen`` and ``carried``, both (replicas,), are overwritten by operating points and requests/s.
    """
    size, cache, power_w = len(rows), 0.0, 0.0
    for place in range(size):
        batch = at.shape[2] - 1
        while batch > 0 and at[rows[place], units[place], batch] == NONE:
            batch -= 1
        chosen[place] = at[rows[place], units[place], batch]
        if chosen[place] == NONE:
            return False
        cache, power_w = cache + points.cache[chosen[place]], power_w + points.power_w[chosen[place]]
    changed = True
    while changed:
        changed = False
        for place in range(size):
            one = chosen[place]
            carried[place] = _rps(points, one, size, cache, power_w)
            smaller = at[rows[place], units[place], points.batch[one] - 1] if points.batch[one] > 1 else np.int64(NONE)
            lowers = carried[place] <= 0
            if not lowers and smaller != NONE:
                less, less_w = points.cache[one] - points.cache[smaller], points.power_w[one] - points.power_w[smaller]
                lowers = _rps(points, smaller, size, cache - less, power_w - less_w) >= carried[place]
            if lowers:
                if smaller == NONE:
                    return False
                cache, power_w = (cache + points.cache[smaller] - points.cache[one],
                                  power_w + points.power_w[smaller] - points.power_w[one])
                chosen[place], changed = smaller, True
                break
    enough = True
    for place in range(size):
        enough = enough and carried[place] >= points.least_rps[points.group[chosen[place]]]
    return enough


@inner
def _rps(points: RatePoints, at: int, count: int, cache: float, power_w: float) -> float:
    """The requests/s of a point beside others, up to what counts for its group; 0 if it violates its SLO."""
    carried = carried_rps(points, at, gpu_ms(points, at, count, cache, power_w, ROUNDED))
    return min(carried, points.most_rps[points.group[at]])
