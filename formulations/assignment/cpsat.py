"""The assignment model in CP-SAT: numbers are rounded in a known direction, and literals enforce rows.

CP-SAT's workers run in parallel. If several plans are optimal, different runs may return different ones.
"""

import math
from collections.abc import Callable
from typing import Any

from provision.formulations.assignment.solve import SCHEDULE, Schedule, method
from provision.formulations.linear.description import Answer, Description, Row, Terms, Values
from provision.formulations.linear.highs import until_stopped
from provision.models.problem.search import Search

NAME = "assignment-cpsat"


class _Program:
    """A Description in CP-SAT. All variables are at least 0, so rounding coefficients down relaxes a row."""

    def __init__(self, program: Description, schedule: Schedule) -> None:
        # OR-tools takes long to load, and few solves come to it.
        from ortools.sat.python import cp_model

        self.library, self.model, self.schedule = cp_model, cp_model.CpModel(), schedule
        self.steps = [1.0 if one.whole else one.most / schedule.steps for one in program.variables]
        self.most = [one.most / step for one, step in zip(program.variables, self.steps, strict=True)]
        self.variables = [self.model.new_int_var(0, round(most), one.name)
                          for one, most in zip(program.variables, self.most, strict=True)]
        for row in program.rows:
            self._add(row)
        sizes = [(weight * self.steps[at], at) for weight, at in program.objective]
        largest = max((abs(weight) for weight, _ in program.objective), default=0.0) or 1.0
        self.unit = max(largest / schedule.finest, self._most(sizes) / schedule.largest)
        self.lost = self._rounded(sizes)
        self.model.minimize(self._sum(sizes, 1 / self.unit))

    def _most(self, sizes: Terms) -> float:
        """The largest amount that a sum can have."""
        return sum(abs(size) * self.most[at] for size, at in sizes)

    def _rounded(self, sizes: Terms) -> float:
        """By how much a sum may change if fractional variables are rounded down by a step."""
        return sum(abs(size) for size, at in sizes if self.steps[at] != 1)

    def _add(self, row: Row) -> None:
        """Add a row, multiplied and rounded; it is loosened by what a step of its fractional variables may be."""
        sizes, scale = [(number * self.steps[at], at) for number, at in row.terms], 1.0
        if (loose := self._rounded(sizes)) or not row.exact:
            scale = min(self.schedule.finest, self.schedule.largest / (self._most(sizes) + abs(row.limit) + 1))
        stated = self.model.add(self._sum(sizes, scale) <= math.ceil((row.limit + loose) * scale))
        if row.when is not None:
            stated.only_enforce_if(self.variables[row.when])

    def _sum(self, sizes: Terms, scale: float) -> Any:
        """A linear expression whose coefficients are multiplied and rounded down."""
        return self.library.LinearExpr.weighted_sum([self.variables[at] for _, at in sizes],
                                                    [math.floor(size * scale) for size, _ in sizes])

    def values(self, value: Callable[[Any], float]) -> Values:
        """The values of all variables of the Description; ``value`` reads that of a CP-SAT variable."""
        return [value(variable) * step for variable, step in zip(self.variables, self.steps, strict=True)]


def solve_cpsat(program: Description, control: Search, limit_s: float, found: Callable[[Values], None],
                schedule: Schedule = SCHEDULE) -> Answer:
    """Solve by CP-SAT; see ``description.Solver``."""
    from ortools.sat.python import cp_model

    stated = _Program(program, schedule)

    class Callback(cp_model.CpSolverSolutionCallback):
        """Passes every better solution on."""

        def on_solution_callback(self) -> None:
            found(stated.values(self.value))

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(limit_s, 0.01)
    solver.parameters.num_workers = len(schedule.subsolvers)
    solver.parameters.subsolvers.extend(schedule.subsolvers)
    solver.parameters.linearization_level = 2
    solver.parameters.random_seed = control.seed % 2**31
    solver.parameters.presolve_inclusion_work_limit = 0  # else false bounds (google/or-tools#5293)
    solver.parameters.catch_sigint_signal = False  # else the next Ctrl-C would kill the process
    status = until_stopped(lambda: solver.solve(stated.model, Callback()), None)
    if status is None:
        solver.stop_search()
    if status in (None, cp_model.INFEASIBLE):
        return Answer("time_limit" if status is None else "infeasible", None)
    bound = solver.best_objective_bound * stated.unit - stated.lost
    # Before CP-SAT has read the model, its bound is 0 and proves nothing.
    unread = status == cp_model.UNKNOWN and solver.best_objective_bound == 0
    return Answer("optimal" if status == cp_model.OPTIMAL else "time_limit", None if unread else bound)


METHODS = (method(NAME, "CP-SAT", solve_cpsat),)
