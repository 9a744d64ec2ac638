"""The assignment model in PuLP: big-M rows stand for the literals of `provision.formulations.assignment.cpsat`.

The solver is the one that PuLP knows by the name in the search's parameters.
"""

import warnings
from collections.abc import Callable

import pulp

from provision.formulations.assignment.solve import method
from provision.formulations.linear.description import Answer, Description, Values
from provision.formulations.linear.highs import until_stopped
from provision.models.base.errors import InputError
from provision.models.base.tolerances import SOLVER
from provision.models.problem.search import Search

NAME, DEFAULT_SOLVER = "assignment-milp", "PULP_CBC_CMD"


def _solver(control: Search, limit_s: float) -> pulp.LpSolver:
    """The PuLP solver that the search's parameters name.

    Raises
    ------
    InputError
        If the solver is not available.
    """
    name = control.parameters.get("solver", DEFAULT_SOLVER)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # PuLP 4 will no longer bundle CBC
            # CBC's probing has cut off optima.
            options = {"options": ["probing off"]} if name == DEFAULT_SOLVER else {}
            solver = pulp.getSolver(name, msg=False, timeLimit=max(limit_s, 0.1), **options)
            found = solver.available()
    except pulp.PulpSolverError:
        found = False
    if not found:
        raise InputError(f"solver {name!r} is not there; use {DEFAULT_SOLVER}, or install one that PuLP knows")
    return solver


def solve_pulp(program: Description, control: Search, limit_s: float, found: Callable[[Values], None]) -> Answer:
    """Solve by the solver of PuLP that the search's parameters name; see ``description.Solver``. A bound is known only
    if the solver finished, since PuLP returns no other.
    """
    problem = pulp.LpProblem("assignment", pulp.LpMinimize)
    variables = [problem.add_variable(one.name, 0, one.most, cat="Integer" if one.whole else "Continuous")
                 for one in program.variables]
    for row in program.rows:
        terms, limit = list(row.terms), row.limit if row.exact else row.limit + SOLVER
        slack = sum(max(number, 0.0) * program.variables[at].most for number, at in terms) - limit
        if row.when is not None and slack > 0:
            terms, limit = [*terms, (slack, row.when)], limit + slack
        problem += pulp.lpSum(number * variables[at] for number, at in terms) <= limit
    problem += pulp.lpSum(weight * variables[at] for weight, at in program.objective)
    solver = _solver(control, limit_s)
    until_stopped(lambda: problem.solve(solver), None)
    if problem.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        found([variable.value() or 0.0 for variable in variables])
    if problem.sol_status == pulp.LpSolutionOptimal:
        return Answer("optimal", pulp.value(problem.objective))
    infeasible = problem.status == pulp.LpStatusInfeasible and problem.solutionTime < limit_s
    return Answer("infeasible" if infeasible else "time_limit", None)


METHODS = (method(NAME, "PuLP", solve_pulp, {"solver": DEFAULT_SOLVER}),)
