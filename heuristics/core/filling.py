"""Fills slices in compiled code: an empty slice gets whatever is worth most, a segment or replicas at a setting.

A replica is worth as much as it lowers the price of the rates that nothing carries yet. At a setting, replicas come
from a list of patterns, or they are added one by one: of the replicas that fit, always the one that is worth most. A
Slot keeps account of the replicas on the slice, and of what fits beside them.

The kernels make no arrays, so that they need not count references, and compile in half the time.
"""

from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import settle
from provision.formulations.pricing.mps.tables import PointTables
from provision.heuristics.core.state import HELD, State, account, price_of
from provision.heuristics.core.tables import NONE, SliceTables
from provision.models.base.arrays import Floats, Ints, Records
from provision.models.base.compiled import inner

ALL = 1 - 1e-9
"""The part of the rest of a rate that a workload's last replica must carry; the remainder is rounding."""
ROOM = np.dtype([
    ("factor", np.float64),     # the factor on the row's prices
    ("left", np.float64),       # the part of the rate that nothing carries
    ("room", np.float64),       # the part that the GPU may still carry
    ("replicas", np.int64),
    ("most", np.float64),       # the most part that a further replica may carry
    ("least", np.float64),      # the least part
    ("bonus", np.float64),      # what a further replica is worth even without any
])
"""What a further replica of a row may carry on a slice, and what it is worth."""


class Slot(NamedTuple):
    """A slice that is being filled.

    Attributes
    ----------
    rows
        (rows,), records of type ROOM.
    held
        (places,), records of type HELD: the replicas on the slice, then NONE.
    counts
        (ways of the setting,), how often the slice has each way.
    spare
        (3,), the utilisation, the processes and the memory that are left.
    members
        (4, places), the roles of the replicas; their units of SMs if the setting has tables of operating points; and
        the units and operating points that are tried.
    failing
        (roles,), at the position of the easiest role of a chain: the position of the easiest role that is known to
        fail.
    order
        (2 places of GPUs,), the order in which slices are filled.
    """

    rows: Records
    held: Records
    counts: Ints
    spare: Floats
    members: Ints
    failing: Ints
    order: Ints


def new_slot(tables: SliceTables, state: State) -> Slot:
    """A Slot for any slice of a State, without factors on prices. ``begin`` and ``empty`` prepare it for one slice."""
    places, ways = state.held.shape[2], int((tables.settings["end"] - tables.settings["first"]).max(initial=0))
    rows = np.zeros(len(state.rest), ROOM)
    rows["factor"] = 1
    return Slot(rows, np.zeros(places, HELD), np.zeros(ways, np.int64), np.zeros(3), np.zeros((4, places), np.int64),
                np.zeros(len(tables.roles), np.int64), np.zeros(2 * state.slices.shape[1], np.int64))


@inner
def occupy(tables: SliceTables, state: State, slot: Slot, gpu: int, place: int) -> float:
    """Fill an empty slice with whatever is worth most, a segment or replicas at a setting; return its worth."""
    piece, best, open_to = state.slices[gpu, place], 0.0, begin(tables, state, slot, gpu)
    for w in range(len(slot.rows)):
        row = slot.rows[w]
        part = min(tables.segment[w, piece.slice_type], row.most)
        gain = row.factor * saved(tables, slot, w, part) + row.bonus
        if tables.segment[w, piece.slice_type] > 0 and part >= row.least and gain > best:
            best, piece.alone, state.held[gpu, place, 0].part = gain, w, part
    for number in range(len(tables.settings)):
        setting = tables.settings[number]
        if setting.slice_type != piece.slice_type or setting.workloads > open_to:
            continue
        gain = fill(tables, state, slot, gpu, number)
        if gain > best:
            best, piece.alone, piece.setting = gain, NONE, number
            for at in range(len(slot.held)):
                state.held[gpu, place, at] = slot.held[at]
    account(tables, state, gpu, place, np.int64(1))
    return best


@inner
def fill(tables: SliceTables, state: State, slot: Slot, gpu: int, number: int) -> float:
    """Fill a Slot at a setting; return the worth of its replicas, 0 if fewer workloads share it than the setting
    requires.

    The ways that are worth most come first. If replicas slow each other, one is added only if all find operating points
    together.
    """
    setting, total, held = tables.settings[number], 0.0, np.int64(0)
    if setting.first_pattern < setting.end_pattern:
        return fill_listed(tables, state, slot, gpu, number)
    empty(tables, state, slot, gpu, number)
    while held < len(slot.held):
        way = next_way(tables, slot, number, np.int64(NONE))
        if way == NONE:
            break
        if setting.points == NONE or holds(tables, slot, number, held, tables.ways[way].role):
            total += add(tables, slot, number, held, way)
            held += 1
    return total if rows_in(tables, slot, held) >= setting.workloads else 0.0


