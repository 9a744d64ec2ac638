"""The master program: partitions, contents, covers and price tiers.

    minimise   sum price[t, j] T[t, j]                                      (price tiers j of the GPU types t)
    types      sum_j T[t, j]  >=  GPUs of type t in all partitions
    slices     slices of kind k in the partitions  >=  contents on k and replicas that have one to themselves
    places     places of role r in the contents, with what harder roles hand down  >=  uses of r by covers
    demand     every workload of a group has a cover

Contents and covers are columns, found by pricing (`generation`). A cover uses slices of some kinds, one replica each,
and places of some roles. Where no workload of a class may be split and none can stand alone, its only cover is its
role: such roles are constants on the right-hand side of the places rows.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array

from provision.formulations.linear.highs import Rows, solve_integer, solve_linear
from provision.formulations.master.knots import Knots
from provision.formulations.pricing.oracle import Content
from provision.formulations.search.price_tiers import Tier
from provision.formulations.search.problem import Problem, Supply


class CoverUse(NamedTuple):
    """A cover of one workload of a group, as (row, number) pairs; rows are slice kinds and then roles."""

    group: int
    uses: tuple[tuple[int, int], ...]


class MasterDuals(NamedTuple):
    """A solution of the linear program; prices are in multiples of the dearest GPU's.

    ``kinds``, ``roles``, ``groups`` and ``supplies`` are the duals: the worth of a slice, a place, a cover and a GPU.
    The ``parts`` and ``reduced`` costs are those of all columns. ``spare`` are the places of every role less its uses;
    where the program is over knots, the edges within classes take no part in these.
    """

    value: float
    kinds: NDArray[np.float64]
    roles: NDArray[np.float64]
    groups: NDArray[np.float64]
    supplies: NDArray[np.float64]
    parts: NDArray[np.float64]
    reduced: NDArray[np.float64]
    spare: NDArray[np.float64]


class Chosen(NamedTuple):
    """A whole-number solution: (partitions,) GPUs by supply, contents on slice kinds and covers, with their numbers."""

    partitions: list[NDArray[np.int64]]
    contents: dict[tuple[int, Content], int]
    covers: dict[CoverUse, int]


class Program:
    """The master program over the columns found so far.

    Columns stand in the order: tiers, partitions, handing down, contents, covers.

    Parameters
    ----------
    problem
        The Problem.
    forced
        (roles,) places that are needed whatever covers are chosen.
    wanted
        (groups,) covers that are needed.
    """

    def __init__(self, problem: Problem, forced: NDArray[np.int64], wanted: NDArray[np.int64]) -> None:
        self.problem, self.forced, self.wanted = problem, forced, wanted
        self.contents: dict[tuple[int, Content], None] = {}
        self.covers: dict[CoverUse, bool] = {}
        self.partitions = [(at, row) for at, supply in enumerate(problem.supplies) for row in supply.partitions]
        self.content_entries, self.cover_entries = _Entries(), _Entries()

    def add_contents(self, kind: int, contents: Sequence[Content]) -> int:
        """Add contents of a slice kind; returns how many are new."""
        before, (supplies, kinds, _, _) = len(self.contents), self._sizes()
        for content in map(self.problem.within_caps, contents):
            if content and (kind, content) not in self.contents:
                self.contents[kind, content] = None
                self.content_entries.add([(supplies + kind, -1.0), *((supplies + kinds + one, 1.0) for one in content)])
        return len(self.contents) - before

    def add_cover(self, cover: CoverUse, strict: bool) -> bool:
        """Add a cover, which plans may use as well as bounds when ``strict``; returns whether it is new."""
        new, (supplies, kinds, roles, _) = cover not in self.covers, self._sizes()
        if new:
            self.cover_entries.add([*((supplies + row, -float(many)) for row, many in cover.uses),
                                    (supplies + kinds + roles + cover.group, 1.0)])
        self.covers[cover] = strict or self.covers.get(cover, False)
        return new

    def relaxed(self, strict: bool = False, at: Sequence[int] | None = None, least: NDArray[np.int64] | None = None,
                knots: Knots | None = None) -> MasterDuals | None:
        """The solution of the linear program; None when these columns cannot meet the demand.

        Parameters
        ----------
        strict
            Whether only covers that plans may use count.
        at
            Numbers of GPUs of each supply that are free of charge; further GPUs cost the price of the dearest tier.
        least
            (columns,) how often every column is taken at least; by default 0 times.
        knots
            The roles that have rows of their own; by default all.
        """
        tiers = self._tiers(at)
        cost, low, most = self._bounds(tiers)
        if strict:
            most[self.loose()] = 0
        if least is not None:
            low, most = least.astype(float), np.maximum(most, least)
        rows, ends = Rows(cost, self._matrix(tiers), self._right(), low, most), np.cumsum(self._sizes())[:-1]
        found = (solve_linear(rows) if knots is None or knots.all
                 else knots.solve(rows, int(ends[1]), len(tiers) + len(self.partitions)))
        if found is None:
            return None
        supplies, kinds, roles, groups = np.split(found.duals, ends)
        spare = (rows.matrix @ found.x - rows.right)[ends[1] : ends[2]]
        return MasterDuals(found.value, kinds, roles, groups, supplies, found.x, found.reduced, spare)

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
        ends = np.cumsum([len(supply.partitions) for supply in self.problem.supplies])[:-1]
        start += len(self.problem.edges[0])
        contents = numbers[start : start + len(self.contents)]
        covers = numbers[start + len(self.contents) :]
        return Chosen(
            np.split(gpus, ends),
            {one: int(many) for one, many in zip(self.contents, contents, strict=True) if many},
            {one: int(many) for one, many in zip(self.covers, covers, strict=True) if many},
        )

    def parts(self, found: MasterDuals) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(contents,) and (covers,) how often each is taken in a solution of the linear program."""
        contents, covers = np.split(found.parts[self.others :], [len(self.contents)])
        return contents, covers

    @property
    def others(self) -> int:
        """The number of columns before contents and covers."""
        return len(self._tiers(None)) + len(self.partitions) + len(self.problem.edges[0])

    def loose(self) -> NDArray[np.int64]:
        """The columns that plans may not use."""
        first = self.others + len(self.contents)
        return first + np.flatnonzero([not strict for strict in self.covers.values()])

    def _sizes(self) -> tuple[int, int, int, int]:
        """Rows: types, slices, places, demand."""
        return (len(self.problem.supplies), len(self.problem.segments.kinds), len(self.forced), len(self.wanted))

    def _tiers(self, at: Sequence[int] | None) -> list[tuple[int, Tier]]:
        """(supply, tier) of every tiers column."""
        chosen: Sequence[int | None] = at or [None] * len(self.problem.supplies)
        pairs = zip(self.problem.supplies, chosen, strict=True)
        return [(index, tier) for index, (supply, many) in enumerate(pairs) for tier in _tiers_at(supply, many)]

    def _bounds(self, tiers: Sequence[tuple[int, Tier]]
                ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Cost, least and most of every column."""
        others = len(self.partitions) + len(self.problem.edges[0]) + len(self.contents) + len(self.covers)
        cost = np.array([price / self.problem.dearest for _, (price, _) in tiers] + [0.0] * others)
        most = np.array([np.inf if count is None else count for _, (_, count) in tiers] + [np.inf] * others)
        return cost, np.zeros(len(cost)), most

    def _right(self) -> NDArray[np.float64]:
        """Right sides of all rows, each at least."""
        supplies, kinds, _, _ = self._sizes()
        return np.concatenate([np.zeros(supplies + kinds), self.forced, self.wanted]).astype(float)

    def _matrix(self, tiers: Sequence[tuple[int, Tier]]) -> csc_array:
        """All rows by all columns."""
        supplies, kinds, *_ = self._sizes()
        entries: list[tuple[int, int, float]] = [(supply, at, 1.0) for at, (supply, _) in enumerate(tiers)]
        column = len(tiers)
        for supply, row in self.partitions:
            entries.append((supply, column, -1.0))
            entries += [(supplies + int(kind), column, float(row[kind])) for kind in np.flatnonzero(row)]
            column += 1
        places = supplies + kinds
        for harder, easier in zip(*self.problem.edges, strict=True):
            entries += [(places + int(harder), column, -1.0), (places + int(easier), column, 1.0)]
            column += 1
        first = column + len(self.contents)
        parts = [np.array(entries).T, self.content_entries.after(column), self.cover_entries.after(first)]
        rows, columns, values = np.hstack(parts)
        shape = (sum(self._sizes()), first + len(self.covers))
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


def _tiers_at(supply: Supply, many: int | None) -> Sequence[Tier]:
    """The tiers of a supply; where ``many`` is given, so many GPUs are free and others cost the dearest price."""
    return supply.tiers if many is None else ((0, many), (supply.worth, None))
