"""Fills slices in compiled code: an empty slice gets whatever is worth most, a segment or replicas at a setting. A
replica is worth what it lowers the price of the rates that are left.

At a setting, replicas are added one by one, the one that fits and is worth most next; or they come from a list of
patterns.
"""

import numpy as np

from provision.formulations.pricing.mps.kernels import settle
from provision.formulations.pricing.mps.tables import PointTables
from provision.heuristics.core.joined import points_of
from provision.heuristics.core.slots import Slot, add, carry, empty, new_slot, next_way, rows_in, saved
from provision.heuristics.core.state import State, account
from provision.heuristics.core.tables import NONE, SliceTables
from provision.models.base.arrays import Floats
from provision.models.base.compiled import compiled, inner


@compiled
def occupy(tables: SliceTables, state: State, gpu: int, place: int, factor: Floats) -> float:
    """Fill an empty slice with whatever is worth most; return its worth.

    It tries every segment, and every setting twice: filled by worth, and by worth per part of the slice.
    """
    slice_type, best, open_to, slot = state.slice_type[gpu, place], 0.0, 0, new_slot(tables, state, gpu)
    for w in range(len(factor)):
        part = min(tables.segment[w, slice_type], slot.most[w])
        gain = factor[w] * saved(tables, slot, w, part) + slot.bonus[w]
        if tables.segment[w, slice_type] > 0 and part >= slot.least[w] and gain > best:
            best, state.alone[gpu, place], state.parts[gpu, place, 0] = gain, w, part
        open_to += slot.most[w] > 0 or slot.bonus[w] > 0
    for number in range(len(tables.settings)):
        setting = tables.settings[number]
        if setting.slice_type != slice_type or setting.workloads > open_to:
            continue
        for dense in (False, True):
            gain = fill(tables, state, gpu, number, factor, dense, slot)
            if gain > best:
                best, state.alone[gpu, place], state.setting[gpu, place] = gain, NONE, number
                for at in range(len(slot.ways)):
                    state.ways[gpu, place, at], state.parts[gpu, place, at] = slot.ways[at], slot.parts[at]
    account(tables, state, gpu, place, np.int64(1))
    return best


@inner
def fill(tables: SliceTables, state: State, gpu: int, number: int, factor: Floats, dense: bool, slot: Slot) -> float:
    """Fill a Slot at a setting; return the worth of its replicas, 0 if fewer workloads share it than the setting
    requires.

    The ways that are worth most come first; if ``dense`` is set, the ways with the most worth per part of the slice.
    """
    setting, total, held = tables.settings[number], 0.0, np.int64(0)
    if setting.first_pattern < setting.end_pattern:
        return 0.0 if dense else fill_listed(tables, state, gpu, number, factor, slot)
    empty(tables, state, gpu, number, slot)
    if setting.points != NONE:
        return fill_beside(tables, number, factor, dense, slot)
    while held < len(slot.ways):
        way = next_way(tables, number, factor, dense, slot)
        if way == NONE:
            break
        total += add(tables, number, factor, slot, held, way)
        held += 1
    return total if rows_in(tables, slot, held) >= setting.workloads else 0.0


@inner
def fill_beside(tables: SliceTables, number: int, factor: Floats, dense: bool, slot: Slot) -> float:
    """Fill an empty Slot at a setting whose replicas slow each other; return the worth of its replicas.

    A replica is added only if all replicas find operating points together. At the end replicas carry more while they
    can.
    """
    points, total, held = points_of(tables.joined, tables.settings[number].points), 0.0, np.int64(0)
    while held < len(slot.ways):
        way = next_way(tables, number, factor, dense, slot)
        if way == NONE:
            break
        if holds_beside(tables, points, slot, held, tables.ways[way].role):
            total += add(tables, number, factor, slot, held, way)
            held += 1
    growing = True
    while growing:
        growing = False
        for place in range(held):
            gain = grow(tables, points, factor, slot, held, place)
            total, growing = total + gain, growing or gain > 0
    return total