@inner
def holds(tables: SliceTables, slot: Slot, number: int, held: int, role: int) -> bool:
    """Whether a role finds an operating point beside the ``held`` replicas of a slot, at a setting whose replicas slow
    each other.

    If so, the slot keeps the units of all replicas. If not, no harder role of its chain does either; bisection finds
    the easiest role that fails, and the slot notes it.
    """
    one, units = tables.settings[number].points, slot.members[1]
    points = PointTables(tables.first[tables.begin[one]: tables.begin[one + 1]], tables.points,
                         tables.gpu[one: one + 1], tables.limits[one, 0], tables.limits[one, 1])
    if settles(points, slot, held, role):
        for at in range(held + 1):
            units[at] = slot.members[2, at]
        return True
    easiest = tables.roles[role].easiest
    slot.failing[easiest], holding, middle = tables.roles[role].rank, easiest + 1, easiest
    while slot.failing[easiest] + 1 < holding:
        if settles(points, slot, held, tables.roles[middle].order):
            holding = middle
        else:
            slot.failing[easiest] = middle
        middle = (slot.failing[easiest] + holding) // 2
    return False


@inner
def settles(points: PointTables, slot: Slot, held: int, role: int) -> bool:
    """Whether operating points are found for the ``held`` replicas and a new one of a role. The third row of
    ``slot.members`` gets the units of all.

    The new replica begins without units. The others begin with the units that they have, since they need no fewer
    beside a further replica.
    """
    roles, tried, used, first = slot.members[0], slot.members[2], 0, points.first[role, 0]
    roles[held], tried[held] = role, 0
    for at in range(held):
        tried[at] = slot.members[1, at]
        used += tried[at]
    if first == points.first[role, points.limit + 1] or used + points.at[first].units > points.limit:
        return False
    return settle(points, roles, held + 1, tried, slot.members[3]) != NONE


@inner
def fill_listed(tables: SliceTables, state: State, slot: Slot, gpu: int, number: int) -> float:
    """Fill a Slot with the listed pattern that is worth most; return its worth."""
    setting = tables.settings[number]
    best, chosen = 0.0, setting.first_pattern
    for pattern in range(setting.first_pattern, setting.end_pattern):
        total = fill_pattern(tables, state, slot, gpu, number, pattern)
        if total > best:
            best, chosen = total, pattern
    return fill_pattern(tables, state, slot, gpu, number, chosen)


@inner
def fill_pattern(tables: SliceTables, state: State, slot: Slot, gpu: int, number: int, pattern: int) -> float:
    """Fill a Slot with a listed pattern: each of its roles gets the replica that is worth most. Return the worth of
    all.
    """
    empty(tables, state, slot, gpu, number)
    total, held = 0.0, np.int64(0)
    for at in range(tables.patterns.shape[1]):
        role = tables.patterns[pattern, at]
        way = next_way(tables, slot, number, role) if role != NONE else role
        if way != NONE:
            total += add(tables, slot, number, held, way)
            held += 1
    return total


@inner
def begin(tables: SliceTables, state: State, slot: Slot, gpu: int) -> int:
    """Prepare an empty Slot for a GPU; return how many rows may have a further replica there."""
    open_to = 0
    for w in range(len(slot.rows)):
        renew(tables, state, slot, gpu, w)
        open_to += slot.rows[w].most > 0 or slot.rows[w].bonus > 0
    for at in range(len(slot.held)):
        slot.held[at].way = NONE
    return open_to


@inner
def empty(tables: SliceTables, state: State, slot: Slot, gpu: int, number: int) -> None:
    """Remove all replicas from a Slot of a GPU, and prepare it for a setting."""
    setting = tables.settings[number]
    for at in range(len(slot.held)):
        if slot.held[at].way == NONE:
            break
        renew(tables, state, slot, gpu, tables.ways[slot.held[at].way].row)
        slot.held[at].way = NONE
    slot.spare[0], slot.spare[1], slot.spare[2] = setting.use, setting.processes, setting.memory_gib
    for at in range(setting.end - setting.first):
        slot.counts[at] = 0
    for at in range(len(slot.failing)):
        slot.failing[at] = NONE


