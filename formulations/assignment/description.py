"""States the assignment model for CP-SAT and PuLP: variables, linear rows, an objective, and its linear relaxation."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array

from provision.formulations.linear.highs import Rows
from provision.models.problem.search import Search

Terms = list[tuple[float, int]]
"""A linear expression: pairs of a coefficient and the index of a variable."""
Values = Sequence[float]
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

    def at_most(self, terms: Terms, limit: float, when: int | None = None) -> None:
        """Add a row."""
        self.rows.append(Row([pair for pair in terms if pair[0]], float(limit), when))

    def most(self, terms: Terms) -> float:
        """The most that a sum can be within the ranges of its variables."""
        return sum(max(number, 0.0) * self.variables[at].most for number, at in terms)


def rows_of(program: Description) -> Rows:
    """The Rows of a program, in its order. Rows with a ``when`` are left out."""
    rows = [one if one.when is None else Row([], 0.0) for one in program.rows]
    at = np.repeat(np.arange(len(rows)), [len(one.terms) for one in rows])
    numbers, columns = [-number for one in rows for number, _ in one.terms], [v for one in rows for _, v in one.terms]
    cost = np.zeros(len(program.variables))
    np.add.at(cost, [v for _, v in program.objective], [weight for weight, _ in program.objective])
    most = np.array([one.most for one in program.variables])
    return Rows(cost, csr_array((numbers, (at, columns)), shape=(len(rows), len(cost))),
                np.array([-one.limit for one in rows]), np.zeros(len(cost)), most)


class Answer(NamedTuple):
    """How a solver ended, a proven lower bound on the objective (None if none), and its best solution (None if none).
    """

    ended: Ended
    bound: float | None
    best: Values | None


class Solver(Protocol):
    """Solves a Description within some seconds.

    A solver rounds numbers only so that every solution of the Description remains one; hence bounds are valid, and
    solutions may break rows by rounding errors. ``found`` is called with every better solution.
    """

    def __call__(self, program: Description, control: Search, limit_s: float, found: Callable[[Values], None]
                 ) -> Answer:
        """Solve the program."""
        ...


