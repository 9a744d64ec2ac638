"""Fills slices in compiled code: an empty slice gets whatever is worth most, a segment or replicas at a setting. A
replica is worth what it lowers the price of the rates that are left.

At a setting, replicas are added one by one, the one that fits and is worth most next; or they come from a list of
patterns. A Slot keeps account of the replicas on the slice, and of what fits beside them.
"""

from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import settle
from provision.formulations.pricing.mps.tables import PointTables
from provision.heuristics.core.joined import points_of
from provision.heuristics.core.state import State, account, price_of
from provision.heuristics.core.tables import NONE, SliceTables
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled, inner
from provision.models.base.tolerances import DUST

ALL = 1 - 1e-9
"""The part of the rest of a rate that a workload's last replica must carry; the remainder is rounding."""


class Slot(NamedTuple):
    """A slice that is being filled.

    Attributes
    ----------
    left, room, replicas
        (rows,), the part of each rate that nothing carries, the part that the GPU may still carry, and the number of
        replicas.
    most, least, bonus
        (rows,), the most and the least part that a further replica may carry, and what it is worth even without any.
    counts
        (ways of the setting,), how often the slice has each way.
    spare
        (3,), the utilisation, the processes and the memory that are left.
    roles, units
        (places,), the roles of the replicas; and their units of SMs if the setting has tables of operating points.
    tried, points
        (places,), the units and operating points that are tried.
    failing
        (roles,), at the position of the easiest role of a chain: the position of the easiest role that is known to
        fail.
    ways, parts
        (places,), as in State.
    """

    left: Floats
    room: Floats
    replicas: Ints
    most: Floats
    least: Floats
    bonus: Floats
    counts: Ints
    spare: Floats
    roles: Ints
    units: Ints
    tried: Ints
    points: Ints
    failing: Ints
    ways: Ints
    parts: Floats


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

    The ways that are worth most come first; if ``dense`` is set, the ways with the most worth per part of the slice. If
    replicas slow each other, one is added only if all find operating points together.
    """
    setting, total, held = tables.settings[number], 0.0, np.int64(0)
    if setting.first_pattern < setting.end_pattern:
        return 0.0 if dense else fill_listed(tables, state, gpu, number, factor, slot)
    empty(tables, state, gpu, number, slot)
    while held < len(slot.ways):
        way = next_way(tables, number, factor, dense, slot, NONE)
        if way == NONE:
            break
        if setting.points == NONE or holds(tables, number, slot, held, tables.ways[way].role):
            total += add(tables, number, factor, slot, held, way)
            held += 1
    return total if rows_in(tables, slot, held) >= setting.workloads else 0.0


@inner
def holds(tables: SliceTables, number: int, slot: Slot, held: int, role: int) -> bool:
    """Whether a role finds an operating point beside the ``held`` replicas of a slot, at a setting whose replicas slow
    each other.

    If so, the slot keeps the units of all replicas. If not, no harder role of its chain does either; bisection finds
    the easiest role that fails, and the slot notes it.
    """
    points = points_of(tables.joined, tables.settings[number].points)
    if settles(points, slot, held, role):
        for at in range(held + 1):
            slot.units[at] = slot.tried[at]
        return True
    easiest = tables.easiest[role]
    slot.failing[easiest], holding, middle = tables.rank[role], easiest + 1, easiest
    while slot.failing[easiest] + 1 < holding:
        if settles(points, slot, held, tables.order[middle]):
            holding = middle
        else:
            slot.failing[easiest] = middle
        middle = (slot.failing[easiest] + holding) // 2
    return False


@inner
def settles(points: PointTables, slot: Slot, held: int, role: int) -> bool:
    """Whether operating points are found for the ``held`` replicas and one of a role; their units are in ``tried``.

    The new replica begins without units. The others begin with their earlier units, since beside further replicas they
    need no fewer.
    """
    slot.roles[held], slot.tried[held], used, first = role, 0, 0, points.first[role, 0]
    for at in range(held):
        slot.tried[at] = slot.units[at]
        used += slot.tried[at]
    if first == points.first[role, points.limit + 1] or used + points.units[first] > points.limit:
        return False
    return settle(points, slot.roles, held + 1, slot.tried, slot.points) != NONE


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
        way = next_way(tables, number, factor, False, slot, role) if role != NONE else role
        if way != NONE:
            total += add(tables, number, factor, slot, held, way)
            held += 1
    return total


@inner
def new_slot(tables: SliceTables, state: State, gpu: int) -> Slot:
    """An empty Slot with room for the largest setting of any slice of a GPU. ``empty`` prepares it for a setting."""
    rows, places, ways = len(state.left), state.ways.shape[2], np.int64(0)
    for setting in tables.settings:
        ways = max(ways, setting.end - setting.first)
    slot = Slot(np.empty(rows), np.empty(rows), np.empty(rows, np.int64), np.empty(rows), np.empty(rows),
                np.empty(rows), np.empty(ways, np.int64), np.empty(3), np.empty(places, np.int64),
                np.empty(places, np.int64), np.empty(places, np.int64), np.empty(places, np.int64),
                np.empty(len(tables.easiest), np.int64), np.empty(places, np.int64), np.empty(places))
    for w in range(rows):
        renew(tables, state, gpu, slot, w)
    for place in range(places):
        slot.ways[place] = NONE
    return slot


@inner
def empty(tables: SliceTables, state: State, gpu: int, number: int, slot: Slot) -> None:
    """Remove all replicas from a Slot of a GPU, and prepare it for a setting."""
    setting = tables.settings[number]
    for place in range(len(slot.ways)):
        if slot.ways[place] == NONE:
            break
        renew(tables, state, gpu, slot, tables.ways[slot.ways[place]].row)
        slot.ways[place] = NONE
    slot.spare[0], slot.spare[1], slot.spare[2] = setting.use, setting.processes, setting.memory_gib
    for at in range(setting.end - setting.first):
        slot.counts[at] = 0
    slot.failing[:] = NONE


@inner
def renew(tables: SliceTables, state: State, gpu: int, slot: Slot, w: int) -> None:
    """Set the rates of a row in a Slot to what the GPU may still carry beside its other slices."""
    slot.left[w], slot.room[w] = state.left[w], tables.rows[w].cap - state.on_gpu[gpu, w]
    slot.replicas[w] = state.replicas[w]
    allow(tables, w, slot)


@inner
def allow(tables: SliceTables, w: int, slot: Slot) -> None:
    """Set what a further replica of a row may carry on the slice, what it must carry, and its worth apart from that.

    It may carry the rest of the rate for which there is room. A row's last replica must carry the whole rest; if no
    further replica is allowed, the least is infinite. A replica that the row must have and lacks has a worth by itself.
    """
    row, replicas, left = tables.rows[w], slot.replicas[w], slot.left[w]
    slot.most[w] = min(left, slot.room[w])
    slot.least[w] = 0.0 if replicas < row.most - 1 else left * ALL if replicas < row.most else np.inf
    slot.bonus[w] = tables.schedule.replica if replicas < row.least else 0.0


@inner
def next_way(tables: SliceTables, number: int, factor: Floats, dense: bool, slot: Slot, role: int) -> int:
    """The index of the way to add to a slice next; NONE if none fits. It is the way of the most worth or, if ``dense``,
    of the most worth per part of the slice; of equal ways the one that takes the least part. If ``role`` is not NONE,
    only ways of this role count.
    """
    best, least, found, setting = 0.0, 0.0, NONE, tables.settings[number]
    for w in range(len(tables.rows)):
        open_to = slot.most[w] > 0 or slot.bonus[w] > 0
        for at in range(tables.of_row[number, w], tables.of_row[number, w + 1] if open_to else 0):
            way, many = tables.ways[at], slot.counts[at - setting.first]
            if way.processes > slot.spare[1] or way.memory_gib > slot.spare[2] or many >= way.limit:
                continue
            if setting.points != NONE and tables.rank[way.role] <= slot.failing[tables.easiest[way.role]]:
                continue
            if role != NONE and way.role != role:
                continue
            part, gain = worth(tables, number, factor, slot, at)
            if part < 0 or ((many == 0 or way.apart) and (part < way.least or part < slot.least[w])):
                continue
            taken = way.busy * (part if setting.points == NONE else way.most)
            taken += way.processes * tables.schedule.process + DUST
            key = gain / taken if dense else gain
            if key > best or (key == best > 0 and taken < least):
                best, least, found = key, taken, at
    return found


@inner
def worth(tables: SliceTables, number: int, factor: Floats, slot: Slot, at: int) -> tuple[float, float]:
    """The part of its row's rate that a further replica of a way could carry, and what that is worth."""
    way, many = tables.ways[at], slot.counts[at - tables.settings[number].first]
    part = min(way.most, slot.most[way.row])
    if way.busy > 0:
        part = min(part, slot.spare[0] / way.busy)
    bonus = slot.bonus[way.row] if many == 0 or way.apart else 0.0
    return part, factor[way.row] * saved(tables, slot, way.row, part) + bonus


