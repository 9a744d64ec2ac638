"""Patterns of roles and replica sets as columns of the restricted master, for least cost.

    minimise   sum price[t, j] T[t, j]                                      (price tiers j of the GPU types t)
    types      sum_j T[t, j]  >=  GPUs of type t in all partitions
    slices     slices of type k in the partitions  >=  patterns on k and replicas alone on such a slice
    places     places of role r in the patterns, plus places that harder roles hand down  >=  uses of r by replica sets
    demand     every workload of a group has a replica set

A role is what a replica on a shared slice is for (`search.roles`); a place is room for one replica of a role in a
pattern. Harder roles hand places down: a place of a role can also be used by any role that is easier. Patterns and
replica sets are found by pricing (`generation`). A replica set uses whole slices, with one replica on each, and places
of roles. If the workloads of a group may not be split and cannot run alone on a slice, one role is their only replica
set. The uses of such roles are constants on the right-hand side of the places rows.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from provision.formulations.linear.highs import LinearSolution, Rows, solve_linear
from provision.formulations.linear.restricted import Columns, Key, Known, RestrictedMaster
from provision.formulations.master.breakpoints import Breakpoints
from provision.formulations.pricing.oracle import Pattern
from provision.formulations.search.problem import Problem
from provision.models.base.arrays import Bools, Floats, Ints


class ReplicaSet(NamedTuple):
    """A replica set of one workload of a group. ``uses`` are (row, number) pairs, where rows are slice types and then
    roles.
    """

    group: int
    uses: tuple[tuple[int, int], ...]


class MasterDuals(NamedTuple):
    """A solution of the linear program. Prices are in multiples of the dearest GPU's price.

    ``slice_types``, ``roles`` and ``groups`` are the duals: the prices of a slice, a place and a replica set. ``parts``
    and ``reduced`` are the values and the reduced costs of all columns. ``spare`` is the number of places of each role
    less its uses. If the program is over breakpoints, ``spare`` leaves out places that are handed down within a class.
    """

    value: float
    slice_types: Floats
    roles: Floats
    groups: Floats
    parts: Floats
    reduced: Floats
    spare: Floats


class Chosen(NamedTuple):
    """A whole-number solution.

    ``partitions`` has for each pool the number of GPUs with each partition. ``patterns`` (by slice type and pattern)
    and ``replica_sets`` say how often each is used.
    """

    partitions: list[Ints]
    patterns: dict[tuple[int, Pattern], int]
    replica_sets: dict[ReplicaSet, int]


class RoleColumns:
    """The columns found so far, and the master program over them.

    The order of columns is: tiers, partitions, edges (places handed down), patterns, replica sets.

    Parameters
    ----------
    problem
        The Problem.
    forced
        (roles,) the number of places that are needed, whatever replica sets are chosen.
    wanted
        (groups,) the number of replica sets that are needed.
    """

    def __init__(self, problem: Problem, forced: Ints, wanted: Ints) -> None:
        self.problem, self.wanted = problem, wanted
        self.master = RestrictedMaster(problem, places=forced, demand=wanted)
        self.patterns, self.replica_sets = Known[tuple[int, Pattern]](), Known[ReplicaSet]()
        self.strict: list[bool] = []

    def add_patterns(self, slice_type: int, patterns: Sequence[Pattern]) -> int:
        """Add patterns of a slice type; return how many of them are new."""
        slices, places = self.master.rows["slices"].start, self.master.rows["places"].start
        new = 0
        for pattern in filter(None, map(self.problem.within_caps, patterns)):
            entries = [(slices + slice_type, -1.0), *((places + one, 1.0) for one in pattern)]
            new += self.patterns.add((slice_type, pattern), entries)
        return new

    def add_replica_set(self, replica_set: ReplicaSet, strict: bool) -> bool:
        """Add a replica set for bounds and, if ``strict``, also for plans; return whether it is new."""
        slices, demand = self.master.rows["slices"].start, self.master.rows["demand"].start
        new = self.replica_sets.add(replica_set, [*((slices + row, -float(many)) for row, many in replica_set.uses),
                                                  (demand + replica_set.group, 1.0)])
        if new:
            self.strict.append(strict)
        elif strict:
            self.strict[self.replica_sets.at[replica_set]] = True
        return new

    def relaxed(self, strict: bool = False, at: Sequence[int] | None = None, least: Ints | None = None,
                breakpoints: Breakpoints | None = None) -> MasterDuals | None:
        """The solution of the linear program; None if the columns cannot meet the demand.

        Parameters
        ----------
        strict
            Whether to use only replica sets that plans may use.
        at
            The number of GPUs of each pool that are free of charge; None for none. Further GPUs cost the price of the
            dearest tier.
        least
            (columns,) the least value of every column; by default 0.
        breakpoints
            The Breakpoints: roles that have rows of their own. By default all roles have.
        """
        master, sorts = self.master, self._sorts(at)
        rows = master.program(sorts)
        if strict:
            rows.most[self.loose()] = 0
        if least is not None:
            rows = rows._replace(least=least.astype(float), most=np.maximum(rows.most, least))
        found = self._solved(rows, breakpoints, sum(len(one.cost) for one in sorts[:2]))
        if found is None:
            return None
        _, slices, places, demand = master.split(found.duals).values()
        spare = (rows.matrix @ found.x - rows.right)[master.rows["places"]]
        return MasterDuals(found.value, slices, places, demand, found.x, found.reduced, spare)

    def _solved(self, rows: Rows, breakpoints: Breakpoints | None, first_edge: int) -> LinearSolution | None:
        """The solution of the program over breakpoints; if every role is a breakpoint, of the program with all rows."""
        if breakpoints is None or breakpoints.all:
            return solve_linear(rows)
        return breakpoints.solve(rows, self.master.rows["places"].start, first_edge)

    def integral(self, kept: Bools, least: Ints, time_limit_s: float, goal: float | None = None) -> Chosen | None:
        """A whole-number solution; None if none is found in time.

        Only columns with ``kept`` are used, and each has at least its value in ``least``.
        With a ``goal``, in units, it is the first one found that costs no more.
        """
        sorts = self._sorts(None)
        ends = np.cumsum([len(one.cost) for one in sorts])[:-1]
        low = [one._replace(least=np.maximum(one.least, of_sort), most=np.maximum(one.most, of_sort))
               for one, of_sort in zip(sorts, np.split(least, ends), strict=True)]
        dearest = None if goal is None else goal / self.problem.dearest
        found = self.master.integral(low, time_limit_s, kept=kept, dearest=dearest, gap=0.0 if goal is None else 1.0)
        return None if found.x is None else self.chosen(found.x)

    def chosen(self, numbers: Floats | Ints) -> Chosen:
        """The solution in which each column has the given number."""
        _, gpus, _, patterns, replica_sets = self._split(np.rint(numbers).astype(int))
        return Chosen(self.master.gpus(gpus), _taken(self.patterns, patterns), _taken(self.replica_sets, replica_sets))

    def parts(self, found: MasterDuals) -> tuple[Floats, Floats]:
        """The values of patterns (patterns,) and of replica sets (replica sets,) in a solution of the linear program.
        """
        patterns, replica_sets = np.split(found.parts[self.others :], [len(self.patterns)])
        return patterns, replica_sets

    @property
    def others(self) -> int:
        """The number of columns before the patterns: tiers, partitions and edges."""
        return sum(len(one.cost) for one in (self._tiers, self.master.partitions, self._edges))

    def loose(self) -> Ints:
        """The indices of the columns that plans may not use."""
        return self.others + len(self.patterns) + np.flatnonzero(~np.array(self.strict, bool))

    @cached_property
    def _tiers(self) -> Columns:
        """A column for each price tier of the fleet."""
        return self.master.tiers()

    @cached_property
    def _edges(self) -> Columns:
        """The columns by which harder roles hand places down to easier ones, one for each edge of the dominance
        order."""
        harder, easier = self.problem.edges
        edges = np.arange(len(harder))
        values = np.repeat([-1.0, 1.0], len(edges))
        places = csr_array((values, (np.append(harder, easier), np.tile(edges, 2))),
                           (len(self.problem.roles), len(edges)))
        return self.master.columns(np.zeros(len(edges)), whole=False, places=places)

    def _sorts(self, at: Sequence[int] | None) -> list[Columns]:
        """All columns, sort by sort. ``at`` is the number of GPUs of each pool that are free of charge; None for none.
        """
        master = self.master
        return [self._tiers if at is None else master.tiers(at), master.partitions, self._edges,
                master.known(self.patterns), master.known(self.replica_sets)]

    def _split(self, of_columns: Ints) -> list[Ints]:
        """Divide an array over all columns into the arrays of each sort."""
        sizes = [len(one.cost) for one in (self._tiers, self.master.partitions, self._edges)]
        return np.split(of_columns, np.cumsum([*sizes, len(self.patterns)]))


def _taken(columns: Known[Key], numbers: Ints) -> dict[Key, int]:
    """The columns with a positive number, and that number."""
    return {one: int(many) for one, many in zip(columns, numbers, strict=True) if many}
