"""Pricing of one-GPU patterns under interference: the dearest sets of classes at given duals.

Patterns fall into cells: the number of members, a range of their cache demand together, and one of their power.
In a cell every member needs at least the units that the cell's best neighbourhood forces on it, which makes the
search for dear patterns a small knapsack, by depth-first search with a dynamic program as bound. What comes out is
checked exactly. All cells together contain every pattern; a cell whose search is cut short keeps the program's
bound for what was not searched, so the search always bounds all values.
Duals are whole numbers, so sums are exact.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from provision.models.igniter_kernels import NONE, TRIES, UNKNOWN, arrange, clock_at, delay_at

CACHE_STEP, POWER_STEP_W = 0.04, 15.0
"""Widths of the cells; power below the cap is one cell."""
NEVER = -(1 << 60)


class Items(NamedTuple):
    """What to choose from, largest least units first: classes, whole-number values, and how many of each there are."""

    classes: np.ndarray
    values: np.ndarray
    copies: np.ndarray


class Found(NamedTuple):
    """Result of a search.

    ``members`` (patterns, places) and ``size`` hold patterns that can be planned; ``most`` is a value that
    no pattern exceeds, close only if the search was ``exhaustive``.
    """

    members: np.ndarray
    size: np.ndarray
    most: int
    exhaustive: bool


@njit(cache=True)
def cell_needs(tables, items, count, cache, power_w):
    """Least units, cache and power of every item in a cell that begins at a cache demand and power of all.

    A point with much cache itself leaves less to the others: each point sees what remains beside it.
    """
    many = len(items.classes)
    units, caches, powers = np.empty(many, np.int64), np.full(many, np.inf), np.full(many, np.inf)
    clock = clock_at(tables, power_w)
    for at, one in enumerate(items.classes):
        fixed_ms = tables.scheduling_ms[one] + tables.kernels[one] * delay_at(tables, count)
        units[at] = tables.limit + 1
        for point in range(tables.first[one, 0], tables.first[one, tables.limit + 1]):
            slowed = 1 + tables.sensitivity[one] * max(cache - tables.cache[point], 0.0)
            if clock > 0 and fixed_ms + tables.active_ms[point] * slowed <= clock * tables.loose_ms[point]:
                units[at] = min(units[at], tables.units[point])
                caches[at] = min(caches[at], tables.cache[point])
                powers[at] = min(powers[at], tables.power_w[point])
    return units, caches, powers


@njit(cache=True)
def knapsacks(items, needs, count, limit, best):
    """Fill ``best`` (items, count, units): most value of exactly so many items from one on, in so many units."""
    many = len(needs)
    best[many, : count + 1] = NEVER
    best[many, 0] = 0
    for at in range(many - 1, -1, -1):
        best[at, : count + 1] = best[at + 1, : count + 1]
        need, value = needs[at], items.values[at]
        for number in range(1, count + 1):
            for units in range(need, limit + 1):
                candidate = best[at, number - 1, units - need] + value
                if candidate > best[at, number, units]:
                    best[at, number, units] = candidate


@njit(cache=True)
def _most(tables, items, count, brought):
    """The most cache demand or power that so many items can bring to a GPU; below 0 when it cannot hold them."""
    best = np.full((count + 1, tables.limit + 1), -1.0)
    best[0] = 0
    by_units = np.full(tables.limit + 1, -np.inf)
    for one in items.classes:
        for point in range(tables.first[one, 0], tables.first[one, tables.limit + 1]):
            by_units[tables.units[point]] = max(by_units[tables.units[point]], brought[point])
    for number in range(1, count + 1):
        for total in range(1, tables.limit + 1):
            for units in range(1, total + 1):
                if best[number - 1, total - units] >= 0 and by_units[units] >= 0:
                    best[number, total] = max(best[number, total], best[number - 1, total - units] + by_units[units])
    return best[count, tables.limit]


@njit(cache=True)
def search(tables, items, floor, nodes, room):
    """Patterns of value above ``floor``: for every largest item the best, and those that led to it.

    Parameters
    ----------
    tables, items
        Tables and Items.
    floor
        Value that patterns must exceed.
    nodes
        Most nodes to visit in a cell.
    room
        Most patterns to return.

    Returns
    -------
    Found
    """
    limit, many = tables.limit, len(items.classes)
    target = np.full(many, floor)
    highest = np.full(1, floor)
    exhaustive = True
    found, sizes = np.empty((room, tables.most), np.int64), np.empty(room, np.int64)
    taken = np.zeros(1, np.int64)
    for count in range(1, tables.most + 1):
        fits = False
        best = np.empty((many + 1, count + 1, limit + 1), np.int64)
        most_cache = _most(tables, items, count, tables.cache)
        most_power_w = _most(tables, items, count, tables.power_w)
        power_w, power_end = 0.0, max(tables.cap_w - tables.idle_w, 0.0)
        while power_w <= most_power_w and clock_at(tables, power_w) > 0:
            cache = 0.0
            while cache <= most_cache:
                needs, caches, powers = cell_needs(tables, items, count, cache, power_w)
                ends = (cache + CACHE_STEP, power_end)
                if count * caches.min() <= ends[0] and count * powers.min() <= ends[1]:
                    knapsacks(items, needs, count, limit, best)
                    fits |= best[0, count, limit] >= 0
                    if best[0, count, limit] > floor:
                        exhaustive &= _cell(tables, items, needs, caches, powers, ends, count, best, target, highest,
                                            nodes, found, sizes, taken)
                cache += CACHE_STEP
            power_w, power_end = power_end, power_end + POWER_STEP_W
        if not fits:
            break
    return Found(found[: taken[0]], sizes[: taken[0]], highest[0], exhaustive)


@njit(cache=True)
def _cell(tables, items, needs, caches, powers, ends, count, best, target, highest, nodes, found, sizes, taken):
    """Search one cell, whether to its end; ``target`` by largest item, ``highest`` and what was ``found`` change."""
    many, limit = len(needs), tables.limit
    chosen, members = np.empty(count, np.int64), np.empty(count, np.int64)
    position, used, value = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    cache, power_w = np.zeros(count + 1), np.zeros(count + 1)
    units, points = np.empty(count, np.int64), np.empty(count, np.int64)
    for top in range(many):
        depth, position[0] = 0, top
        while depth >= 0:
            at = position[depth]
            free, goal = limit - used[depth], target[top] - value[depth]
            if (depth == 0 and at > top) or at >= many or best[at, count - depth, free] <= goal:
                depth -= 1
                continue
            position[depth] += 1
            rest = free - needs[at]
            if rest < 0 or items.values[at] + best[at, count - depth - 1, rest] <= goal:
                continue
            if depth >= items.copies[at] and chosen[depth - items.copies[at]] == at:
                continue
            if cache[depth] + caches[at] > ends[0] or power_w[depth] + powers[at] > ends[1]:
                continue
            nodes -= 1
            if nodes < 0:
                highest[0] = max(highest[0], best[top, count, limit])
                return False
            chosen[depth], members[depth] = at, items.classes[at]
            child = depth + 1
            value[child], used[child] = value[depth] + items.values[at], limit - rest
            cache[child], power_w[child] = cache[depth] + caches[at], power_w[depth] + powers[at]
            if child < count:
                position[child] = at
                depth = child
                continue
            total = arrange(tables, members, count, units, points, TRIES)
            if total != NONE:
                highest[0] = max(highest[0], value[child])
            if total != NONE and total != UNKNOWN and value[child] > target[top]:
                target[top] = value[child]
                if taken[0] < len(sizes):
                    found[taken[0], :count], sizes[taken[0]] = members, count
                    taken[0] += 1
    return True


@njit(cache=True)
def hardened(tables, found, harder_first, harder):
    """Replace, in every pattern, classes by harder ones of the same model as long as the pattern can be planned.

    ``harder[harder_first[c] : harder_first[c + 1]]`` are the next harder classes of c.
    """
    units, points = np.empty(tables.most, np.int64), np.empty(tables.most, np.int64)
    for row in range(len(found.size)):
        members, size = found.members[row], found.size[row]
        changed = True
        while changed:
            changed = False
            for turn in range(size):
                at = (turn + row) % size
                one = members[at]
                for other in harder[harder_first[one] : harder_first[one + 1]]:
                    members[at] = other
                    if arrange(tables, members, size, units, points, 0) >= 0:
                        changed = True
                        break
                    members[at] = one


def items_of(tables, harder_than, values, counts):
    """The Items of positive value, without those that an easier class of no less value stands for.

    Parameters
    ----------
    tables
        Tables.
    harder_than
        (classes, classes) flags: the first can serve the second. Classes stand hardest first.
    values, counts
        (classes,) whole numbers.
    """
    copies, kept = counts.copy(), []
    for one in range(len(values) - 1, -1, -1):
        easier = [other for other in kept if harder_than[one, other] and values[other] >= values[one]]
        if easier:
            copies[easier[0]] += counts[one]
        elif values[one] > 0:
            kept.append(one)
    least = tables.units[tables.first[:, 0]]
    kept = np.array(sorted(kept, key=lambda one: (-least[one], -values[one])), int)
    return Items(kept, values[kept], copies[kept])
