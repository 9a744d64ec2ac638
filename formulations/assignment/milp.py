"""Assignment in PuLP: the twin of `provision.formulations.assignment.cpsat`, with big-M rows for operating points."""

from collections.abc import Callable
from functools import partial

import pulp

from provision.formulations.assignment.gpus import Ended, LinearTerms, Value
from provision.formulations.assignment.model import TAKEN, SmallInstances, beginning, solve
from provision.formulations.linear.by_name import DEFAULT_SOLVER, pulp_solver
from provision.formulations.linear.highs import until_stopped
from provision.models.base.tolerances import SOLVER
from provision.models.problem.search import Search

NAME = "assignment-milp"


class PulpProgram:
    """An integer program in PuLP; see ``gpus.Program``."""

    def __init__(self, control: Search, safe: bool) -> None:
        self.safe, self.control = safe, control
        self.problem = pulp.LpProblem("assignment", pulp.LpMinimize)

    def whole(self, name: str, most: float) -> pulp.LpVariable:
        """A whole-number variable from 0 to ``most``."""
        return self.problem.add_variable(name, 0, int(most), cat="Integer")

    def level(self, name: str, terms: LinearTerms, beyond: float, most: float) -> tuple[float, pulp.LpVariable]:
        """See ``Program.level``. Here the amount is a fractional variable, and its unit is 1."""
        level = self.problem.add_variable(name, 0, most)
        self.at_most([*terms, (-1, level)], beyond)
        return 1, level

    def fraction(self, name: str) -> tuple[float, pulp.LpVariable]:
        """See ``Program.fraction``. Here it is a fractional variable, and its unit is 1."""
        return 1, self.problem.add_variable(name, 0, 1)

    def exactly(self, terms: LinearTerms, value: int) -> None:
        """Add a row: a sum equals ``value``."""
        self.problem += _sum(terms) == value

    def at_most(self, terms: LinearTerms, limit: float, when: pulp.LpVariable | None = None) -> None:
        """Add a row: a sum is at most ``limit``. With a variable ``when``, it holds only if the variable is 1 (a big-M
        row).
        """
        if not all(float(number).is_integer() for number in (limit, *(c for c, _ in terms))):
            limit = limit - SOLVER if self.safe else limit + SOLVER
        if when is None:
            self.problem += _sum(terms) <= limit
            return
        slack = sum(max(c, 0) * v.upBound for c, v in terms) - limit
        if slack > 0:
            self.problem += _sum([*terms, (slack, when)]) <= limit + slack

    def minimise(self, terms: LinearTerms) -> None:
        """Set the objective, a sum to be minimised."""
        self.problem += _sum(terms)

    def hint(self, variable: pulp.LpVariable, value: int) -> None:
        """Do nothing. Few of PuLP's solvers can begin with a plan, and the search itself keeps the given plan."""

    def solve(self, limit_s: float, found: Callable[[Value], None]) -> tuple[Ended, float | None]:
        """Solve; return how the search ended and the proven bound. ``found`` is called with the values of the best
        solution.
        """
        solver = pulp_solver(self.control, limit_s)
        until_stopped(lambda: self.problem.solve(solver), None)
        status, late = self.problem.sol_status, self.problem.solutionTime >= limit_s
        if status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            found(lambda variable: variable.value() or 0)
        if status == pulp.LpSolutionOptimal:
            return "optimal", pulp.value(self.problem.objective)
        return "infeasible" if self.problem.status == pulp.LpStatusInfeasible and not late else "time_limit", None


def _sum(terms: LinearTerms) -> pulp.LpAffineExpression:
    return pulp.lpSum(coefficient * variable for coefficient, variable in terms)


METHODS = (
    SmallInstances(
        name=NAME,
        summary="explicit GPUs, MIG slots and operating points, exact on small instances (PuLP)",
        run=partial(solve, program=PulpProgram, name=NAME),
        exact=True,
        source="this package",
        features=TAKEN,
        begins_with=beginning,
        parameters={"solver": DEFAULT_SOLVER},
    ),
)
