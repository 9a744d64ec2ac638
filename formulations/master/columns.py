"""Patterns as columns of the restricted master, for least cost, where every workload has one replica.

    minimise   sum price[t, j] T[t, j]                                      (price tiers j of the GPU types t)
    types      sum_j T[t, j]  >=  GPUs of type t in all partitions
    slices     slices of type k in the partitions  >=  patterns on k
    places     places of role r in the patterns, plus places that harder roles hand down  >=  replicas with role r

A role is what a replica is for (`search.roles`); a place is room for one replica of a role in a pattern. Harder roles
hand places down: a place of a role can also be used by any role that is easier. Pricing finds the patterns
(`generation`). A replica that has a slice to itself, where the slice's data describes no sharing, is a pattern too.
Groups that may not share any slice have no role; each has a row of its own after those of the roles.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import compress
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from provision.formulations.linear.restricted import Columns, Known, RestrictedMaster
from provision.formulations.pricing.oracle import Pattern
from provision.formulations.search.problem import Problem
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.tolerances import DUST, LOOSE, MISSING


class Duals(NamedTuple):
    """A solution of the linear program. Prices are in multiples of the dearest GPU's price.

    ``slice_types`` and ``places`` are the duals: the prices of a slice and of a place. ``parts`` and ``reduced`` are
    the values and the reduced costs of all columns.
    """

    value: float
    slice_types: Floats
    places: Floats
    parts: Floats
    reduced: Floats


class Chosen(NamedTuple):
    """A whole-number solution: for each pool the number of GPUs with each partition, and how often each pattern (slice
    type, rows of its places) is used.
    """

    partitions: list[Ints]
    patterns: dict[tuple[int, Pattern], int]


class PatternColumns:
    """The patterns found so far, and the master program over them. The order of columns is: tiers, partitions, edges
    (places handed down), patterns.

    Parameters
    ----------
    problem
        A Problem in which every workload, or part of a workload, has one replica.

    Attributes
    ----------
    row_of
        (groups,) the row of each group among the rows of places.
    wanted
        (rows,) the number of replicas of each row.
    alone
        (rows, slice types) whether a replica may have such a slice to itself, if rounding is in its favour.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        roles, at = {role[:3]: number for number, role in enumerate(problem.roles)}, len(problem.roles)
        self.row_of: list[int] = []
        for group in problem.groups:
            row = roles.get((group.models, group.slo_ms, group.rate_rps), at)
            at += row == at
            self.row_of.append(row)
        rows = np.array(self.row_of, int)
        self.wanted = np.bincount(rows, [len(group.members) for group in problem.groups], at).astype(int)
        rate_rps = np.array([group.asked_rps for group in problem.groups])[:, None]
        self.alone = np.zeros((at, len(problem.segments.slice_types)), bool)
        np.logical_or.at(self.alone, rows, (problem.alone_rps > 0)
                         & (problem.alone_rps * (1 + LOOSE) >= rate_rps * (1 - MISSING)))
        self.master = RestrictedMaster(problem, places=self.wanted)
        self.patterns = Known[tuple[int, Pattern]]()
        fits = (problem.alone_rps > 0) & (problem.alone_rps >= rate_rps * (1 - DUST))
        for number, slice_type in np.argwhere(fits).tolist():
            self.add(slice_type, [(self.row_of[number],)])

    def add(self, slice_type: int, patterns: Sequence[Pattern]) -> int:
        """Add patterns of a slice type; return how many of them are new."""
        slices, places = self.master.rows["slices"].start, self.master.rows["places"].start
        return sum(self.patterns.add((slice_type, pattern),
                                     [(slices + slice_type, -1.0), *((places + one, 1.0) for one in pattern)])
                   for pattern in patterns)

    def relaxed(self, at: Sequence[int] | None = None, least: Ints | None = None) -> Duals | None:
        """The solution of the linear program; None if the columns cannot meet the demand.

        Parameters
        ----------
        at
            The number of GPUs of each pool that are free of charge; None for none. Further GPUs cost the price of the
            dearest tier.
        least
            (patterns,) the least value of every pattern; by default 0. Patterns that were added later have 0.
        """
        *others, patterns = self._sorts(at)
        if least is not None:
            patterns.least[: len(least)] = least
        found = self.master.relaxed([*others, patterns])
        if found is None:
            return None
        _, slices, places = self.master.split(found.duals).values()
        begin = len(found.x) - len(self.patterns)
        return Duals(found.value, slices, places, found.x[begin:], found.reduced[begin:])

    def integral(self, kept: Bools, least: Ints, time_limit_s: float) -> Chosen | None:
        """A whole-number solution; None if none is found in time.

        Only patterns with ``kept`` are used, and each at least as often as in ``least``; both are (patterns,).
        """
        *others, patterns = self._sorts(None)
        usable = Columns(patterns.matrix[:, kept], patterns.cost[kept], least[kept].astype(float), patterns.most[kept])
        found = self.master.integral([*others, usable], time_limit_s)
        if found.x is None:
            return None
        _, gpus, _, numbers = np.split(np.rint(found.x).astype(int), np.cumsum([len(one.cost) for one in others]))
        used = zip(compress(self.patterns, kept), numbers.tolist(), strict=True)
        return Chosen(self.master.gpus(gpus), {one: many for one, many in used if many})

    @cached_property
    def _tiers(self) -> Columns:
        """A column for each price tier of the fleet."""
        return self.master.tiers()

    @cached_property
    def _edges(self) -> Columns:
        """The columns by which harder roles hand places down to easier ones, one for each edge of the dominance
        order.
        """
        harder, easier = self.problem.edges
        edges = np.arange(len(harder))
        places = csr_array((np.repeat([-1.0, 1.0], len(edges)), (np.append(harder, easier), np.tile(edges, 2))),
                           (len(self.wanted), len(edges)))
        return self.master.columns(np.zeros(len(edges)), whole=False, places=places)

    def _sorts(self, at: Sequence[int] | None) -> list[Columns]:
        """All columns, sort by sort. ``at`` is the number of GPUs of each pool that are free of charge; None for none.
        """
        tiers = self._tiers if at is None else self.master.tiers(at)
        return [tiers, self.master.partitions, self._edges, self.master.known(self.patterns)]
