"""Keeps account of a slice that is being filled: which replicas fit beside those it has, and their worth."""

from typing import NamedTuple

import numpy as np

from provision.heuristics.core.state import State, price_of
from provision.heuristics.core.tables import NONE, SliceTables
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import inner
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
    for role in range(len(slot.failing)):
        slot.failing[role] = NONE


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
def next_way(tables: SliceTables, number: int, factor: Floats, dense: bool, slot: Slot) -> int:
    """The index of the way to add to a slice next: of the most worth, or if ``dense`` per part of the slice; of equal
    ones the one that takes the least part. NONE if none fits.
    """
    best, least, found, setting = 0.0, 0.0, NONE, tables.settings[number]
    room, free, memory_gib = slot.spare[0], slot.spare[1], slot.spare[2]
    for w in range(len(tables.rows)):
        open_to = slot.most[w] > 0 or slot.bonus[w] > 0
        for at in range(tables.of_row[number, w], tables.of_row[number, w + 1] if open_to else 0):
            way, many = tables.ways[at], slot.counts[at - setting.first]
            if way.processes > free or way.memory_gib > memory_gib:
                continue
            part, new = min(way.most, slot.most[w]), many == 0 or way.apart
            if way.busy > 0:
                part = min(part, room / way.busy)
            if many >= way.limit or part < 0 or (new and (part < way.least or part < slot.least[w])):
                continue
            gain = factor[w] * saved(tables, slot, w, part) + (slot.bonus[w] if new else 0.0)
            taken = way.busy * (part if setting.points == NONE else way.most)
            taken += way.processes * tables.schedule.process + DUST
            key = gain / taken if dense else gain
            fits = setting.points == NONE or tables.rank[way.role] > slot.failing[tables.easiest[way.role]]
            if fits and (key > best or (key == best > 0 and taken < least)):
                best, least, found = key, taken, at
    return found


@inner
def saved(tables: SliceTables, slot: Slot, w: int, part: float) -> float:
    """By how much the price of what is left of a row's rate falls if a further replica carries a part of it."""
    return price_of(tables, w, slot.left[w]) - price_of(tables, w, slot.left[w] - part)


@inner
def add(tables: SliceTables, number: int, factor: Floats, slot: Slot, held: int, at: int) -> float:
    """Add a way to the slot, after ``held`` others; return its worth."""
    way, count = tables.ways[at], at - tables.settings[number].first
    w = way.row
    part, new = min(way.most, slot.most[w]), slot.counts[count] == 0 or way.apart
    if way.busy > 0:
        part = min(part, slot.spare[0] / way.busy)
    gain = factor[w] * saved(tables, slot, w, part) + (slot.bonus[w] if new else 0.0)
    slot.ways[held], slot.parts[held] = at, part
    slot.counts[count] += 1
    slot.replicas[w] += new
    slot.spare[0] -= way.busy * part
    slot.spare[1] -= way.processes
    slot.spare[2] -= way.memory_gib
    carry(tables, slot, w, part)
    return gain


@inner
def carry(tables: SliceTables, slot: Slot, w: int, part: float) -> None:
    """Record that the slice carries a further part of a row's rate."""
    slot.left[w] = max(slot.left[w] - part, 0.0)
    slot.room[w] -= part
    allow(tables, w, slot)


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
