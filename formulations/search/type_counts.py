"""Bounds on the numbers of GPUs of each type, which dual prices of replicas prove, and the least price of such GPUs.

Take dual prices of the replicas. Suppose that the replicas of no GPU of type t are worth more than v_t, and those of
the whole demand are worth w. Then every plan with x_t GPUs of type t has sum(v_t x_t) >= w. For one GPU type, this is
Farley's bound (1990), rounded up. For several types it is a cut as in Benders' decomposition (1962). The bound is the
least price of whole numbers of GPUs, within the fleet, that satisfy all cuts. All numbers are whole. For several GPU
types, CP-SAT solves the integer program: its variables are the numbers of GPUs by price tier, its rows the cuts.
"""

import math
from collections.abc import Sequence
from typing import Any

from provision.formulations.search.segments import Pool

FINE = 10**6
"""The units into which the price of the dearest GPU is divided, so that prices are whole numbers."""
MOST_S = 1.0
"""The time limit of one solve, in seconds. The bound proven by then is used."""


class TypeCounts:
    """The cuts so far, the ``bound`` on the price in units that they prove, and ``counts`` (types,), the numbers of
    GPUs at it.

    If no GPUs of the fleet satisfy the cuts, the bound is infinite and ``counts`` is None. If there is a single GPU
    type, ``needed`` is the least number of GPUs. There are at most ``replicas`` GPUs of a tier.
    """

    def __init__(self, pools: Sequence[Pool], replicas: int) -> None:
        self.bound: float = 0
        self.counts: tuple[int, ...] | None = None
        self.needed, self.pools, self.pool = 0, pools, pools[0]
        self.most = replicas if self.pool.count is None else min(self.pool.count, replicas)
        self.model: Any = None
        if len(pools) > 1:
            # OR-tools takes long to load, and one GPU type has no use for it.
            from ortools.sat.python import cp_model

            self.cp, self.model = cp_model, cp_model.CpModel()
            tiers = [[(price, self.model.new_int_var(0, replicas if count is None else min(count, replicas), ""))
                      for price, count in pool.offered] for pool in pools]
            self.gpus = [sum(many for _, many in offered) for offered in tiers]
            self.cost = sum(price * many for offered in tiers for price, many in offered)
            self.model.minimize(self.cost)

    @property
    def too_small(self) -> str:
        """A sentence for the user: the fleet has too few GPUs, and what would help."""
        remedy = "allow more GPUs or lower the rates"
        if self.model is None and self.needed:
            return (f"at least {self.needed} {self.pool.gpu} GPUs are needed and the fleet has {self.pool.count}; "
                    f"{remedy}")
        held = ", ".join(f"{pool.count} {pool.gpu}" for pool in self.pools if pool.count is not None)
        return f"the fleet ({held}) has too few GPUs for any plan; {remedy}"

    def at_least(self, gpus: int) -> None:
        """Add the cut that every plan has at least this number of GPUs."""
        if self.model is None:
            self.needed = max(self.needed, gpus)
        else:
            self.model.add(sum(self.gpus) >= gpus)

    def add(self, demand_value: int, most: Sequence[int]) -> None:
        """Add the cut that some dual prices prove.

        ``demand_value`` is the value of the whole demand. ``most`` (types,) is a value that no GPU of the type exceeds.
        """
        if self.model is not None:
            self.model.add(sum(int(value) * many for value, many in zip(most, self.gpus, strict=True))
                           >= int(demand_value))
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
        if self.model is not None:
            self.model.add(self.cost > int(units))
        else:
            while self.needed <= self.most and self.pool.cost(self.needed) <= units:
                self.needed += 1
        self._solve()

    def below(self, units: float) -> int:
        """A price below ``units`` that no GPUs within all cuts come nearer to; 0 if all their prices are higher."""
        if self.model is None:
            prices = [self.pool.cost(many) for many in range(self.needed, self.most + 1)]
            return max((one for one in prices if one < units), default=0)
        model = self.model.clone()
        model.add(self.cost < math.ceil(units))
        model.maximize(self.cost)
        status, solver = self._answer(model)
        return round(solver.best_objective_bound) if status in (self.cp.OPTIMAL, self.cp.FEASIBLE) else 0

    def _solve(self) -> None:
        """Compute the least price that all cuts allow. The last one stays where CP-SAT finds nothing in time."""
        if self.model is None:
            possible = self.needed <= self.most
            self.bound = max(self.bound, self.pool.cost(self.needed) if possible else math.inf)
            self.counts = (self.needed,) if possible else None
            return
        status, solver = self._answer(self.model)
        if status == self.cp.INFEASIBLE:
            self.bound, self.counts = math.inf, None
        elif status in (self.cp.OPTIMAL, self.cp.FEASIBLE):
            self.bound = max(self.bound, round(solver.best_objective_bound))
            self.counts = tuple(solver.value(many) for many in self.gpus)

    def _answer(self, model: Any) -> tuple[Any, Any]:
        """The status of CP-SAT after it has solved a model with one thread, and the solver."""
        solver = self.cp.CpSolver()
        solver.parameters.num_workers, solver.parameters.max_time_in_seconds = 1, MOST_S
        solver.parameters.catch_sigint_signal = False  # else the next Ctrl-C would kill the process
        return solver.solve(model), solver
