"""The program of places: how patterns and replica sets meet in a plan for many workloads under interference.

    minimise   price of the GPUs
    types      GPUs of all tiers of a type  >=  those in its partitions
    slices     slices of type k in the partitions  >=  patterns on k
    places     places of a class from a level on, in patterns and left over  >=  uses from this level on by replica sets
    demand     replica sets of the workloads of a class and a range of rates  >=  number of these workloads

A place is room for one replica in a pattern. It has the highest of some levels of rates that the replica can carry. A
replica set is a choice of levels whose sum is at least the highest rate of its range. Few levels and ranges keep the
program small, whatever the number of workloads.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from provision.formulations.linear.restricted import Columns, RestrictedMaster
from provision.formulations.search.problem import Problem
from provision.formulations.values.nodes import least_value
from provision.formulations.values.schedule import SCHEDULE
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import DUST, SOLVER


class ReplicaSet(NamedTuple):
    """The rows of the places that a workload uses, from the highest level to the lowest; ``demand`` is the number of
    its range.
    """

    demand: int
    rows: tuple[int, ...]


class Mix(NamedTuple):
    """A solution: its value, (patterns,) how often each pattern is used, how often each replica set is used, and
    (rows,) and (demands,) the duals of places and of demand.
    """

    value: float
    patterns: Floats
    replica_sets: list[tuple[ReplicaSet, float]]
    places: Floats
    demands: Floats


def levels_of(most_rps: Floats, rates_rps: Floats) -> Floats:
    """The levels of a class, ascending, in requests/s.

    Parameters
    ----------
    most_rps
        The most that a replica of the class carries on each GPU type that serves it.
    rates_rps
        The highest rate of each range of rates.
    """
    top = float(min(most_rps.max(), rates_rps.max()))
    steps = top * SCHEDULE.step ** -np.arange(math.log(1 / SCHEDULE.lowest) / math.log(SCHEDULE.step))
    asked = np.concatenate([rates_rps, most_rps])
    found = np.unique(np.concatenate([steps, asked[asked <= top * (1 + DUST)]]))
    return found[np.append(True, np.diff(found) > found[1:] * 1e-3)]


def replica_sets(levels: Floats, full: Sequence[int], rate_rps: float) -> Iterator[tuple[int, ...]]:
    """Yield sets of levels, by index, that carry a rate and whose last level cannot be lowered.

    All but the last two replicas of a set have the same level, one of ``full``.
    """
    for level in full:
        for many in range(SCHEDULE.full + 1):
            left_rps = rate_rps - many * levels[level]
            if many and left_rps <= 0:
                break
            for pair in _pairs(levels, left_rps):
                yield (level,) * many + pair


def _pairs(levels: Floats, rate_rps: float) -> Iterator[tuple[int, ...]]:
    """Yield the lowest level that carries a rate alone; and for each level that needs another one, at most as high, the
    pair with the lowest such level.
    """
    enough = rate_rps * (1 - DUST)
    if levels[-1] >= enough:
        yield (int(np.searchsorted(levels, enough)),)
    for high in range(len(levels)):
        if levels[high] < enough <= 2 * levels[high]:
            yield high, int(np.searchsorted(levels, enough - levels[high]))


def cheapest(levels: Floats, values: Floats, rates_rps: Sequence[float]) -> Iterator[tuple[int, ...]]:
    """For each rate, yield the indices, highest first, of levels that carry it at about the least total value."""
    rps, value = np.append(0.0, levels), np.append(0.0, np.maximum.accumulate(values))
    counts = np.zeros((len(rates_rps), len(rps) + 1), int)
    least_value(rps, value, np.array(rates_rps), counts)
    for rate_rps, held in zip(rates_rps, counts[:, 1:-1], strict=True):
        found, left_rps = np.repeat(np.arange(len(levels)), held).tolist(), rate_rps - float(held @ levels)
        while left_rps > rate_rps * DUST:
            found.append(min(int(np.searchsorted(levels, left_rps * (1 - DUST))), len(levels) - 1))
            left_rps -= float(levels[found[-1]])
        yield tuple(sorted(found, reverse=True))


class PlaceProgram:
    """The linear program.

    Parameters
    ----------
    problem
        The Problem, which has the pools.
    below
        (rows,) for each row of places the row of the next lower level of its class, -1 if there is none.
    spare
        (rows,) the places that are left over.
    replica_sets, wanted
        The replica sets, to which others may be added, and (demands,) the number of workloads of each range.
    """

    def __init__(self, problem: Problem, below: Ints, spare: Ints, replica_sets: Sequence[ReplicaSet],
                 wanted: Sequence[int]) -> None:
        self.rows, self.replica_sets = len(below), dict.fromkeys(replica_sets)
        self.master = RestrictedMaster(problem, places=-spare, demand=np.array(wanted))
        upper = np.flatnonzero(below >= 0)
        lower = csr_array((np.repeat([-1.0, 1.0], len(upper)),
                           (np.append(upper, below[upper]), np.tile(np.arange(len(upper)), 2))),
                          (len(below), len(upper)))
        lowered = self.master.columns(np.zeros(len(upper)), places=lower)
        self.fixed = [self.master.tiers(), self.master.partitions, lowered]

    def solved(self, slice_type: Ints, places: Ints, begin: Ints) -> Mix | None:
        """The optimum over all patterns, found by adding patterns of negative reduced cost to those in ``begin``. None
        if there is none.

        Parameters
        ----------
        slice_type, places
            (patterns,) slice types, and (patterns, places) the row of each place, the number of rows where there is
            none.
        begin
            Indices of patterns.
        """
        taken, others = np.unique(begin), [*self.fixed, self._sets()]
        while True:
            found = self.master.relaxed([*others, self._patterns(slice_type, places, taken)])
            if found is None:
                return None
            _, price, worth, demands = self.master.split(found.duals).values()
            reduced = 1 - np.append(worth, 0.0)[places].sum(axis=1) / np.maximum(price[slice_type], DUST)
            reduced[taken] = 0.0
            order = np.argsort(reduced, kind="stable")[: SCHEDULE.new]
            new = order[reduced[order] < -SOLVER]
            if not len(new):
                break
            taken = np.union1d(taken, new)
        *_, of_sets, of_patterns = np.split(found.x, np.cumsum([len(one.cost) for one in others]))
        number = np.zeros(len(slice_type))
        number[taken] = of_patterns
        used = [(one, many) for one, many in zip(self.replica_sets, of_sets.tolist(), strict=True) if many > SOLVER]
        return Mix(found.value, number, used, worth, demands)

    def _sets(self) -> Columns:
        """The columns of the replica sets."""
        several = list(self.replica_sets)
        row, column = np.array([(row, at) for at, one in enumerate(several) for row in one.rows], int).reshape(-1, 2).T
        uses = csr_array((-np.ones(len(row)), (row, column)), (self.rows, len(several)))
        demands, at = self.master.rows["demand"], np.arange(len(several))
        meets = csr_array((np.ones(len(several)), ([one.demand for one in several], at)),
                          (demands.stop - demands.start, len(several)))
        return self.master.columns(np.zeros(len(several)), places=uses, demand=meets)

    def _patterns(self, slice_type: Ints, places: Ints, taken: Ints) -> Columns:
        """The columns of some patterns."""
        column, place = np.nonzero(places[taken] < self.rows)
        of_places = csr_array((np.ones(len(column)), (places[taken[column], place], column)), (self.rows, len(taken)))
        of_slice = np.arange(len(self.master.problem.segments.slice_types))[:, None] == slice_type[taken]
        return self.master.columns(np.zeros(len(taken)), slices=-1.0 * of_slice, places=of_places)._replace(at=taken)
