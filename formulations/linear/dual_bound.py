"""Bounds by a second solver: SciPy's HiGHS solves the programs that are written in PuLP, and its bounds are trusted.

PuLP's own solver, CBC, only finds plans, which the verifier checks. Its bounds are never used, because it has been seen
to cut off optima: with its probing on, it called a solution of objective 2 optimal although one of 1 was feasible.
"""

import math
from collections.abc import Mapping

import numpy as np
import pulp
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult
from scipy.sparse import csr_array

from provision.formulations.linear.highs import milp
from provision.models.base.arrays import Floats
from provision.models.base.tolerances import SOLVER


def highs(problem: pulp.LpProblem, limit_s: float, gap: float = 0.0) -> OptimizeResult:
    """SciPy's result of a PuLP minimisation; ``x``, if present, is in the order of ``problem.variables()``."""
    at = {variable.name: index for index, variable in enumerate(problem.variables())}
    return milp(
        _row(at, problem.objective),
        integrality=np.array([variable.cat == pulp.LpInteger for variable in problem.variables()]),
        bounds=_bounds(problem),
        constraints=_constraints(at, problem),
        options={"time_limit": max(limit_s, 0.1), "mip_rel_gap": gap},
    )


def safe_bound(found: OptimizeResult) -> float:
    """The lower bound in a result of `highs`, less a tolerance; 0 if nothing was proven. Costs must not be negative."""
    value = getattr(found, "mip_dual_bound", None)
    if value is None or not math.isfinite(value):
        return 0.0
    return max(0.0, value - SOLVER * max(1.0, abs(value)))


def _row(at: Mapping[str, int], expression: pulp.LpAffineExpression) -> Floats:
    row = np.zeros(len(at))
    for variable, coefficient in expression.items():
        row[at[variable.name]] = coefficient
    return row


def _bounds(problem: pulp.LpProblem) -> Bounds:
    low = [-np.inf if variable.lowBound is None else variable.lowBound for variable in problem.variables()]
    high = [np.inf if variable.upBound is None else variable.upBound for variable in problem.variables()]
    return Bounds(low, high)


def _constraints(at: Mapping[str, int], problem: pulp.LpProblem) -> LinearConstraint:
    """All rows of a program as one sparse constraint."""
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    low: list[float] = []
    high: list[float] = []
    for number, row in enumerate(problem.constraints()):
        for variable, coefficient in row.items():
            rows.append(number)
            columns.append(at[variable.name])
            values.append(coefficient)
        low.append(-row.constant if row.sense != pulp.LpConstraintLE else -np.inf)
        high.append(-row.constant if row.sense != pulp.LpConstraintGE else np.inf)
    return LinearConstraint(csr_array((values, (rows, columns)), (len(low), len(at))), low, high)