@inner
def holds_beside(tables: SliceTables, points: PointTables, slot: Slot, held: int, role: int) -> bool:
    """Whether a role finds an operating point beside the ``held`` replicas of a slot.

    If so, the slot keeps the units of all replicas. If not, no harder role of its chain does either; bisection finds
    the easiest role that fails, and the slot notes it.
    """
    slot.roles[held] = role
    if settles(points, slot, held + 1, held):
        keep_units(slot, held + 1)
        return True
    easiest = tables.easiest[role]
    slot.failing[easiest], holding, middle = tables.rank[role], easiest + 1, easiest
    while slot.failing[easiest] + 1 < holding:
        slot.roles[held] = tables.order[middle]
        if settles(points, slot, held + 1, held):
            holding = middle
        else:
            slot.failing[easiest] = middle
        middle = (slot.failing[easiest] + holding) // 2
    return False


@inner
def settles(points: PointTables, slot: Slot, size: int, new: int) -> bool:
    """Whether operating points are found for the roles of the first ``size`` replicas; their units are then in
    ``tried``.

    The replica at place ``new`` begins without units. The others begin with their earlier units, since beside further
    replicas they need no fewer.
    """
    used, first = 0, points.first[slot.roles[new], 0]
    for at in range(size):
        slot.tried[at] = 0 if at == new else slot.units[at]
        used += slot.tried[at]
    if first == points.first[slot.roles[new], points.limit + 1] or used + points.units[first] > points.limit:
        return False
    return settle(points, slot.roles, size, slot.tried, slot.points) != NONE


@inner
def keep_units(slot: Slot, size: int) -> None:
    """Keep the units that were tried as those of the first ``size`` replicas of a slot."""
    for at in range(size):
        slot.units[at] = slot.tried[at]


@inner
def grow(tables: SliceTables, points: PointTables, factor: Floats, slot: Slot, held: int, place: int) -> float:
    """Let the replica at a place carry more if all ``held`` replicas find operating points; return the worth of the
    increase.
    """
    at, w, before = tables.ways[slot.ways[place]].harder, tables.ways[slot.ways[place]].row, slot.roles[place]
    if at == NONE or slot.most[w] <= 0:
        return 0.0
    slot.roles[place] = tables.ways[at].role
    if not settles(points, slot, held, place):
        slot.roles[place] = before
        return 0.0
    more = min(tables.ways[at].most - slot.parts[place], slot.most[w])
    gain = factor[w] * saved(tables, slot, w, more)
    keep_units(slot, held)
    slot.ways[place] = at
    slot.parts[place] += more
    carry(tables, slot, w, more)
    return gain


@inner
def fill_listed(tables: SliceTables, state: State, gpu: int, number: int, factor: Floats, slot: Slot) -> float:
    """Fill a Slot with the listed pattern that is worth most; return its worth."""
    setting = tables.settings[number]
    best, chosen = 0.0, setting.first_pattern
    for pattern in range(setting.first_pattern, setting.end_pattern):
        total = fill_pattern(tables, state, gpu, number, factor, slot, pattern)
        if total > best:
            best, chosen = total, pattern
    return fill_pattern(tables, state, gpu, number, factor, slot, chosen)


@inner
def fill_pattern(tables: SliceTables, state: State, gpu: int, number: int, factor: Floats, slot: Slot, pattern: int
                 ) -> float:
    """Fill a Slot with a listed pattern, for each role with the replica that is worth most; return their worth."""
    empty(tables, state, gpu, number, slot)
    total, held = 0.0, np.int64(0)
    for role in tables.patterns[pattern]:
        way = best_of_role(tables, number, factor, slot, role)
        if way != NONE:
            total += add(tables, number, factor, slot, held, way)
            held += 1
    return total


@inner
def best_of_role(tables: SliceTables, number: int, factor: Floats, slot: Slot, role: int) -> int:
    """The index of the way with a role that is worth most for the rates that are left; NONE if no way is worth
    anything.
    """
    found, best, setting = NONE, 0.0, tables.settings[number]
    for at in range(setting.first, setting.end):
        way = tables.ways[at]
        part = min(way.most, slot.most[way.row])
        gain = factor[way.row] * saved(tables, slot, way.row, part) + slot.bonus[way.row]
        if way.role == role and part >= slot.least[way.row] and gain > best:
            found, best = at, gain
    return found
