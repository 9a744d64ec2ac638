"""Breakpoints: the roles at which the linear program chooses a price. Between two breakpoints, prices are interpolated.

A role (`search.roles`) is what a replica on a shared slice is for: a model, an SLO and a rate. A place is room for one
replica of a role in a pattern. The master program has one row of places per role. With a fine grid of rates there are
many such rows, and the duals of the linear program are far from unique. But as the rate grows, the duals of one
workload class mostly rise evenly, with few jumps. So the rows between two breakpoints are replaced by weighted sums at
the breakpoints. The replacement relaxes the program. Its duals can still be read as prices of all roles, and any prices
prove a bound. If a solution violates the row of a role, that role and the next easier role become breakpoints, so that
prices may jump between the two. If a solution violates no row, it also solves the program with all rows. The technique
is dynamic constraint aggregation (Elhallaoui et al. 2005).
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_diag, coo_array, csc_array, csr_array, eye_array, hstack, vstack

from provision.formulations.linear.highs import LinearSolution, Rows, solve_linear
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.search.problem import Problem

BROKEN = 1e-3
"""A row is violated if the solution has this many places too few in it, or more."""


class Breakpoints:
    """The breakpoints of one Problem.

    Parameters
    ----------
    problem
        The Problem. If its grid has further rates (``finer``), prices may jump at all others from the start.

    Attributes
    ----------
    jumps
        (roles,) whether prices may jump between a role and the next easier role. If so, both roles are breakpoints.
    weights
        (breakpoints, roles) the weight of each role's row in the row of each breakpoint.
    within
        (edges,) whether both ends of an edge of ``problem.edges`` are in one workload class. The program over
        breakpoints replaces such edges by edges from each breakpoint to the next easier breakpoint of the class.
    handing
        (breakpoints, columns) the entries of the new edges. Each takes a place from a breakpoint (-1) and gives it to
        the next easier breakpoint (+1).
    """

    def __init__(self, problem: Problem) -> None:
        self.roles = problem.roles
        finer = problem.finer
        coarse = np.array([role.rate_rps not in finer.get(role.workload_class, ()) for role in self.roles], bool)
        ends = [at for at in range(1, len(self.roles)) if self._class(at) != self._class(at - 1)]
        self.starts = np.unique([0, *ends, len(self.roles)])
        self.jumps = np.zeros(len(self.roles), bool)
        harder, easier = problem.edges
        numbers = np.searchsorted(self.starts, np.arange(len(self.roles)), side="right")
        self.within = numbers[harder] == numbers[easier]
        self.jump([at for start, end in self._classes() for at in _spread(start + np.flatnonzero(coarse[start:end]))])

    @property
    def all(self) -> bool:
        """Whether every role is a breakpoint."""
        return bool(self.chosen.all())

    def solve(self, rows: Rows, first_role: int, first_edge: int) -> LinearSolution | None:
        """Solve a linear program over breakpoints. The solution is expressed in the rows and columns of the whole
        program; it is None if the program over breakpoints has no solution.

        Parameters
        ----------
        rows
            The program with a row for every role and a column for every edge.
        first_role, first_edge
            The index of the first role's row, and of the first edge's column.
        """
        many, columns = rows.matrix.shape
        sums = block_diag([eye_array(first_role), self.weights, eye_array(many - first_role - len(self.roles))], "csr")
        kept = np.ones(columns, bool)
        kept[first_edge : first_edge + len(self.within)] = ~self.within
        handed = self.handing.shape[1]
        above, below = (csc_array((size, handed)) for size in (first_role, many - first_role - len(self.roles)))
        free = np.zeros(handed)
        found = solve_linear(Rows(
            np.concatenate([rows.cost[kept], free]),
            hstack([sums @ rows.matrix[:, kept], vstack([above, self.handing, below])], "csc"),
            sums @ rows.right,
            np.concatenate([rows.least[kept], free]), np.concatenate([rows.most[kept], free + np.inf]),
        ))
        if found is None:
            return None
        x, reduced = np.zeros((2, columns))
        x[kept], reduced[kept] = found.x[: kept.sum()], found.reduced[: kept.sum()]
        return LinearSolution(found.value, x, sums.T @ found.duals, reduced)

    def split(self, spare: NDArray[np.float64]) -> bool:
        """Add breakpoints where rows are violated most; return whether breakpoints were added.

        Parameters
        ----------
        spare
            (roles,) places of each role less its uses, in a solution. Places that harder roles of the same class hand
            down are not counted.
        """
        broken: list[int] = []
        for start, end in self._classes():
            handed = np.cumsum(spare[start:end])
            worst = np.argsort(handed)[: SCHEDULE.again]
            broken += (start + worst[handed[worst] < -BROKEN]).tolist()
        if self.jumps[broken].all():
            return False
        self.jump(broken)
        return True

    def jump(self, roles: Sequence[int] | NDArray[np.int64]) -> None:
        """Allow prices to jump between each role in ``roles`` and the next easier role of its class."""
        self.jumps[roles] = True
        self._build()

    def _class(self, at: int) -> tuple[tuple[str, ...], float]:
        return self.roles[at].workload_class

    def _classes(self) -> Iterator[tuple[int, int]]:
        """The range (start, end) of each workload class in the list of roles. Within a class, rates fall."""
        return zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)

    def _build(self) -> None:
        """Compute from ``jumps`` which roles are breakpoints (``chosen``), and ``weights`` and ``handing``."""
        self.chosen = self.jumps.copy()
        self.chosen[1:] |= self.jumps[:-1]
        self.chosen[self.starts[:-1]] = self.chosen[self.starts[1:] - 1] = True
        rate_rps = np.array([role.upto_rps for role in self.roles])
        breakpoints = np.flatnonzero(self.chosen)
        after = np.searchsorted(breakpoints, np.arange(len(self.roles)))
        upper = breakpoints[np.maximum(after - 1, 0)]
        width = rate_rps[upper] - rate_rps[breakpoints[after]]
        weight = np.where(self.chosen, 0.0, (rate_rps - rate_rps[breakpoints[after]]) / np.where(width > 0, width, 1.0))
        roles = np.arange(len(self.roles))
        self.weights = csr_array(coo_array(
            (np.concatenate([1 - weight, weight]),
             (np.concatenate([after, np.maximum(after - 1, 0)]), np.concatenate([roles, roles]))),
            (len(breakpoints), len(self.roles))))
        harder = np.flatnonzero(~np.isin(breakpoints[1:], self.starts))
        columns = np.arange(len(harder))
        self.handing = csc_array(
            coo_array(
                (
                    np.repeat([-1.0, 1.0], len(harder)),
                    (np.concatenate([harder, harder + 1]), np.concatenate([columns, columns])),
                ),
                (len(breakpoints), len(harder)),
            )
        )


def _spread(roles: NDArray[np.int64]) -> NDArray[np.int64]:
    """At most ``SCHEDULE.idle`` evenly spaced roles of a long list; a list of at most ``SCHEDULE.few`` roles stays
    whole.
    """
    return roles if len(roles) <= SCHEDULE.few else roles[np.linspace(0, len(roles) - 1, SCHEDULE.idle).astype(int)]
