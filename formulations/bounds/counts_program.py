"""The cheapest whole numbers of GPUs of several types that satisfy cuts (`type_counts`), by CP-SAT."""

import math
from collections.abc import Sequence

from ortools.sat.python import cp_model

from provision.formulations.search.problem import Pool

MOST_S = 1.0
"""The time limit of one solve, in seconds. The bound proven by then is used."""


class CountsProgram:
    """The integer program: its variables are the numbers of GPUs by price tier, and its rows are the cuts so far. A
    solution has at most ``replicas`` GPUs of a tier.
    """

    def __init__(self, pools: Sequence[Pool], replicas: int) -> None:
        self.model, self.solver = cp_model.CpModel(), _solver()
        tiers = [[(price, self.model.new_int_var(0, replicas if count is None else min(count, replicas), ""))
                  for price, count in pool.offered] for pool in pools]
        self.gpus: list[cp_model.LinearExprT] = [sum(many for _, many in offered) for offered in tiers]
        self.cost: cp_model.LinearExprT = sum(price * many for offered in tiers for price, many in offered)
        self.model.minimize(self.cost)

    def at_least(self, gpus: int) -> None:
        """Add the cut of `TypeCounts.at_least`."""
        self.model.add(sum(self.gpus) >= gpus)

    def carries(self, demand_value: int, most: Sequence[int]) -> None:
        """Add the cut of `TypeCounts.add`."""
        self.model.add(sum(value * many for value, many in zip(most, self.gpus, strict=True)) >= demand_value)

    def above(self, units: int) -> None:
        """Add the cut of `TypeCounts.above`."""
        self.model.add(self.cost > units)

    def cheapest(self) -> tuple[float, tuple[int, ...] | None] | None:
        """A lower bound on the price of GPUs that satisfy all cuts, and the number of each type in the cheapest found.

        If no GPUs satisfy the cuts, the price is infinite and there are no numbers. The result is None if the solver
        finds nothing in time.
        """
        status = self.solver.solve(self.model)
        if status == cp_model.INFEASIBLE:
            return math.inf, None
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        return round(self.solver.best_objective_bound), tuple(self.solver.value(many) for many in self.gpus)

    def below(self, units: int) -> int:
        """The price of `TypeCounts.below`."""
        model, solver = self.model.clone(), _solver()
        model.add(self.cost < units)
        model.maximize(self.cost)
        status = solver.solve(model)
        return round(solver.best_objective_bound) if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else 0


def _solver() -> cp_model.CpSolver:
    """A solver with one thread and a time limit."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.max_time_in_seconds = 1, MOST_S
    solver.parameters.catch_sigint_signal = False  # else the next Ctrl-C would kill the process
    return solver
