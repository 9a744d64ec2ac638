"""Sets of workloads, with one replica each, that share a whole GPU under interference."""

from collections.abc import Sequence

import numpy as np

from provision.formulations.pricing.listing import TooManyError
from provision.formulations.pricing.mps.kernels import NONE, UNKNOWN, arrange
from provision.formulations.pricing.mps.rate_points import running_at
from provision.formulations.pricing.mps.schedule import SCHEDULE
from provision.formulations.pricing.mps.tables import PointTables
from provision.formulations.pricing.oracle import Running
from provision.models.base.arrays import Ints
from provision.models.base.clock import Deadline


class InterferingSets:
    """The sets of demands that can share a whole GPU of one type.

    Parameters
    ----------
    tables
        The operating points of all demands.
    copies
        (demands,) the most replicas of each demand; by default one.
    """

    def __init__(self, tables: PointTables, copies: Sequence[int] = ()) -> None:
        self.tables, self.copies = tables, copies or [1] * len(tables.first)
        self.grown: list[tuple[int, ...]] = [()]
        self.can_be, self.done = set(self.grown), 0
        self.failing: set[tuple[int, ...]] = set()

    def every(self, until: Deadline) -> list[tuple[int, ...]] | None:
        """All sets, each in ascending order; some of them may hold only within the looser limits of bounds.

        None if there are too many sets, or if the time is over. Sets grow by one replica at a time, because all subsets
        of a feasible set are feasible.
        """
        while self.done < len(self.grown) <= SCHEDULE.sets and not until.over:
            demands = self.grown[self.done]
            for one in range(demands[-1] if demands else 0, len(self.copies)):
                larger = (*demands, one)
                if demands.count(one) < self.copies[one] and self.can_be.issuperset(_smaller(larger)) and (
                        self._arranged(larger)[0] != NONE):
                    self.grown.append(larger)
                    self.can_be.add(larger)
            self.done += 1
        return self.grown[1:] if self.done == len(self.grown) else None

    def holds(self, demands: Sequence[int]) -> list[Running] | None:
        """Operating points of a set, in the order of its demands. None if there are none, or if a subset is already
        known to have none.

        Raises
        ------
        TooManyError
            If no points are found, and it is not proven that there are none.
        """
        ordered = tuple(sorted(demands))
        units, points = (NONE, np.zeros(0, int)) if self.failing.intersection(_smaller(ordered)) else (
            self._arranged(demands))
        if units == UNKNOWN:
            raise TooManyError
        if units == NONE:
            self.failing.add(ordered)
            return None
        return [running_at(self.tables, at) for at in points]

    def _arranged(self, demands: Sequence[int]) -> tuple[int, Ints]:
        """The units of a set and its operating points; see ``arrange``."""
        units, points = np.zeros((2, len(demands)), int)
        return arrange(self.tables, np.array(demands), len(demands), units, points), points


def _smaller(demands: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The sets with one replica less."""
    return [demands[:at] + demands[at + 1 :] for at in range(len(demands))]
