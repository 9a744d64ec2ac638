"""The restricted master program, used by all searches for all objectives.

    minimise   price of the GPUs, or other costs of the columns
    types      GPUs of type t that the fleet grants, or that tiers pay for  >=  those in its partitions
    slices     slices of type k in the partitions  >=  patterns and replicas on slices of type k
    ...        the families of rows that a search declares: places of roles, demand, replicas

Searches differ in the families of rows that they declare and in the sorts of columns that they add. Every row demands
at least its right side. Partitions and price tiers are the same for all searches.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array, hstack, vstack

from provision.formulations.linear.highs import IntegerSolution, LinearSolution, Rows, solve_integer, solve_linear
from provision.formulations.search.problem import Problem
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import MISSING

Known = dict[Any, tuple[list[tuple[int, float]], float]]
"""Columns of one sort by key, the oldest first: the entries and the cost of each. An entry is a pair (row of the whole
program, value); values of the same row add up.
"""


class Columns(NamedTuple):
    """Columns of one sort.

    ``matrix`` (rows, columns) has their entries, ``cost``, ``least`` and ``most`` (columns,) their costs and limits.
    ``whole`` says whether their values must be integers.
    """

    matrix: csc_array
    cost: Floats
    least: Floats
    most: Floats
    whole: bool = True


class RestrictedMaster:
    """The master program of one Problem.

    Parameters
    ----------
    problem
        The Problem.
    granted
        (pools,) the number of GPUs of each type that are free of charge. By default there are none, and the price tiers
        are columns.
    families
        The name and right sides of each further family of rows, after types and slices.

    Attributes
    ----------
    rows
        For each family, the range of its rows.
    right
        (rows,) all right sides.
    """

    def __init__(self, problem: Problem, granted: Floats | None = None, **families: Floats | Ints) -> None:
        self.problem = problem
        sides = {"types": np.zeros(len(problem.pools)) if granted is None else -granted,
                 "slices": np.zeros(len(problem.segments.slice_types)), **families}
        ends = np.cumsum([0, *(len(one) for one in sides.values())]).tolist()
        self.rows = {name: slice(*pair) for name, pair in zip(sides, pairwise(ends), strict=True)}
        self.right = np.concatenate(list(sides.values())).astype(float)

    def sides(self, **families: Floats | Ints) -> Floats:
        """(rows,) the right sides, with those of the given families replaced."""
        right = self.right.copy()
        for name, side in families.items():
            right[self.rows[name]] = side
        return right

    def split(self, of_rows: Floats) -> dict[str, Floats]:
        """Divide an array over all rows into the arrays of each family."""
        return {name: of_rows[rows] for name, rows in self.rows.items()}

    def columns(self, cost: Floats, most: Floats | None = None, whole: bool = True,
                **families: csr_array | csc_array | Floats) -> Columns:
        """Columns of one sort.

        Parameters
        ----------
        cost, most
            (columns,) the cost and the largest value of each; None for no limit.
        whole
            Whether their values must be integers.
        families
            By name of the family, its (rows of the family, columns) entries. All other families have no entries.
        """
        blocks = [csr_array(families[name]) if name in families else csr_array((rows.stop - rows.start, len(cost)))
                  for name, rows in self.rows.items()]
        limits = np.full(len(cost), np.inf) if most is None else most
        return Columns(csc_array(vstack(blocks)), cost, np.zeros(len(cost)), limits, whole)

    def known(self, columns: Known) -> Columns:
        """The columns that were added one by one, as a matrix."""
        entries = [(value, row, at) for at, (column, _) in enumerate(columns.values()) for row, value in column]
        values, rows, of_column = np.array(entries, float).reshape(-1, 3).T
        cost = np.array([each for _, each in columns.values()], float)
        at = rows.astype(int), of_column.astype(int)
        matrix = coo_array((values, at), (len(self.right), len(cost))).tocsc()
        return Columns(matrix, cost, np.zeros(len(cost)), np.full(len(cost), np.inf))

    @cached_property
    def partitions(self) -> Columns:
        """A column for every partition of every pool."""
        table = self.problem.partitions
        taken = np.array([pool.entry for pool in self.problem.pools], int)[:, None] == table.entry
        return self.columns(np.zeros(len(table.entry)), types=-1.0 * taken, slices=table.slots.T.astype(float))

    def tiers(self, counts: Sequence[int] | None = None) -> Columns:
        """A column for every price tier, in multiples of the price of the fleet's dearest GPU.

        By default: the fleet's price tiers, and an expensive one for GPUs that it lacks. With ``counts``: so many GPUs
        of each type free of charge, and further ones at the price of the type's dearest GPU.
        """
        pools = self.problem.pools
        of_pool = [pool.tiers for pool in pools] if counts is None else [
            ((0, many), (pool.worth, None)) for pool, many in zip(pools, counts, strict=True)]
        tiers = [(at, price, count) for at, several in enumerate(of_pool) for price, count in several]
        most = [np.inf if count is None else count for _, _, count in tiers]
        pays = np.arange(len(pools))[:, None] == np.array([at for at, _, _ in tiers], int)
        cost = np.array([price for _, price, _ in tiers]) / self.problem.dearest
        return self.columns(cost, np.array(most, float), types=1.0 * pays)

    @property
    def offered(self) -> Columns:
        """A column for every price tier of GPUs that the fleet has, which may be used in fractions."""
        tiers = self.tiers()
        lacks = [pool.count is not None and at == len(pool.tiers) - 1
                 for pool in self.problem.pools for at in range(len(pool.tiers))]
        return tiers._replace(cost=np.where(lacks, 0.0, tiers.cost), most=np.where(lacks, 0.0, tiers.most), whole=False)

    def program(self, sorts: Sequence[Columns], right: Floats | None = None) -> Rows:
        """The program over the columns of all ``sorts``, in their order; by default with the declared right sides."""
        matrix, cost, least, most, _ = zip(*sorts, strict=True)
        return Rows(np.concatenate(cost), hstack(matrix, "csc"), self.right if right is None else right,
                    np.concatenate(least), np.concatenate(most))

    def relaxed(self, sorts: Sequence[Columns], right: Floats | None = None) -> LinearSolution | None:
        """Solve the linear program over the columns of all ``sorts``; None if they cannot meet the rows."""
        return solve_linear(self.program(sorts, right))

    def integral(self, sorts: Sequence[Columns], time_limit_s: float, right: Floats | None = None,
                 dearest: float | None = None) -> IntegerSolution:
        """A whole-number solution.

        Parameters
        ----------
        sorts, right
            As for ``relaxed``.
        time_limit_s
            Seconds that the solver may take.
        dearest
            The highest cost of the solution; None for no limit.
        """
        rows = self.program(sorts, right)
        whole = np.repeat([one.whole for one in sorts], [len(one.cost) for one in sorts])
        if dearest is not None:
            rows = rows._replace(matrix=csc_array(vstack([rows.matrix, csr_array(-rows.cost[None])])),
                                 right=np.append(rows.right, -dearest * (1 + MISSING)))
        return solve_integer(rows, whole, time_limit_s)

    def gpus(self, of_partitions: Floats | Ints) -> list[Ints]:
        """For each pool, (partitions,) the number of GPUs with each partition, from an array over the partitions of all
        pools, whose numbers are whole up to rounding errors.
        """
        ends = np.cumsum([len(pool.partitions) for pool in self.problem.pools])[:-1]
        return np.split(np.rint(of_partitions).astype(int), ends)
