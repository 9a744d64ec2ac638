"""Linear and integer programs by HiGHS in SciPy; and linear programs that grow, by GLOP in OR-tools."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from provision.models.base.clock import present_stop

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
STATUSES: dict[int, Status] = {0: "optimal", 2: "infeasible"}
"""The meaning of SciPy's status numbers; others are a limit, an unbounded program and numerical difficulties."""
LEAST_S = 0.1
"""The least time limit that a solver gets, in seconds; reading the program takes some time."""
LOOK_S = 0.1
"""The seconds between two looks, while a solver runs, at whether the work should stop."""
Answer = TypeVar("Answer")


class Rows(NamedTuple):
    """A program: minimise ``cost`` @ x, subject to ``matrix`` @ x >= ``right`` and ``least`` <= x <= ``most``."""

    cost: NDArray[np.float64]
    matrix: csr_array | csc_array
    right: NDArray[np.float64]
    least: NDArray[np.float64]
    most: NDArray[np.float64]


class LinearSolution(NamedTuple):
    """An optimum: its value, x, the dual of every row (at least 0), and the reduced cost of every column.

    Negative reduced costs, those of columns at their upper limits, are given as 0.
    """

    value: float
    x: NDArray[np.float64]
    duals: NDArray[np.float64]
    reduced: NDArray[np.float64]


class IntegerSolution(NamedTuple):
    """The best solution x (None if there is none), and the solver's own lower bound (negative infinity if there is
    none).
    """

    status: Status
    x: NDArray[np.float64] | None
    bound: float


def solve_linear(rows: Rows) -> LinearSolution | None:
    """The optimum of a linear program; None if it has none, or if both simplex and interior-point method fail."""
    from scipy.optimize import linprog  # here, since it loads slowly

    if not len(rows.cost):  # SciPy takes no program without columns
        nothing = np.zeros(0)
        return None if (rows.right > 0).any() else LinearSolution(0.0, nothing, np.zeros(len(rows.right)), nothing)
    given: dict[str, Any] = {"A_ub": -rows.matrix, "b_ub": -rows.right,
                             "bounds": np.stack([rows.least, rows.most], axis=1)}
    for method in ("highs", "highs-ipm"):
        found: Any = linprog(rows.cost, **given | {"method": method})
        if found.status == 0:
            return LinearSolution(found.fun, found.x, np.maximum(-found.ineqlin.marginals, 0),
                                  np.maximum(found.lower.marginals, 0))
        if STATUSES.get(found.status) == "infeasible":
            break
    return None


class GrowingProgram:
    """A linear program that is solved again and again, each time with the same rows and further columns. The primal
    simplex method goes on from the last optimum. It does so only if the columns are not scaled.
    """

    def __init__(self) -> None:
        from ortools.linear_solver.pywraplp import Solver  # here, since it loads slowly

        self.solver: Any = Solver.CreateSolver("GLOP")
        self.solver.SetSolverSpecificParametersAsString(
            "use_preprocessing: false use_dual_simplex: false use_scaling: false")
        self.rows, self.columns, self.least = list[Any](), list[Any](), np.zeros(0)

    def solve(self, rows: Rows) -> LinearSolution | None:
        """The optimum; None if there is none. The program must begin with the columns of the last call, of which only
        the least values may differ. Where GLOP fails, HiGHS solves the program from scratch.
        """
        self._extend(rows)
        if self.solver.Solve() != self.solver.OPTIMAL:
            return solve_linear(rows)
        return LinearSolution(self.solver.Objective().Value(), np.array([one.solution_value() for one in self.columns]),
                              np.maximum([one.dual_value() for one in self.rows], 0),
                              np.maximum([one.reduced_cost() for one in self.columns], 0))

    def _extend(self, rows: Rows) -> None:
        """Add the columns that are new, and change the least values of the others."""
        solver, matrix, objective = self.solver, rows.matrix.tocsc(), self.solver.Objective()
        if not self.rows:
            self.rows = [solver.Constraint(right, solver.infinity()) for right in rows.right.tolist()]
        for at in np.flatnonzero(rows.least[:len(self.columns)] != self.least).tolist():
            self.columns[at].SetLb(float(rows.least[at]))
        for at in range(len(self.columns), len(rows.cost)):
            new = solver.NumVar(float(rows.least[at]), float(rows.most[at]), "")
            self.columns.append(new)
            objective.SetCoefficient(new, float(rows.cost[at]))
            for entry in range(matrix.indptr[at], matrix.indptr[at + 1]):
                self.rows[matrix.indices[entry]].SetCoefficient(new, float(matrix.data[entry]))
        self.least = rows.least.copy()


def solve_integer(rows: Rows, whole: NDArray[np.bool_], time_limit_s: float, gap: float = 0.0) -> IntegerSolution:
    """Solve a program in which columns flagged in ``whole`` are whole numbers, up to a time limit or a relative gap.
    When a Stop is asked for, the status is unknown, and there is neither x nor bound.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # here, since it loads slowly

    def solved() -> IntegerSolution:
        found: Any = milp(rows.cost, integrality=whole.astype(int), bounds=Bounds(rows.least, rows.most),
                          constraints=LinearConstraint(rows.matrix, lb=rows.right),
                          options={"time_limit": max(time_limit_s, LEAST_S), "mip_rel_gap": gap})
        status, bound = STATUSES.get(found.status, "unknown"), getattr(found, "mip_dual_bound", None)
        return IntegerSolution("feasible" if status == "unknown" and found.x is not None else status, found.x,
                               -np.inf if bound is None else float(bound))

    return until_stopped(solved, IntegerSolution("unknown", None, -np.inf))


def until_stopped(solve: Callable[[], Answer], otherwise: Answer) -> Answer:
    """Run a solver that cannot be asked to stop, and return its answer; ``otherwise`` as soon as a Stop is asked for.
    The solver then goes on to its time limit in a thread of its own.
    """
    stop, answer = present_stop(), Future[Answer]()

    def run() -> None:
        try:
            answer.set_result(solve())
        except BaseException as error:  # the waiting thread raises it again
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    while not stop.asked:
        wait([answer], LOOK_S)
        if answer.done() and not stop.asked:  # Ctrl-C on a terminal reaches solvers too, and they fail
            return answer.result()
    return otherwise