@inner
def renew(tables: SliceTables, state: State, slot: Slot, gpu: int, w: int) -> None:
    """Set the rates of a row in a Slot to what the GPU may still carry beside its other slices."""
    row = slot.rows[w]
    row.left, row.room = state.rest[w].left, tables.rows[w].cap - state.on_gpu[gpu, w]
    row.replicas = state.rest[w].replicas
    allow(tables, slot, w)


@inner
def allow(tables: SliceTables, slot: Slot, w: int) -> None:
    """Set what a further replica of a row may carry on the slice, what it must carry, and its worth apart from that.

    It may carry the rest of the rate for which there is room. A row's last replica must carry the whole rest; if no
    further replica is allowed, the least is infinite. A replica that the row must have and lacks has a worth by itself.
    """
    asked, row = tables.rows[w], slot.rows[w]
    row.most = min(row.left, row.room)
    row.least = 0.0 if row.replicas < asked.most - 1 else row.left * ALL if row.replicas < asked.most else np.inf
    row.bonus = tables.schedule.replica if row.replicas < asked.least else 0.0


@inner
def next_way(tables: SliceTables, slot: Slot, number: int, role: int) -> int:
    """The index of the way to add to a slice next; NONE if none fits. It is the way of the most worth; of equal ways
    the one that takes the least part of the slice. If ``role`` is not NONE, only ways of this role count.
    """
    best, least, found, setting = 0.0, 0.0, NONE, tables.settings[number]
    for w in range(len(tables.rows)):
        row = slot.rows[w]
        open_to = row.most > 0 or row.bonus > 0
        for at in range(tables.of_row[number, w], tables.of_row[number, w + 1] if open_to else 0):
            way, many = tables.ways[at], slot.counts[at - setting.first]
            if way.processes > slot.spare[1] or way.memory_gib > slot.spare[2] or many >= way.limit:
                continue
            if setting.points != NONE and tables.roles[way.role].rank <= slot.failing[tables.roles[way.role].easiest]:
                continue
            if role != NONE and way.role != role:
                continue
            part, gain = worth(tables, slot, number, at)
            if part < 0 or ((many == 0 or way.apart) and (part < way.least or part < row.least)):
                continue
            taken = way.busy * (part if setting.points == NONE else way.most)
            if gain > best or (gain == best > 0 and taken < least):
                best, least, found = gain, taken, at
    return found


@inner
def worth(tables: SliceTables, slot: Slot, number: int, at: int) -> tuple[float, float]:
    """The part of its row's rate that a further replica of a way could carry, and what that is worth."""
    way, many = tables.ways[at], slot.counts[at - tables.settings[number].first]
    row = slot.rows[way.row]
    part = min(way.most, row.most)
    if way.busy > 0:
        part = min(part, slot.spare[0] / way.busy)
    return part, row.factor * saved(tables, slot, way.row, part) + (row.bonus if many == 0 or way.apart else 0.0)


@inner
def saved(tables: SliceTables, slot: Slot, w: int, part: float) -> float:
    """By how much the price of what is left of a row's rate falls if a further replica carries a part of it."""
    return price_of(tables, w, slot.rows[w].left) - price_of(tables, w, slot.rows[w].left - part)


@inner
def add(tables: SliceTables, slot: Slot, number: int, held: int, at: int) -> float:
    """Add a way to the slot, after ``held`` others; return its worth."""
    way, count = tables.ways[at], at - tables.settings[number].first
    row = slot.rows[way.row]
    part, gain = worth(tables, slot, number, at)
    slot.held[held].way, slot.held[held].part = at, part
    row.replicas += slot.counts[count] == 0 or way.apart
    slot.counts[count] += 1
    slot.spare[0] -= way.busy * part
    slot.spare[1] -= way.processes
    slot.spare[2] -= way.memory_gib
    row.left = max(row.left - part, 0.0)
    row.room -= part
    allow(tables, slot, way.row)
    return gain


@inner
def rows_in(tables: SliceTables, slot: Slot, held: int) -> int:
    """The number of different rows that the first ``held`` replicas serve."""
    many = 0
    for at in range(held):
        new = True
        for earlier in range(at):
            new &= tables.ways[slot.held[earlier].way].row != tables.ways[slot.held[at].way].row
        many += new
    return many
