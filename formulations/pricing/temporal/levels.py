"""Levels of a part of a GPU on which replicas take turns. A level limits the length of the duty cycle, and the
pressures between the parts.

In a duty cycle of at most C ms, every replica of the part runs one batch. So each replica has the smallest batch with
which it keeps its SLO and rate in a cycle of C ms, and the execution of this batch takes a fraction of C. The execution
time also depends on the pressure (interference) that the other part of the GPU exerts. A level limits the pressure that
a part receives and exerts. So the two parts can be planned separately and then combined. A further level is for a
replica that is alone on its part.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.knapsacks import Levels
from provision.formulations.pricing.temporal.tables import ALONE, TurnTables
from provision.models.base.arrays import Floats
from provision.models.base.tolerances import DUST, FORGIVEN, SINGLE


class Grid(NamedTuple):
    """How fine levels are: ``units`` per cycle, the ratio ``step`` of successive cycles, and the number of pressure
    ranges.
    """

    units: int
    step: float
    pressures: int


Pressures = tuple[Floats, Floats]
"""Ranges of the pressure that a part exerts or receives: (ranges,) the least and the most of each."""


def pressures_of(tables: TurnTables, share: int, ranges: int) -> Pressures:
    """The ranges of the pressures that replicas on a share exert."""
    found = np.unique(tables.pressure[share])
    last = np.unique(np.linspace(0, len(found) - 1, ranges + 1).round().astype(int)[1:])
    return found[np.append(0, last[:-1] + 1)], found[last]


UNDISTURBED = np.array([ALONE]), np.array([ALONE])
"""The pressure that a part with the whole GPU to itself receives: none."""
UNLIMITED = np.array([np.inf]), np.array([np.inf])
"""The pressure that a part with the whole GPU to itself may exert: any."""


def levels_of(tables: TurnTables, start: NDArray[np.int64], share: int, received: Pressures, exerted: Pressures,
              grid: Grid, relaxed: bool) -> Levels:
    """The levels of a share, in the order (received, exerted, cycles and then alone).

    Parameters
    ----------
    tables
        Execution times and pressures. Each of its workloads stands for a role with one of the role's models.
    start
        (roles + 1,) the workloads of role r are those from ``start[r]`` up to ``start[r + 1]``.
    share
        Index of the share.
    received, exerted
        The ranges of the pressure that the other part exerts on this part, and of the pressure that this part exerts on
        it.
    grid
        How fine the levels are.
    relaxed
        Whether the levels are for bounds. If so, each level has the cycle and the received pressure of its lower end.
    """
    cycles_ms = _cycles(tables, share, grid.step)
    shortest_ms = cycles_ms[:-1] if relaxed else cycles_ms[1:]
    forgiven = 1 + FORGIVEN if relaxed else 1.0
    who = np.arange(len(tables.rates))
    first, second = [], []
    for pressure in received[0 if relaxed else 1]:
        busy_ms = tables.beside(share, pressure) / forgiven
        size, there = _smallest(shortest_ms[:, None, None] <= _room_ms(tables, busy_ms, True, forgiven))
        single, alone = _smallest((busy_ms <= _room_ms(tables, busy_ms, False, forgiven))[None])
        parts = busy_ms[who, size] / cycles_ms[1:, None] * grid.units
        units = np.floor(parts * (1 - DUST)) if relaxed else np.ceil(parts)
        for most in exerted[1]:
            fits = there & (units <= grid.units) & (tables.pressure[share][who, size] <= most)
            first.append(np.where(fits, 0, -1))
            first.append(np.where(alone & (tables.pressure[share][who, single] <= most), 1, -1))
            second += [units, np.zeros(single.shape)]
    taken = np.concatenate(first).astype(np.int32)
    memory_gib = np.broadcast_to(tables.memory_gib * (1 - SINGLE if relaxed else 1), taken.shape)
    room = np.tile(np.append(np.zeros(len(cycles_ms) - 1, np.int64), 1), len(received[1]) * len(exerted[1]))
    return Levels(start, taken, np.where(taken == 0, np.concatenate(second), 0).astype(np.int32),
                  memory_gib.astype(np.float32, "C"), room, grid.units)


def _room_ms(tables: TurnTables, busy_ms: NDArray[np.float64], in_turns: bool, forgiven: float
             ) -> NDArray[np.float64]:
    """The longest duty cycles (workloads, batches), in ms, in which a replica keeps its latency at its rate."""
    who, size = np.arange(len(busy_ms))[:, None], np.arange(busy_ms.shape[1])
    room_ms: NDArray[np.float64] = tables.room_ms(who, tables.rates[who], size, busy_ms, in_turns) * forgiven
    return room_ms


def _smallest(enough: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The indices of the smallest batches that suffice, and whether there are any; both (levels, workloads)."""
    return np.argmax(enough, axis=2), np.asarray(enough.any(axis=2))


def _cycles(tables: TurnTables, share: int, step: float) -> NDArray[np.float64]:
    """The ends of intervals of duty cycles in ms, from the shortest execution to the longest cycle that an SLO allows.
    """
    shortest = float(tables.time_ms[share].min(initial=np.inf)) * (1 - FORGIVEN)
    longest = max(float(tables.allowed_ms.max(initial=0.0)), shortest * step) * (1 + FORGIVEN)
    return shortest * step ** np.arange(np.ceil(np.log(longest / shortest) / np.log(step)) + 1)
