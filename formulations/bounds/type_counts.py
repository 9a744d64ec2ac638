"""Bounds on the numbers of GPUs of each type, which dual prices of replicas prove, and the least price of such GPUs.

Take dual prices of the replicas. Suppose that the replicas of no GPU of type t are worth more than v_t, and those of
the whole demand are worth w. Then every plan with x_t GPUs of type t has sum(v_t x_t) >= w. For one GPU type, this is
Farley's bound (1990), rounded up. For several types it is a cut as in Benders' decomposition (1962). The bound is the
least price of whole numbers of GPUs, within the fleet, that satisfy all cuts. All numbers are whole. For several GPU
types, CP-SAT solves the program (`counts_program`).
"""

import math
from collections.abc import Sequence

from provision.formulations.search.problem import Pool

FINE = 10**6
"""The units into which the price of the dearest GPU is divided, so that prices are whole numbers."""


class TypeCounts:
    """The cuts so far, the ``bound`` on the price in units that they prove, and ``counts`` (types,), the numbers of
    GPUs at it.

    If no GPUs of the fleet satisfy the cuts, the bound is infinite and ``counts`` is None. If there is a single GPU
    type, ``needed`` is the least number of GPUs.
    """

    def __init__(self, pools: Sequence[Pool], replicas: int) -> None:
        self.bound: float = 0
        self.counts: tuple[int, ...] | None = None
        self.needed, self.pool = 0, pools[0]
        self.most = replicas if self.pool.count is None else min(self.pool.count, replicas)
        self.program = None
        if len(pools) > 1:
            # OR-tools takes long to load, and one GPU type has no use for it.
            from provision.formulations.bounds.counts_program import CountsProgram

            self.program = CountsProgram(pools, replicas)

    def at_least(self, gpus: int) -> None:
        """Add the cut that every plan has at least this number of GPUs."""
        if self.program is None:
            self.needed = max(self.needed, gpus)
        else:
            self.program.at_least(gpus)

    def add(self, demand_value: int, most: Sequence[int]) -> None:
        """Add the cut that some dual prices prove.

        ``demand_value`` is the value of the whole demand. ``most`` (types,) is a value that no GPU of the type exceeds.
        """
        if self.program is not None:
            self.program.carries(int(demand_value), [int(value) for value in most])
        elif demand_value > 0:
            gpus = -(-int(demand_value) // int(most[0])) if most[0] > 0 else self.most + 1
            self.needed = max(self.needed, gpus)
        self._solve()

    def add_prices(self, demand_value: float, most: Sequence[float]) -> None:
        """Add the cut that dual prices in multiples of the dearest GPU's price prove, rounded to the safe side; see
        ``add``.
        """
        self.add(math.floor(demand_value * FINE) - 1, [math.ceil(one * FINE) + 1 for one in most])

    def above(self, units: float) -> None:
        """Add the cut that every plan costs more than ``units``. ``bound`` then rises to the next price that GPUs can
        have.
        """
        if self.program is not None:
            self.program.above(int(units))
        else:
            while self.needed <= self.most and self.pool.cost(self.needed) <= units:
                self.needed += 1
        self._solve()

    def below(self, units: float) -> int:
        """A price below ``units`` that no GPUs within all cuts come nearer to; 0 if all their prices are higher."""
        if self.program is not None:
            return self.program.below(math.ceil(units))
        prices = [self.pool.cost(many) for many in range(self.needed, self.most + 1)]
        return max((one for one in prices if one < units), default=0)

    def _solve(self) -> None:
        """Compute the least price that all cuts allow."""
        found = self._cheapest() if self.program is None else self.program.cheapest()
        if found is not None:
            self.bound, self.counts = max(self.bound, found[0]), found[1]

    def _cheapest(self) -> tuple[float, tuple[int, ...] | None]:
        """The price of the GPUs needed of a single type, and their number."""
        if self.needed > self.most:
            return math.inf, None
        return self.pool.cost(self.needed), (self.needed,)
