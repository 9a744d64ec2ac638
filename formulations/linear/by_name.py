"""Finds the solver of a PuLP model by its name."""

import warnings
from typing import Any

import pulp

from provision.models.base.errors import InputError
from provision.models.problem.search import Search

DEFAULT_SOLVER = "PULP_CBC_CMD"


def pulp_solver(control: Search, limit_s: float, **options: Any) -> pulp.LpSolver:
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
            if name == DEFAULT_SOLVER:
                options["options"] = ["probing off"]  # CBC's probing has cut off optima
            solver = pulp.getSolver(name, msg=False, timeLimit=max(limit_s, 0.1), **options)
            found = solver.available()
    except pulp.PulpSolverError:
        found = False
    if not found:
        raise InputError(f"solver {name!r} is not there; use {DEFAULT_SOLVER}, or install one that PuLP knows")
    return solver
