"""All ways to use one part of a GPU: sets of workloads that take turns there, with their batches."""

import numpy as np

from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.tolerances import STRICT
from provision.models.contents.turns.tables import ALONE, TurnTables

MOST_CONFIGURATIONS = 200_000
"""Most ways to use one share that are listed."""


class TooManyError(Exception):
    """Raised when there are more ways to use a share than can be listed."""


class Parts:
    """All ways to use one share, under every pressure that the other part of the GPU may exert.

    ``size`` is (ways, workloads): indices of batches, counted from 1, and 0 for absent workloads. ``emitted`` (ways,)
    is the pressure exerted on the other part. ``covered`` (pressures, ways, workloads) is the part of each rate that is
    carried, at most 1; it is 0 for all workloads of a way that breaks an SLO.
    """

    def __init__(self, tables: TurnTables, share: int, pressures: Floats) -> None:
        self.tables, self.share, self.pressures = tables, share, pressures
        self.size = _ways(tables, share, pressures[0])
        present, self.memory_gib = self.size > 0, (self.size > 0) @ tables.memory_gib
        felt = np.pad(tables.pressure[share], ((0, 0), (1, 0)), constant_values=ALONE)
        self.emitted = felt[np.arange(self.size.shape[1]), self.size].max(axis=1)
        self.covered = np.stack([self._covered(pressure, present) for pressure in pressures])

    def _covered(self, pressure: float, present: Bools) -> Floats:
        """Parts of the rates under one pressure, (ways, workloads)."""
        tables = self.tables
        time_ms = np.pad(tables.beside(self.share, pressure), ((0, 0), (1, 0)))
        busy_ms = time_ms[np.arange(self.size.shape[1]), self.size]
        cycle_ms = busy_ms.sum(axis=1, keepdims=True)
        meets = ((cycle_ms + busy_ms <= tables.allowed_ms) | ~present).all(axis=1, keepdims=True)
        batch = np.append(0, tables.batches)[self.size]
        return np.where(meets, np.minimum(1000 * batch / cycle_ms / tables.rates, 1), 0.0)


def emissions(tables: TurnTables, share: int) -> Floats:
    """All pressures that a part of this share may exert, rising."""
    return np.unique(tables.pressure[share])


def _ways(tables: TurnTables, share: int, pressure: float) -> Ints:
    """(ways, workloads) batches of all sets of replicas that meet their SLOs in turns under the least pressure."""
    time_ms = np.pad(tables.beside(share, pressure), ((0, 0), (1, 0)))
    sizes, cycle_ms, left_ms = np.zeros((1, 0), int), np.zeros(1), np.full(1, np.inf)
    for one, allowed_ms in enumerate(tables.allowed_ms):
        slack_ms = np.where(np.arange(time_ms.shape[1]) > 0, allowed_ms - time_ms[one], np.inf)
        cycle_ms, left_ms = np.add.outer(cycle_ms, time_ms[one]), np.minimum.outer(left_ms, slack_ms)
        before, size = np.nonzero(cycle_ms <= left_ms * (1 + STRICT))
        if len(before) > MOST_CONFIGURATIONS:
            raise TooManyError
        sizes = np.column_stack([sizes[before], size])
        cycle_ms, left_ms = cycle_ms[before, size], left_ms[before, size]
    return sizes[1:]
