"""Breakpoints: the roles whose prices the linear program chooses; prices of the roles between them are interpolated.

Fine steps of rates make many rows of places, and a linear program whose duals are far from unique. But along the rates
of a workload class the duals mostly rise evenly, with few jumps. So the rows of the roles between two breakpoints are
replaced by weighted sums of them, which relaxes the program: its duals are still prices, and every price proves a
bound. Where a solution breaks a row of a role, that role and the next easier one become breakpoints, so that prices may
jump there (dynamic constraint aggregation: Elhallaoui et al. 2005). Without such rows the solution is one of all rows.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_diag, coo_array, csc_array, csr_array, eye_array, hstack, vstack

from provision.formulations.linear.highs import LinearSolution, Rows, solve_linear
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.search.problem import Problem

BROKEN = 1e-3
"""The number of places that may be missing in a row before it counts as broken."""


class Breakpoints:
    """The breakpoints of one Problem.

    Parameters
    ----------
    problem
        The Problem. At the rates that its steps had before they were cut finer prices may jump from the beginning.

    Attributes
    ----------
    jumps
        (roles,) flags the roles between which and the next easier one prices may jump; both are breakpoints.
    weights
        (breakpoints, roles) the weight of each role's row in the rows of breakpoints.
    within
        (edges,) flags the edges of ``problem.edges`` within a workload class. Rows of breakpoints hand down to the next
        one of the class instead.
    handing
        (breakpoints, columns) what such columns take from the row of a breakpoint and give to the next easier one.
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
        """The optimum of a linear program over breakpoints, in terms of all its rows and columns; None when it has
        none.

        Parameters
        ----------
        rows
            The program with a row for every role and a column for every edge.
        first_role, first_edge
            The first of these rows, and the first of these columns.
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
        """Make breakpoints where rows are broken most; whether there are any.

        Parameters
        ----------
        spare
            (roles,) places less uses in a solution; what harder roles of the class hand down does not count.
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
        """Let prices jump between some roles and the next easier ones of their classes."""
        self.jumps[roles] = True
        self._build()

    def _class(self, at: int) -> tuple[tuple[str, ...], float]:
        return self.roles[at].workload_class

    def _classes(self) -> Iterator[tuple[int, int]]:
        """The ranges of roles of the workload classes; within each, roles stand in order of falling rate."""
        return zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)

    def _build(self) -> None:
        """Work out the weights and edges of the present breakpoints."""
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
    """Some roles, or of many a few."""
    return roles if len(roles) <= SCHEDULE.few else roles[np.linspace(0, len(roles) - 1, SCHEDULE.idle).astype(int)]
