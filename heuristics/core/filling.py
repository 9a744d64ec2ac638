"""Compiled filling of slices: the most valuable goes onto an empty slice, a segment or replicas at a setting.

Replicas are added one by one, the most valuable that fits next, or come from a list of patterns.
"""

import numpy as np

from provision.formulations.pricing.mps.kernels import settle
from provision.formulations.pricing.mps.tables import PointTables
from provision.heuristics.core.joined import points_of
from provision.heuristics.core.slots import Slot, add, carry, empty, new_slot, next_way, rows_in
from provision.heuristics.core.state import State, account
from provision.heuristics.core.tables import NONE, SliceTables
from provision.models.base.arrays import Floats
from provision.models.base.compiled import inner


@inner
def occupy(tables: SliceTables, state: State, gpu: int, place: int, worth: Floats) -> float:
    """Put the most valuable on an empty slice, a segment or a setting filled in either order; returns its worth."""
    slice_type, best, open_to, slot = state.slice_type[gpu, place], 0.0, 0, new_slot(tables, state, gpu)
    for w in range(len(worth)):
        part = min(tables.segment[w, slice_type], slot.most[w])
        gain = worth[w] * part + slot.bonus[w]
        if tables.segment[w, slice_type] > 0 and part >= slot.least[w] and gain > best:
            best, state.alone[gpu, place], state.parts[gpu, place, 0] = gain, w, part
        open_to += slot.most[w] > 0 or slot.bonus[w] > 0
    for number in range(len(tables.settings)):
        setting = tables.settings[number]
        if setting.slice_type != slice_type or setting.workloads > open_to:
            continue
        for dense in (False, True):
            gain = fill(tables, state, gpu, number, worth, dense, slot)
            if gain > best:
                best, state.alone[gpu, place], state.setting[gpu, place] = gain, NONE, number
                for at in range(len(slot.ways)):
                    state.ways[gpu, place, at], state.parts[gpu, place, at] = slot.ways[at], slot.parts[at]
    account(tables, state, gpu, place, np.int64(1))
    return best


@inner
def fill(tables: SliceTables, state: State, gpu: int, number: int, worth: Floats, dense: bool, slot: Slot) -> float:
    """Fill a Slot at a setting; returns what that is worth, 0 where too few workloads share it.

    The most valuable ways come first, or where ``dense`` those of the most value for what they take of the slice.
    """
    setting, total, held = tables.settings[number], 0.0, np.int64(0)
    if setting.first_pattern < setting.end_pattern:
        return 0.0 if dense else fill_listed(tables, state, gpu, number, worth, slot)
    empty(tables, state, gpu, number, slot)
    if setting.points != NONE:
        return fill_beside(tables, number, worth, dense, slot)
    while held < len(slot.ways):
        way = next_way(tables, number, worth, dense, slot)
        if way == NONE:
            break
        total += add(tables, number, worth, slot, held, way)
        held += 1
    return total if rows_in(tables, slot, held) >= setting.workloads else 0.0


@inner
def fill_beside(tables: SliceTables, number: int, worth: Floats, dense: bool, slot: Slot) -> float:
    """Fill an empty Slot where all replicas need operating points under which they hold together."""
    points, total, held = points_of(tables.joined, tables.settings[number].points), 0.0, np.int64(0)
    while held < len(slot.ways):
        way = next_way(tables, number, worth, dense, slot)
        if way == NONE:
            break
        if holds_beside(tables, points, slot, held, tables.ways[way].role):
            total += add(tables, number, worth, slot, held, way)
            held += 1
    growing = True
    while growing:
        growing = False
        for place in range(held):
            gain = grow(tables, points, worth, slot, held, place)
            total, growing = total + gain, growing or gain > 0
    return total


@inner
def holds_beside(tables: SliceTables, points: PointTables, slot: Slot, held: int, role: int) -> bool:
    """Whether a role finds an operating point beside the ``held`` replicas of a slot, whose units are then noted.

    Where it does not, neither does any harder role of its models and SLO, which is noted, too. Bisection finds out how
    far that reaches.
    """
    slot.roles[held] = role
    if settles(points, slot, held + 1, held):
        keep_units(slot, held + 1)
        return True
    easiest = tables.easiest[role]
    slot.failing[easiest], holding, middle = role, easiest + 1, easiest
    while slot.failing[easiest] + 1 < holding:
        slot.roles[held] = middle
        if settles(points, slot, held + 1, held):
            holding = middle
        else:
            slot.failing[easiest] = middle
        middle = (slot.failing[easiest] + holding) // 2
    return False


@inner
def settles(points: PointTables, slot: Slot, size: int, new: int) -> bool:
    """Whether operating points are found for the roles of the first replicas of a slot; their units are in ``tried``.

    All but the replica at place ``new`` have had their units before, and need no less beside further ones.
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
    """Give the first replicas of a slot the units that were tried."""
    for at in range(size):
        slot.units[at] = slot.tried[at]


@inner
def grow(tables: SliceTables, points: PointTables, worth: Floats, slot: Slot, held: int, place: int) -> float:
    """Let a replica carry more if all ``held`` replicas find operating points; returns what that is worth."""
    at, w, before = tables.ways[slot.ways[place]].harder, tables.ways[slot.ways[place]].row, slot.roles[place]
    if at == NONE or slot.most[w] <= 0:
        return 0.0
    slot.roles[place] = tables.ways[at].role
    if not settles(points, slot, held, place):
        slot.roles[place] = before
        return 0.0
    more = min(tables.ways[at].most - slot.parts[place], slot.most[w])
    keep_units(slot, held)
    slot.ways[place] = at
    slot.parts[place] += more
    carry(tables, slot, w, more)
    return worth[w] * more


@inner
def fill_listed(tables: SliceTables, state: State, gpu: int, number: int, worth: Floats, slot: Slot) -> float:
    """Fill a Slot with the listed pattern that is worth most; returns its worth."""
    setting = tables.settings[number]
    best, chosen = 0.0, setting.first_pattern
    for pattern in range(setting.first_pattern, setting.end_pattern):
        total = fill_pattern(tables, state, gpu, number, worth, slot, pattern)
        if total > best:
            best, chosen = total, pattern
    return fill_pattern(tables, state, gpu, number, worth, slot, chosen)


@inner
def fill_pattern(tables: SliceTables, state: State, gpu: int, number: int, worth: Floats, slot: Slot, pattern: int
                 ) -> float:
    """Fill a Slot with the most valuable replicas for a listed pattern; returns their worth."""
    empty(tables, state, gpu, number, slot)
    total, held = 0.0, np.int64(0)
    for role in tables.patterns[pattern]:
        way = best_of_role(tables, number, worth, slot, role)
        if way != NONE:
            total += add(tables, number, worth, slot, held, way)
            held += 1
    return total


@inner
def best_of_role(tables: SliceTables, number: int, worth: Floats, slot: Slot, role: int) -> int:
    """The way with a role that is worth most by what is left, NONE where none is."""
    found, best, setting = NONE, 0.0, tables.settings[number]
    for at in range(setting.first, setting.end):
        way = tables.ways[at]
        part = min(way.most, slot.most[way.row])
        gain = worth[way.row] * part + slot.bonus[way.row]
        if way.role == role and part >= slot.least[way.row] and gain > best:
            found, best = at, gain
    return found
