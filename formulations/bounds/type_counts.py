"""Bounds on the numbers of GPUs of each type, which dual prices of replicas prove, and the least price of such GPUs.

Take dual prices of the replicas. Suppose that the replicas of no GPU of type t are worth more than v_t, and those of
the whole demand are worth w. Then every plan with x_t GPUs of type t has sum(v_t x_t) >= w. For one GPU type, this is
Farley's bound (1990), rounded up. For several types it is a cut as in Benders' decomposition (1962). The bound is the
least price of whole numbers of GPUs, within the fleet, that satisfy all cuts. All numbers are whole, and CP-SAT solves
the program.
"""

import math
from collections.abc import Sequence

from ortools.sat.python import cp_model

from provision.formulations.search.problem import Pool

FINE = 10**6
"""The units into which the price of the dearest GPU is divided, so that prices are whole numbers."""
MOST_S = 1.0
"""The time limit of one solve, in seconds. The bound proven by then is used."""


class TypeCounts:
    """The cuts so far, the ``bound`` on the price in units that they prove, and ``counts`` (types,), the numbers of
    GPUs at it.

    If no GPUs of the fleet satisfy the cuts, the bound is infinite and ``counts`` is None. If there is a single GPU
    type, ``needed`` is the least number of GPUs.
    """

    def __init__(self, pools: Sequence[Pool], replicas: int) -> None:
        self.bound: float = 0
        self.counts: tuple[int, ...] | None = None
        self.needed = 0
        self.model, self.solver = cp_model.CpModel(), cp_model.CpSolver()
        self.solver.parameters.num_workers = 1
        self.solver.parameters.max_time_in_seconds = MOST_S
        tiers = [[(price, self.model.new_int_var(0, replicas if count is None else min(count, replicas), ""))
                  for price, count in pool.offered] for pool in pools]
        self.gpus: list[cp_model.LinearExprT] = [sum(many for _, many in offered) for offered in tiers]
        self.cost: cp_model.LinearExprT = sum(price * many for offered in tiers for price, many in offered)
        self.model.minimize(self.cost)

    def at_least(self, gpus: int) -> None:
        """Add the cut that every plan has at least this number of GPUs."""
        self.model.add(sum(self.gpus) >= gpus)

    def add(self, demand_value: int, most: Sequence[int]) -> None:
        """Add the cut that some dual prices prove.

        ``demand_value`` is the value of the whole demand. ``most`` (types,) is a value that no GPU of the type exceeds.
        """
        self.model.add(sum(int(value) * many for value, many in zip(most, self.gpus, strict=True)) >= int(demand_value))
        if len(most) == 1 and most[0] > 0:
            self.needed = max(self.needed, -(-int(demand_value) // int(most[0])))
        self._solve()

    def above(self, units: float) -> None:
        """Add the cut that every plan costs more than ``units``. ``bound`` then rises to the next price that GPUs can
        have.
        """
        self.model.add(self.cost > int(units))
        self._solve()
        if len(self.gpus) == 1 and self.counts is not None:
            self.needed = max(self.needed, self.counts[0])

    def _solve(self) -> None:
        """Compute the least price that all cuts allow."""
        status = self.solver.solve(self.model)
        if status == cp_model.INFEASIBLE:
            self.bound, self.counts = math.inf, None
        elif status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            self.bound = max(self.bound, round(self.solver.best_objective_bound))
            self.counts = tuple(self.solver.value(many) for many in self.gpus)
