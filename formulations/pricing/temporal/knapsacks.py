"""Knapsacks by levels: the most valuable roles that take turns on a part of a GPU, at each of many levels.

At a level, a replica of a role takes a whole number of units of the duty cycle.
"""

import numpy as np

from provision.models.base.arrays import Bools, Ints
from provision.models.base.compiled import compiled, inner

UNITS = 120
"""The units of a duty cycle."""


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
