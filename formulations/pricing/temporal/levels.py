"""Levels of a part of a GPU on which replicas take turns. A level limits the length of the duty cycle, and the
pressures between the parts.

In a duty cycle of at most C ms, every replica of the part runs one batch. So each replica has the smallest batch with
which it keeps its SLO and rate in a cycle of C ms, and the execution of this batch takes a fraction of C. The execution
time also depends on the pressure (interference) that the other part of the GPU exerts. A level limits the pressure that
a part receives and exerts. So the two parts can be priced separately and then combined. A further level is for a
replica that is alone on its part.

Levels are for bounds: each has the shortest cycle and the least received pressure of an interval. At a level, a replica
of a role takes a whole number of units of the duty cycle, and a knapsack finds the most valuable roles.
"""

from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.temporal.tables import ALONE, TurnTables
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.compiled import compiled, inner
from provision.models.base.tolerances import DUST, FORGIVEN

UNITS = 120
"""The units of a duty cycle."""
STEP, PRESSURES = 1.05, 5
"""The ratio of successive cycles, and the number of intervals of the pressures that a part exerts."""


class Side(NamedTuple):
    """One part of a GPU with a share (an index), and its levels in the order (received, exerted, cycles and then
    alone). ``shape`` is the number of intervals of the pressures that it receives and that it exerts.

    ``units`` (levels, rows) are what a replica of a row takes of UNITS, one more than UNITS where that is not allowed.
    """

    share: int
    units: Ints
    shape: tuple[int, int]


def sides_of(tables: TurnTables) -> list[list[Side]]:
    """The parts of every split of a GPU. The rows of ``tables`` are roles, each with one of its models."""
    pressures = [_pressures(tables, share) for share in range(len(tables.shares))]
    splits = [[tables.shares.index(share) for share in split] for split in dict.fromkeys(
        tuple(sorted(one)) for one in tables.data.splits)]
    undisturbed, unlimited = np.array([ALONE]), np.array([np.inf])
    return [[_side(tables, split[0], undisturbed, unlimited)] if len(split) == 1 else
            [_side(tables, share, pressures[other][0], pressures[share][1])
             for share, other in zip(split, split[::-1], strict=True)] for split in splits]


def _pressures(tables: TurnTables, share: int) -> tuple[Floats, Floats]:
    """Intervals of the pressures that replicas on a share exert: (intervals,) the least and the most of each."""
    found = np.unique(tables.pressure[share])
    last = np.unique(np.linspace(0, len(found) - 1, PRESSURES + 1).round().astype(int)[1:])
    return found[np.append(0, last[:-1] + 1)], found[last]


def _side(tables: TurnTables, share: int, received: Floats, exerted: Floats) -> Side:
    """All levels of a share. ``received`` are the least pressures that the other part exerts, ``exerted`` the most that
    this part may exert.
    """
    cycles_ms, who, found, none = _cycles(tables, share), np.arange(len(tables.rates)), list[Ints](), UNITS + 1
    pressure = tables.pressure[share]
    for least in received:
        busy_ms = tables.beside(share, least) / (1 + FORGIVEN)
        size, there = _smallest(cycles_ms[:-1, None, None] <= _room_ms(tables, busy_ms, in_turns=True))
        single, alone = _smallest((busy_ms <= _room_ms(tables, busy_ms, in_turns=False))[None])
        units = np.floor(busy_ms[who, size] / cycles_ms[1:, None] * UNITS * (1 - DUST))
        for most in exerted:
            found.append(np.where(there & (units <= UNITS) & (pressure[who, size] <= most), units, none))
            found.append(np.where(alone & (pressure[who, single] <= most), UNITS, none))
    return Side(share, np.concatenate(found).astype(int), (len(received), len(exerted)))


def _room_ms(tables: TurnTables, busy_ms: Floats, in_turns: bool) -> Floats:
    """The longest duty cycles (workloads, batches), in ms, in which a replica keeps its latency at its rate."""
    who, size = np.arange(len(busy_ms))[:, None], np.arange(busy_ms.shape[1])
    return tables.room_ms(who, tables.rates[who], size, busy_ms, in_turns) * (1 + FORGIVEN)


def _smallest(enough: Bools) -> tuple[Ints, Bools]:
    """The indices of the smallest batches that suffice, and whether there are any; both (levels, workloads)."""
    return np.argmax(enough, axis=2), np.asarray(enough.any(axis=2))


def _cycles(tables: TurnTables, share: int) -> Floats:
    """The ends of intervals of duty cycles in ms, from the shortest execution to the longest cycle that an SLO allows.
    """
    shortest = float(tables.time_ms[share].min(initial=np.inf)) * (1 - FORGIVEN)
    longest = max(float(tables.allowed_ms.max(initial=0.0)), shortest * STEP) * (1 + FORGIVEN)
    return shortest * STEP ** np.arange(np.ceil(np.log(longest / shortest) / np.log(STEP)) + 1)


@compiled
def best_levels(units: Ints, values: Ints, copies: Ints, several: int) -> tuple[Ints, Ints]:
    """(blocks,) the highest total value of roles at any level of a block, and the index of this level.

    Parameters
    ----------
    units
        (levels, roles) the units that a replica takes; more than UNITS where a level does not allow the role.
    values, copies
        (roles,) the whole-number value of each role, and how often it may be taken.
    several
        The number of consecutive levels in a block.
    """
    blocks = len(units) // several
    best, chosen, none = np.zeros(blocks, np.int64), np.arange(blocks) * several, np.zeros((0, 0), np.bool_)
    for block in range(blocks):
        for level in range(block * several, (block + 1) * several):
            most = _fill(units[level], values, copies, none)
            if most > best[block]:
                best[block], chosen[block] = most, level
    return best, chosen


@inner
def _passes(units: int, value: int, copies: int) -> int:
    """How often the table is passed for a role: once for every copy. One pass takes any number of replicas if the units
    are used up before the copies are.
    """
    if value <= 0 or units > UNITS:
        return 0
    return copies if copies * units < UNITS else 1


@inner
def _fill(units: Ints, values: Ints, copies: Ints, taken: Bools) -> int:
    """The highest value at a level. ``taken`` (passes, UNITS + 1) gets whether a pass took a replica at each number of
    units, unless it is empty.
    """
    table, row = np.zeros(UNITS + 1, np.int64), 0
    for role in range(len(units)):
        need, value = units[role], values[role]
        for _ in range(_passes(need, value, copies[role])):
            endless = copies[role] * need >= UNITS
            for step in range(UNITS - need + 1):
                at = need + step if endless else UNITS - step
                if table[at - need] + value > table[at]:
                    table[at] = table[at - need] + value
                    if len(taken):
                        taken[row, at] = True
            row += 1
    return table[UNITS]


@compiled
def roles_at(units: Ints, values: Ints, copies: Ints) -> Ints:
    """The roles of a pattern of the highest value at one level, each as often as it is taken; ``units`` is (roles,)."""
    rows = 0
    for role in range(len(units)):
        rows += _passes(units[role], values[role], copies[role])
    taken = np.zeros((rows, UNITS + 1), np.bool_)
    _fill(units, values, copies, taken)
    found, many, at, row = np.zeros(rows + UNITS, np.int64), 0, UNITS, rows - 1
    for role in range(len(units) - 1, -1, -1):
        for _ in range(_passes(units[role], values[role], copies[role])):
            while taken[row, at]:
                found[many], many, at = role, many + 1, at - units[role]
                if copies[role] * units[role] < UNITS:
                    break
            row -= 1
    return found[:many]
