"""The assignment model as a program in CP-SAT: coefficients are rounded in a known direction, and rows of operating
points are enforced by literals.

CP-SAT's workers run in parallel. If several plans are optimal, different runs may return different ones.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

from ortools.sat.python import cp_model

from provision.formulations.assignment.gpus import Ended, LinearTerms, Value
from provision.models.problem.search import Search

STEP = 2.0**-20
"""The unit of a level, as a fraction of its largest value. Rounding to it changes a level by about one millionth."""
FINE_STEP = 2.0**-28
"""The unit of a fraction; it is less than FORGIVEN."""
SCALE = 2**40
"""The factor by which rows with fractions are multiplied before rounding, so that one unit of a level still counts."""
MOST_VALUE = 2**60
"""The largest value of an objective in units; CP-SAT counts in 64 bits."""
WORKERS = 2
LOOK_S = 0.1
"""The seconds between two looks, while CP-SAT runs, at whether it should stop."""


class CpSatProgram:
    """An integer program (see ``Program``) for the solver CP-SAT, which takes only whole-number coefficients.

    The coefficients and limits of rows (constraints) are scaled and rounded. As all variables are at least 0, a row
    becomes stricter if coefficients are rounded up and limits down, and looser by the opposite. If ``safe`` is true,
    rows become stricter, else looser.
    """

    def __init__(self, control: Search, safe: bool) -> None:
        self.safe, self.seed, self.stop = safe, control.seed, control.stop
        self.model = cp_model.CpModel()
        self.unit = 1.0

    def whole(self, name: str, most: float) -> cp_model.IntVar:
        """A whole-number variable from 0 to ``most``."""
        return self.model.new_int_var(0, int(most), name)

    def level(self, name: str, terms: LinearTerms, beyond: float, most: float) -> tuple[float, cp_model.IntVar]:
        """An amount, counted in whole units; see ``Program.level``."""
        level = self.model.new_int_var(0, math.ceil(most / STEP) + len(terms) + 1, name)
        self.model.add(self._sum([*terms, (-STEP, level)], 1 / STEP) <= self._limit(beyond, 1 / STEP))
        return STEP, level

    def fraction(self, name: str) -> tuple[float, cp_model.IntVar]:
        """An amount, counted in whole units; see ``Program.fraction``."""
        return FINE_STEP, self.model.new_int_var(0, round(1 / FINE_STEP), name)

    def exactly(self, terms: LinearTerms, value: int) -> None:
        """Add a row: a sum of whole numbers equals ``value``."""
        self.model.add(self._sum(terms, 1) == value)

    def at_most(self, terms: LinearTerms, limit: float, when: cp_model.IntVar | None = None) -> None:
        """Add a row: a sum is at most ``limit``. With a literal ``when``, the row holds only if the literal is true."""
        scale = 1 if all(float(number).is_integer() for number in (limit, *(c for c, _ in terms))) else SCALE
        row = self.model.add(self._sum(terms, scale) <= self._limit(limit, scale))
        if when is not None:
            row.only_enforce_if(when)

    def _sum(self, terms: LinearTerms, scale: float) -> cp_model.LinearExprT:
        rounded = math.ceil if self.safe else math.floor
        return cp_model.LinearExpr.weighted_sum([v for _, v in terms], [rounded(c * scale) for c, _ in terms])

    def _limit(self, limit: float, scale: float) -> int:
        return math.floor(limit * scale) if self.safe else math.ceil(limit * scale)

    def minimise(self, terms: LinearTerms) -> None:
        """Set the objective, counted in whole units, weights rounded down so that the bound is valid.

        The unit is small beside the largest weight, and so large that no value of the objective overflows.
        """
        largest = max((abs(weight) for weight, _ in terms), default=0) or 1.0
        total = sum(abs(weight) * max(map(abs, variable.proto.domain)) for weight, variable in terms)
        self.unit = max(largest / SCALE, total / MOST_VALUE)
        weights = [math.floor(weight / self.unit) for weight, _ in terms]
        self.model.minimize(cp_model.LinearExpr.weighted_sum([v for _, v in terms], weights))

    def hint(self, variable: cp_model.IntVar, value: int) -> None:
        """Suggest a value of a variable with which the search begins."""
        self.model.add_hint(variable, value)

    def solve(self, limit_s: float, found: Callable[[Value], None]) -> tuple[Ended, float | None]:
        """Solve; return how the search ended and the proven bound. ``found`` is called with the values of every better
        solution.
        """
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = max(limit_s, 0.01)
        solver.parameters.num_workers = WORKERS
        solver.parameters.linearization_level = 2
        solver.parameters.random_seed = self.seed % 2**31
        solver.parameters.presolve_inclusion_work_limit = 0  # else false bounds (google/or-tools#5293)
        solver.parameters.catch_sigint_signal = False  # else the next Ctrl-C would kill the process
        with ThreadPoolExecutor(1) as thread:  # signals reach Python only while the main thread is not in the solver
            running = thread.submit(solver.solve, self.model, _Callback(found))
            while wait([running], LOOK_S).not_done:
                if self.stop.asked:
                    solver.stop_search()
        status = running.result()
        bound = solver.best_objective_bound * self.unit
        if status == cp_model.INFEASIBLE:
            return "infeasible", None
        if status == cp_model.OPTIMAL:
            return "optimal", bound
        # Before CP-SAT has read the model, its bound is 0 and proves nothing.
        return "time_limit", None if status == cp_model.UNKNOWN and bound == 0 else bound


class _Callback(cp_model.CpSolverSolutionCallback):
    """Calls a function with the values of every solution."""

    def __init__(self, found: Callable[[Value], None]) -> None:
        super().__init__()
        self.found = found

    def on_solution_callback(self) -> None:
        self.found(self.value)
