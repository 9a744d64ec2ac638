"""Linear programs by highspy, which can begin at a basis; and integer programs by SciPy, which can be stopped.

Both are HiGHS. The version that highspy has (1.16) lets integer programs break rows by more than SOLVER
(`provision.models.base.tolerances`), so that plans would lack a little of a rate; SciPy's does not.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Literal, NamedTuple, TypeVar

import highspy
import numpy as np
from highspy._core import _Highs  # ``highspy.Highs``, the fuller class, prints a line when it is made
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from provision.models.base.clock import present_stop

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
STATUSES: dict[int, Status] = {0: "optimal", 2: "infeasible"}
"""The meaning of SciPy's status numbers; others are a limit, an unbounded program and numerical difficulties."""
BY_COLUMN = int(highspy.MatrixFormat.kColwise)
LOWER = highspy.HighsBasisStatus.kLower
"""The status of a column that is at its lower limit."""
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


class Basis(NamedTuple):
    """Where the simplex method stands: the statuses of columns and rows. Any statuses may be given as a start; columns
    without one are at their lower limits.
    """

    columns: list[highspy.HighsBasisStatus]
    rows: list[highspy.HighsBasisStatus]


class LinearSolution(NamedTuple):
    """An optimum: its value, x, the dual of every row (at least 0), the reduced cost of every column, and the basis.

    Negative reduced costs, those of columns at their upper limits, are given as 0.
    """

    value: float
    x: NDArray[np.float64]
    duals: NDArray[np.float64]
    reduced: NDArray[np.float64]
    basis: Basis


class IntegerSolution(NamedTuple):
    """The best solution x (None if there is none), and the solver's own lower bound (negative infinity if there is
    none).
    """

    status: Status
    x: NDArray[np.float64] | None
    bound: float


def solve_linear(rows: Rows, begin: Basis | None = None) -> LinearSolution | None:
    """The optimum of a linear program; None if it has none, or if both simplex and interior-point method fail. To
    ``begin`` at the basis of a similar program makes it faster.
    """
    solver = _solver(rows)
    if begin is not None:
        basis = highspy.HighsBasis()
        basis.alien = basis.valid = True
        basis.col_status = [*begin.columns, *[LOWER] * (len(rows.cost) - len(begin.columns))]
        basis.row_status = begin.rows
        solver.setBasis(basis)
    solver.run()
    if _status(solver, rows) == "unknown":  # numerical difficulties
        solver.clearSolver()
        solver.setOptionValue("solver", "ipm")
        solver.run()
    if _status(solver, rows) != "optimal":
        return None
    found, reached = solver.getSolution(), solver.getBasis()
    return LinearSolution(solver.getInfo().objective_function_value, np.array(found.col_value),
                          np.maximum(found.row_dual, 0), np.maximum(found.col_dual, 0),
                          Basis(reached.col_status, reached.row_status))


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


def _solver(rows: Rows) -> _Highs:
    """A solver that holds a program."""
    matrix, solver = csc_array(rows.matrix), _Highs()
    solver.setOptionValue("output_flag", False)
    solver.passModel(len(rows.cost), len(rows.right), matrix.nnz, BY_COLUMN, int(highspy.ObjSense.kMinimize), 0.0,
                     rows.cost, rows.least, rows.most, rows.right, np.full(len(rows.right), np.inf),
                     matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), matrix.data.astype(float),
                     np.zeros(len(rows.cost), np.int32))
    return solver


def _status(solver: _Highs, rows: Rows) -> Status:
    """How a search ended; unknown after a limit, an unbounded program or numerical difficulties."""
    ended = solver.getModelStatus()
    if ended == highspy.HighsModelStatus.kModelEmpty:  # HiGHS ignores the rows if there are no columns
        return "infeasible" if (rows.right > 0).any() else "optimal"
    if ended == highspy.HighsModelStatus.kOptimal:
        return "optimal"
    return "infeasible" if ended == highspy.HighsModelStatus.kInfeasible else "unknown"


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
