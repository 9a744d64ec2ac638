"""Better patterns for given prices of places, by local search: a few units go from one replica to another, a replica
joins, or another workload class takes a replica's units.

The value of a pattern is the sum of its places' values, which are step functions of what the replicas carry. With given
units, batches begin at the largest that are feasible together, and shrink while the value does not fall, because a
smaller batch slows its neighbours less.
"""

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE, ROUNDED
from provision.formulations.pricing.mps.offers import PlaceValues
from provision.formulations.pricing.mps.rate_lists import PointTable
from provision.formulations.pricing.mps.rate_points import RatePoints, carried_rps, gpu_ms
from provision.formulations.values.schedule import SCHEDULE
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled, inner

MOVES = SCHEDULE.moves
"""A number that kernels can read."""


@compiled
def climbed(points: RatePoints, table: PointTable, values: PlaceValues, starts: Ints, draw: np.random.Generator
            ) -> tuple[Ints, Floats]:
    """The best pattern found from each start, as the points of its places (starts, places), and its value (starts,)."""
    found, worth = starts.copy(), np.zeros(len(starts))
    rows, units, batches = np.empty((3, starts.shape[1]), np.int64)
    tried, taken, sizes = np.empty((3, starts.shape[1]), np.int64)
    for start in range(len(starts)):
        size = 0
        for at in starts[start]:
            if at != NONE:
                rows[size], units[size], size = _row_of(points, table, at), points.units[at], size + 1
        best, idle = _fitted(points, table, values, rows, units, batches, size), 0
        while idle < MOVES and size:
            tried[:], taken[:] = rows, units
            many = _moved(points, table, tried, taken, size, draw)
            gained = _fitted(points, table, values, tried, taken, sizes, many) if many else 0.0
            idle += 1
            if gained > best * (1 + 1e-9):
                best, idle, size = gained, 0, many
                rows[:], units[:], batches[:] = tried, taken, sizes
        worth[start], found[start] = best, NONE
        for place in range(size if best > 0 else 0):
            found[start, place] = table.at[rows[place], units[place], batches[place]]
    return found, worth


@inner
def _row_of(points: RatePoints, table: PointTable, at: int) -> int:
    """The row of a point."""
    for row in range(len(table.group)):
        if table.at[row, points.units[at], points.batch[at]] == at:
            return row
    return 0


@inner
def _moved(points: RatePoints, table: PointTable, rows: Ints, units: Ints, size: int, draw: np.random.Generator
           ) -> int:
    """Change the rows and units of replicas at random; return the number of replicas, 0 if the change is impossible."""
    kind, one, some = draw.random(), int(draw.random() * size), 1 + int(draw.random() ** 2 * 8)
    free = points.limit
    for place in range(size):
        free -= units[place]
    if kind < 0.4:  # units go to another replica, or free units to this one
        other = int(draw.random() * size)
        if other == one:
            units[one] += min(some, free)
            return size if free > 0 else 0
        units[one] -= some
        units[other] += some
        return size if units[one] > 0 else 0
    if kind < 0.6:  # another row takes the units
        rows[one] = int(draw.random() * len(table.group))
        return size
    if kind < 0.9:  # a further replica takes units
        if size == len(rows) or size == points.most:
            return 0
        rows[size], units[size] = int(draw.random() * len(table.group)), some
        units[one] -= max(some - free, 0)
        return size + 1 if units[one] > 0 else 0
    if size == 1:
        return 0
    other = int(draw.random() * size)  # a replica leaves, and another one gets its units
    if other == one:
        return 0
    units[other] += units[one]
    rows[one], units[one] = rows[size - 1], units[size - 1]
    return size - 1


@inner
def _fitted(points: RatePoints, table: PointTable, values: PlaceValues, rows: Ints, units: Ints, batches: Ints,
            size: int) -> float:
    """The value of replicas with given rows and units; 0 if no batches are feasible. Writes the batches."""
    cache, power_w = 0.0, 0.0
    for place in range(size):
        batches[place] = table.at.shape[2] - 1
        while batches[place] > 0 and table.at[rows[place], units[place], batches[place]] == NONE:
            batches[place] -= 1
        if batches[place] == 0:
            return 0.0
        one = table.at[rows[place], units[place], batches[place]]
        cache, power_w = cache + points.cache[one], power_w + points.power_w[one]
    changed = True
    while changed:
        changed = False
        for place in range(size):
            one = table.at[rows[place], units[place], batches[place]]
            while carried_rps(points, one, gpu_ms(points, one, size, cache, power_w, ROUNDED)) <= 0:
                smaller = table.at[rows[place], units[place], batches[place] - 1]
                if smaller == NONE or batches[place] == 1:
                    return 0.0
                cache, power_w = (cache + points.cache[smaller] - points.cache[one],
                                  power_w + points.power_w[smaller] - points.power_w[one])
                batches[place], one, changed = batches[place] - 1, smaller, True
    best, shrinking = _value(points, table, values, rows, units, batches, size, cache, power_w), True
    while shrinking:
        shrinking = False
        for place in range(size):
            while batches[place] > 1:
                one = table.at[rows[place], units[place], batches[place]]
                smaller = table.at[rows[place], units[place], batches[place] - 1]
                if smaller == NONE:
                    break
                less, less_w = points.cache[one] - points.cache[smaller], points.power_w[one] - points.power_w[smaller]
                batches[place] -= 1
                value = _value(points, table, values, rows, units, batches, size, cache - less, power_w - less_w)
                if value < best:
                    batches[place] += 1
                    break
                best, cache, power_w, shrinking = value, cache - less, power_w - less_w, True
    return best


@inner
def _value(points: RatePoints, table: PointTable, values: PlaceValues, rows: Ints, units: Ints, batches: Ints,
           size: int, cache: float, power_w: float) -> float:
    """The value of replicas at operating points; 0 if one of them is late."""
    total = 0.0
    for place in range(size):
        one = table.at[rows[place], units[place], batches[place]]
        carried = carried_rps(points, one, gpu_ms(points, one, size, cache, power_w, ROUNDED))
        if carried <= 0:
            return 0.0
        at = table.group[rows[place]]
        step = np.searchsorted(values.rps[at], carried, side="right") - 1
        total += values.value[at, step] if step >= 0 else 0.0
    return total
