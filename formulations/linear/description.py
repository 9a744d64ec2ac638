"""The statement of a program: variables, linear rows and an objective, which CP-SAT, PuLP and HiGHS read."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from provision.formulations.linear.highs import Rows
from provision.models.base.tolerances import RELAXED
from provision.models.problem.search import Search

Terms = list[tuple[float, int]]
"""A linear expression: pairs of a coefficient and the index of a variable."""
Values = list[float]
"""The values of all variables in a solution."""
Ended = Literal["optimal", "infeasible", "time_limit"]


class Variable(NamedTuple):
    """A variable from 0 to ``most``; ``whole`` tells whether it is a whole number."""

    name: str
    most: float
    whole: bool


class Row(NamedTuple):
    """A sum is at most ``limit``. With the index of a variable ``when``, that holds only if this variable is 1."""

    terms: Terms
    limit: float
    when: int | None = None

    @property
    def exact(self) -> bool:
        """Whether all its numbers are whole, so that no solver rounds them."""
        return all(float(number).is_integer() for number in (self.limit, *(number for number, _ in self.terms)))


class Description:
    """A program that is being stated: minimise ``objective`` subject to ``rows``."""

    def __init__(self) -> None:
        self.variables: list[Variable] = []
        self.rows: list[Row] = []
        self.objective: Terms = []

    def whole(self, name: str, most: float) -> int:
        """Add a whole-number variable from 0 to ``most``; return its index."""
        self.variables.append(Variable(name, most, True))
        return len(self.variables) - 1

    def amount(self, name: str, most: float) -> int:
        """Add a fractional variable from 0 to ``most``; return its index."""
        self.variables.append(Variable(name, max(most, 1e-6), False))
        return len(self.variables) - 1

    def level(self, name: str, terms: Terms, beyond: float, most: float) -> int:
        """Add a fractional variable that is at least ``terms - beyond`` and hardly more than ``most``; return its
        index.
        """
        found = self.amount(name, most * (1 + RELAXED))
        self.at_most([*terms, (-1.0, found)], beyond)
        return found

    def at_most(self, terms: Terms, limit: float, when: int | None = None) -> None:
        """Add a row."""
        self.rows.append(Row([pair for pair in terms if pair[0]], float(limit), when))

    def as_rows(self) -> Rows:
        """The program for HiGHS. Rows with a ``when`` hold nothing there."""
        rows = [one if one.when is None else Row([], 0.0) for one in self.rows]
        at = np.repeat(np.arange(len(rows)), [len(one.terms) for one in rows])
        numbers, columns = np.array([pair for one in rows for pair in one.terms]).reshape(-1, 2).T
        cost = np.zeros(len(self.variables))
        for weight, column in self.objective:
            cost[column] += weight
        return Rows(cost, csr_array((-numbers, (at, columns.astype(int))), shape=(len(rows), len(cost))),
                    np.array([-one.limit for one in rows]), np.zeros(len(cost)),
                    np.array([one.most for one in self.variables]))


class Answer(NamedTuple):
    """How a solver ended, and a proven lower bound on the objective (None if none)."""

    ended: Ended
    bound: float | None


Solver = Callable[[Description, Search, float, Callable[[Values], None]], Answer]
"""Solves a Description within some seconds; the last argument is called with every better solution.

A solver rounds numbers only so that every solution of the Description remains one; hence bounds are valid, and
solutions may break rows by rounding errors.
"""
