"""The master program: partitions, patterns, replica sets and price tiers.

    minimise   sum price[t, j] T[t, j]                                      (price tiers j of the GPU types t)
    types      sum_j T[t, j]  >=  GPUs of type t in all partitions
    slices     slices of kind k in the partitions  >=  patterns on k and replicas that have one to themselves
    places     places of role r in the patterns, with what harder roles hand down  >=  uses of r by replica sets
    demand     every workload of a group has a replica set

Patterns and replica sets are columns, found by pricing (`generation`). A replica set uses slices of some kinds, one
replica each, and places of some roles. Where no workload of a class may be split and none can stand alone, its only
replica set is its role: such roles are constants on the right-hand side of the places rows.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array

from provision.formulations.linear.highs import Rows, solve_integer, solve_linear
from provision.formulations.master.breakpoints import Breakpoints
from provision.formulations.pricing.oracle import Pattern
from provision.formulations.search.price_tiers import Tier
from provision.formulations.search.problem import Pool, Problem


class ReplicaSet(NamedTuple):
    """A replica set of one workload of a group, as (row, number) pairs; rows are slice types and then roles."""

    group: int
    uses: tuple[tuple[int, int], ...]


class MasterDuals(NamedTuple):
    """A solution of the linear program; prices are in multiples of the dearest GPU's.

    ``kinds``, ``roles``, ``groups`` and ``pools`` are the duals: the worth of a slice, a place, a replica set and a
    GPU. The ``parts`` and ``reduced`` costs are those of all columns. ``spare`` are the places of every role less its
    uses; where the program is over breakpoints, the edges within classes take no part in these.
    """

    value: float
    slice_types: NDArray[np.float64]
    roles: NDArray[np.float64]
    groups: NDArray[np.float64]
    pools: NDArray[np.float64]
    parts: NDArray[np.float64]
    reduced: NDArray[np.float64]
    spare: NDArray[np.float64]


class Chosen(NamedTuple):
    """A whole-number solution: (partitions,) GPUs by pool, patterns on slice types and replica sets, with their
    numbers.
    """

    partitions: list[NDArray[np.int64]]
    patterns: dict[tuple[int, Pattern], int]
    replica_sets: dict[ReplicaSet, int]


class Program:
    """The master program over the columns found so far.

    Columns stand in the order: tiers, partitions, handing down, patterns, replica sets.

    Parameters
    ----------
    problem
        The Problem.
    forced
        (roles,) places that are needed whatever replica sets are chosen.
    wanted
        (groups,) replica sets that are needed.
    """

    def __init__(self, problem: Problem, forced: NDArray[np.int64], wanted: NDArray[np.int64]) -> None:
        self.problem, self.forced, self.wanted = problem, forced, wanted
        self.patterns: dict[tuple[int, Pattern], None] = {}
        self.replica_sets: dict[ReplicaSet, bool] = {}
        self.partitions = [(at, row) for at, pool in enumerate(problem.pools) for row in pool.partitions]
        self.pattern_entries, self.replica_set_entries = _Entries(), _Entries()

    def add_patterns(self, slice_type: int, patterns: Sequence[Pattern]) -> int:
        """Add patterns of a slice type; returns how many are new."""
        before, (pools, slice_types, _, _) = len(self.patterns), self._sizes()
        for pattern in map(self.problem.within_caps, patterns):
            if pattern and (slice_type, pattern) not in self.patterns:
                self.patterns[slice_type, pattern] = None
                self.pattern_entries.add(
                    [(pools + slice_type, -1.0), *((pools + slice_types + one, 1.0) for one in pattern)]
                )
        return len(self.patterns) - before

    def add_replica_set(self, replica_set: ReplicaSet, strict: bool) -> bool:
        """Add a replica set, which plans may use as well as bounds when ``strict``; returns whether it is new."""
        new, (pools, slice_types, roles, _) = replica_set not in self.replica_sets, self._sizes()
        if new:
            self.replica_set_entries.add([*((pools + row, -float(many)) for row, many in replica_set.uses),
                                    (pools + slice_types + roles + replica_set.group, 1.0)])
        self.replica_sets[replica_set] = strict or self.replica_sets.get(replica_set, False)
        return new

    def relaxed(self, strict: bool = False, at: Sequence[int] | None = None, least: NDArray[np.int64] | None = None,
                breakpoints: Breakpoints | None = None) -> MasterDuals | None:
        """The solution of the linear program; None when these columns cannot meet the demand.

        Parameters
        ----------
        strict
            Whether only replica sets that plans may use count.
        at
            Numbers of GPUs of each pool that are free of charge; further GPUs cost the price of the dearest tier.
        least
            (columns,) how often every column is taken at least; by default 0 times.
        breakpoints
            The roles that have rows of their own; by default all.
        """
        tiers = self._tiers(at)
        cost, low, most = self._bounds(tiers)
        if strict:
            most[self.loose()] = 0
        if least is not None:
            low, most = least.astype(float), np.maximum(most, least)
        rows, ends = Rows(cost, self._matrix(tiers), self._right(), low, most), np.cumsum(self._sizes())[:-1]
        found = (solve_linear(rows) if breakpoints is None or breakpoints.all
                 else breakpoints.solve(rows, int(ends[1]), len(tiers) + len(self.partitions)))
        if found is None:
            return None
        pools, slice_types, roles, groups = np.split(found.duals, ends)
        spare = (rows.matrix @ found.x - rows.right)[ends[1] : ends[2]]
        return MasterDuals(found.value, slice_types, roles, groups, pools, found.x, found.reduced, spare)

    def integral(self, kept: NDArray[np.bool_], least: NDArray[Any], time_limit_s: float, gap: float = 0.0
                 ) -> Chosen | None:
        """A whole-number solution with some of the columns, at least ``least`` of each; None when none is found."""
        tiers = self._tiers(None)
        cost, low, most = self._bounds(tiers)
        low = np.maximum(low, least)[kept]
        whole = np.ones(len(cost), bool)
        edges = slice(len(tiers) + len(self.partitions), len(tiers) + len(self.partitions) + len(self.problem.edges[0]))
        whole[edges] = False
        rows = Rows(cost[kept], csc_array(self._matrix(tiers)[:, kept]), self._right(), low,
                    np.maximum(most[kept], low))
        found = solve_integer(rows, whole[kept], time_limit_s, gap)
        if found.x is None:
            return None
        numbers = np.zeros(len(cost), int)
        numbers[kept] = np.rint(found.x)
        return self.chosen(numbers, len(tiers))

    def chosen(self, numbers: NDArray[np.int64], tiers: int | None = None) -> Chosen:
        """A solution from the numbers of all columns."""
        tiers = len(self._tiers(None)) if tiers is None else tiers
        start = tiers + len(self.partitions)
        gpus = numbers[tiers:start]
        ends = np.cumsum([len(pool.partitions) for pool in self.problem.pools])[:-1]
        start += len(self.problem.edges[0])
        patterns = numbers[start : start + len(self.patterns)]
        replica_sets = numbers[start + len(self.patterns) :]
        return Chosen(
            np.split(gpus, ends),
            {one: int(many) for one, many in zip(self.patterns, patterns, strict=True) if many},
            {one: int(many) for one, many in zip(self.replica_sets, replica_sets, strict=True) if many},
        )

    def parts(self, found: MasterDuals) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(patterns,) and (replica sets,) how often each is taken in a solution of the linear program."""
        patterns, replica_sets = np.split(found.parts[self.others :], [len(self.patterns)])
        return patterns, replica_sets

    @property
    def others(self) -> int:
        """The number of columns before patterns and replica sets."""
        return len(self._tiers(None)) + len(self.partitions) + len(self.problem.edges[0])

    def loose(self) -> NDArray[np.int64]:
        """The columns that plans may not use."""
        first = self.others + len(self.patterns)
        return first + np.flatnonzero([not strict for strict in self.replica_sets.values()])

    def _sizes(self) -> tuple[int, int, int, int]:
        """Rows: types, slices, places, demand."""
        return (len(self.problem.pools), len(self.problem.segments.slice_types), len(self.forced), len(self.wanted))

    def _tiers(self, at: Sequence[int] | None) -> list[tuple[int, Tier]]:
        """(pool, tier) of every tiers column."""
        chosen: Sequence[int | None] = at or [None] * len(self.problem.pools)
        pairs = zip(self.problem.pools, chosen, strict=True)
        return [(index, tier) for index, (pool, many) in enumerate(pairs) for tier in _tiers_at(pool, many)]

    def _bounds(self, tiers: Sequence[tuple[int, Tier]]
                ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Cost, least and most of every column."""
        others = len(self.partitions) + len(self.problem.edges[0]) + len(self.patterns) + len(self.replica_sets)
        cost = np.array([price / self.problem.dearest for _, (price, _) in tiers] + [0.0] * others)
        most = np.array([np.inf if count is None else count for _, (_, count) in tiers] + [np.inf] * others)
        return cost, np.zeros(len(cost)), most

    def _right(self) -> NDArray[np.float64]:
        """Right sides of all rows, each at least."""
        pools, slice_types, _, _ = self._sizes()
        return np.concatenate([np.zeros(pools + slice_types), self.forced, self.wanted]).astype(float)

    def _matrix(self, tiers: Sequence[tuple[int, Tier]]) -> csc_array:
        """All rows by all columns."""
        pools, slice_types, *_ = self._sizes()
        entries: list[tuple[int, int, float]] = [(pool, at, 1.0) for at, (pool, _) in enumerate(tiers)]
        column = len(tiers)
        for pool, row in self.partitions:
            entries.append((pool, column, -1.0))
            entries += [(pools + int(slice_type), column, float(row[slice_type])) for slice_type in np.flatnonzero(row)]
            column += 1
        places = pools + slice_types
        for harder, easier in zip(*self.problem.edges, strict=True):
            entries += [(places + int(harder), column, -1.0), (places + int(easier), column, 1.0)]
            column += 1
        first = column + len(self.patterns)
        parts = [np.array(entries).T, self.pattern_entries.after(column), self.replica_set_entries.after(first)]
        rows, columns, values = np.hstack(parts)
        shape = (sum(self._sizes()), first + len(self.replica_sets))
        return coo_array((values, (rows.astype(int), columns.astype(int))), shape).tocsc()


class _Entries:
    """The entries of a growing number of columns, as flat lists."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.columns: list[int] = []
        self.values: list[float] = []
        self.many = 0

    def add(self, entries: Iterable[tuple[int, float]]) -> None:
        """Add a column of (row, value) entries."""
        for row, value in entries:
            self.rows.append(row)
            self.columns.append(self.many)
            self.values.append(value)
        self.many += 1

    def after(self, first: int) -> NDArray[np.float64]:
        """(3, entries) rows, columns counted from ``first``, and values."""
        return np.array([self.rows, np.array(self.columns) + first, self.values], float).reshape(3, -1)


def _tiers_at(pool: Pool, many: int | None) -> Sequence[Tier]:
    """The tiers of a pool; where ``many`` is given, so many GPUs are free and others cost the dearest price."""
    return pool.tiers if many is None else ((0, many), (pool.worth, None))