@inner
def saved(tables: SliceTables, slot: Slot, w: int, part: float) -> float:
    """By how much the price of what is left of a row's rate falls if a further replica carries a part of it."""
    return price_of(tables, w, slot.left[w]) - price_of(tables, w, slot.left[w] - part)


@inner
def add(tables: SliceTables, number: int, factor: Floats, slot: Slot, held: int, at: int) -> float:
    """Add a way to the slot, after ``held`` others; return its worth."""
    way, count = tables.ways[at], at - tables.settings[number].first
    w = way.row
    part, gain = worth(tables, number, factor, slot, at)
    slot.ways[held], slot.parts[held] = at, part
    slot.replicas[w] += slot.counts[count] == 0 or way.apart
    slot.counts[count] += 1
    slot.spare[0] -= way.busy * part
    slot.spare[1] -= way.processes
    slot.spare[2] -= way.memory_gib
    slot.left[w] = max(slot.left[w] - part, 0.0)
    slot.room[w] -= part
    allow(tables, w, slot)
    return gain


@inner
def rows_in(tables: SliceTables, slot: Slot, held: int) -> int:
    """The number of different rows that the first ``held`` replicas serve."""
    many = 0
    for at in range(held):
        new = True
        for earlier in range(at):
            new &= tables.ways[slot.ways[earlier]].row != tables.ways[slot.ways[at]].row
        many += new
    return many
