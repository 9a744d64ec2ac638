"""Linear and integer programs by SciPy's HiGHS: one table of statuses, and integer programs that can be stopped."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from provision.models.base.clock import present_stop

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
STATUSES: dict[int, Status] = {0: "optimal", 1: "unknown", 2: "infeasible", 3: "unknown", 4: "unknown"}
"""The meaning of SciPy's status numbers: 1 is a limit, 3 an unbounded program, 4 numerical difficulties."""
MANY_ROWS = 1500
"""From this number of rows on, the interior-point method with crossover is faster than the simplex method."""
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
    """An optimum: its value, x, the dual of every row (at least 0) and the reduced cost of every column."""

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
    """The optimum of a linear program; None if it has none."""
    program = {"c": rows.cost, "A_ub": -rows.matrix, "b_ub": -rows.right,
               "bounds": np.stack([rows.least, rows.most], axis=1)}
    found = linprog(**program, method="highs-ipm" if len(rows.right) >= MANY_ROWS else "highs")
    if STATUSES[found.status] == "unknown":
        found = linprog(**program)
    if STATUSES[found.status] != "optimal":
        return None
    return LinearSolution(found.fun, found.x, np.maximum(-found.ineqlin.marginals, 0), found.lower.marginals)


def solve_integer(rows: Rows, whole: NDArray[np.bool_], time_limit_s: float, gap: float = 0.0) -> IntegerSolution:
    """Solve a program in which columns flagged in ``whole`` are whole numbers, up to a time limit or a relative gap."""
    from scipy.optimize import Bounds, LinearConstraint  # here and below: it loads slowly

    found = milp(
        rows.cost, integrality=whole.astype(int), bounds=Bounds(rows.least, rows.most),
        constraints=LinearConstraint(rows.matrix, lb=rows.right),
        options={"time_limit": max(time_limit_s, LEAST_S), "mip_rel_gap": gap},
    )
    status = STATUSES[found.status]
    if status == "unknown" and found.x is not None:
        status = "feasible"
    bound = getattr(found, "mip_dual_bound", None)
    return IntegerSolution(status, found.x, -np.inf if bound is None else float(bound))


def linprog(*args: Any, **options: Any) -> Any:
    """SciPy's ``linprog``. It is untyped, since SciPy's stubs know no sparse matrices here."""
    import scipy.optimize

    return scipy.optimize.linprog(*args, **options)


def milp(*args: Any, **options: Any) -> Any:
    """SciPy's ``milp``. When a Stop is asked for, the result is that of a search that found nothing in its time."""
    import scipy.optimize

    nothing: Any = scipy.optimize.OptimizeResult()
    nothing.update(status=1, x=None)
    return until_stopped(lambda: scipy.optimize.milp(*args, **options), nothing)


def until_stopped(solve: Callable[[], Answer], otherwise: Answer) -> Answer:
    """What a solver that cannot be asked to stop answers; ``otherwise`` once a Stop is asked for. The solver then goes
    on to its time limit in a thread of its own.
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
