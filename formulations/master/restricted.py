"""The restricted master program over patterns that carry rates.

    minimise   price of the GPUs
    types      GPUs of all tiers of a type  >=  those in its partitions
    slices     slices of type k in the partitions  >=  patterns on k
    demand     the part of a workload's rate that patterns carry, none counted for more than all  >=  1
    replicas   of a workload within its limits

Rates are split at will and need no steps. What a pattern carries of a workload beyond its rate does not count, which no
plan needs and which makes the linear program tight where rates are small.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.sparse import block_array, csr_array, vstack

from provision.formulations.linear.highs import IntegerSolution, Rows, solve_integer, solve_linear
from provision.formulations.pricing.capacities import RatedPattern
from provision.formulations.pricing.listing import Listing
from provision.formulations.search.price_tiers import Tier
from provision.formulations.search.problem import Problem
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.tolerances import MISSING, SOLVER

LEAST_RPS = 1e-6
"""The rate, in requests/s, for which a workload without requests keeps a replica."""
MANY = 50
"""Patterns that are added to the linear program at a time."""


class Left(NamedTuple):
    """What is left to plan: (groups,) ``rps`` and ``least`` and ``most`` replicas; (slice types,) slices ``taken``."""

    rps: Floats
    least: Floats
    most: Floats
    taken: Ints


class Relaxed(NamedTuple):
    """A solution of the linear program, in multiples of the dearest GPU's price.

    ``slices``, ``per_rps`` and ``bonus`` are what a slice, a request/s and a replica are worth, ``asked`` is what all
    that is left is worth together. ``patterns`` are those taken and ``parts`` how often; ``reduced`` costs are of all.
    """

    value: float
    slices: Floats
    per_rps: Floats
    bonus: Floats
    asked: float
    patterns: Ints
    parts: Floats
    reduced: Floats


class RestrictedMaster:
    """The program of one Problem and the patterns known so far.

    Columns stand in the order: patterns, partitions, tiers.

    Parameters
    ----------
    problem
        The Problem.

    Attributes
    ----------
    slice_type, rps, number
        (patterns,) slice types, (patterns, groups) requests/s as bounds grant them, and numbers of replicas.
    fits
        (patterns,) flags those that hold within the limits of plans, as far as that is known.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, groups = problem, problem.groups
        members = np.array([len(group.members) for group in groups], float)
        self.all = Left(members * [max(group.rate_rps, LEAST_RPS) for group in groups],
                        members * [group.least for group in groups], members * [group.most for group in groups],
                        np.zeros(len(problem.segments.slice_types), int))
        self.slice_type, self.fits = np.zeros(0, int), np.zeros(0, bool)
        self.rps = self.number = np.zeros((0, len(groups)))
        self.listings: list[tuple[int, Listing]] = []
        self.counted = np.flatnonzero(np.isfinite(self.all.most))
        self.asked_for = np.flatnonzero(members < self.all.least)

    def add(self, slice_type: int, listing: Listing) -> None:
        """Add patterns of a slice type."""
        if len(listing.rps):
            self.listings.append((len(self.slice_type), listing))
            self.slice_type = np.append(self.slice_type, np.full(len(listing.rps), slice_type))
            self.fits = np.append(self.fits, np.ones(len(listing.rps), bool))
            self.rps = np.concatenate([self.rps, listing.rps])
            self.number = np.concatenate([self.number, listing.number])

    def rated(self, at: int) -> RatedPattern:
        """A pattern by its index."""
        first, listing = max((one for one in self.listings if one[0] <= at), key=lambda one: one[0])
        return listing.rated(at - first)

    def relaxed(self, left: Left, counts: Sequence[int] | None = None, begin: Ints | None = None) -> Relaxed | None:
        """The solution of the linear program; None when it has none. Tiers have no limit.

        Parameters
        ----------
        left
            What is to be planned.
        counts
            Numbers of GPUs of each type that are free of charge; further ones cost the price of the dearest tier.
        begin
            Patterns to begin with.
        """
        part = self.part(left)
        taken = np.unique(np.append(part.argmax(axis=0), np.zeros(0, int) if begin is None else begin))
        tiers = self.tiers(counts)
        while True:
            rows = self.rows(taken, left, 1.0, tiers)
            found = solve_linear(rows)
            if found is None:
                return None
            types, slice_types, groups = len(self.problem.pools), len(left.taken), len(left.rps)
            ends = np.cumsum([types, slice_types, groups, len(self.asked_for)])
            _, slices, demand, least, most = np.split(found.duals, ends)
            bonus = np.zeros(groups)
            bonus[self.asked_for] += least
            bonus[self.counted] -= most
            reduced = slices[self.slice_type] - part @ demand - self.number @ bonus
            new = np.setdiff1d(np.flatnonzero(reduced < -SOLVER), taken)
            if not len(new):
                asked = float(found.duals[types:] @ rows.right[types:] - demand.sum() * MISSING)
                per_rps = np.divide(demand, left.rps, out=np.zeros(groups), where=left.rps > 0)
                return Relaxed(found.value, slices, per_rps, bonus, asked, taken, found.x[: len(taken)], reduced)
            best = new[np.argsort(reduced[new], kind="stable")[:MANY]]
            taken = np.union1d(taken, best)

    def integral(self, patterns: Ints, part: float, most: float, seconds: float) -> IntegerSolution:
        """A whole-number solution over some patterns that carries this part of all rates and costs at most ``most``.

        The cost is in multiples of the dearest GPU's price.
        """
        rows = self.rows(patterns, self.all, part, self.tiers(None), limited=True)
        rows = rows._replace(matrix=csr_array(vstack([rows.matrix, csr_array(-rows.cost[None])])),
                             right=np.append(rows.right, -most * (1 + MISSING)))
        return solve_integer(rows, np.ones(len(rows.cost), bool), seconds)

    def part(self, left: Left) -> Floats:
        """(patterns, groups) the part of what is left of each rate that patterns carry."""
        needed = left.rps > 0
        part = np.divide(self.rps, left.rps, out=np.zeros(self.rps.shape), where=needed[None, :])
        return np.minimum(part, 1.0, out=part)

    def tiers(self, counts: Sequence[int] | None) -> list[tuple[int, Tier]]:
        """(type, tier) of every tiers column."""
        pools = self.problem.pools
        if counts is None:
            return [(at, tier) for at, pool in enumerate(pools) for tier in pool.offered]
        return [(at, tier) for at, (pool, many) in enumerate(zip(pools, counts, strict=True))
                for tier in ((0, many), (pool.worth, None))]

    def rows(self, patterns: Ints, left: Left, part: float, tiers: Sequence[tuple[int, Tier]], limited: bool = False
             ) -> Rows:
        """The program over some patterns, for a part of what is left.

        Tiers that cost nothing, and where ``limited`` all of them, are limited to their counts.
        """
        problem, slice_types = self.problem, len(left.taken)
        types = np.arange(len(problem.pools))[:, None]
        of_type = np.repeat(types, [len(pool.partitions) for pool in problem.pools])
        offered = np.concatenate([pool.partitions for pool in problem.pools])
        carried = np.divide(np.minimum(self.rps[patterns], left.rps), left.rps,
                            out=np.zeros((len(patterns), len(left.rps))), where=left.rps > 0)
        number = self.number[patterns].T
        needed = [carried.T, number[self.asked_for], -number[self.counted]]
        of_slice = np.arange(slice_types)[:, None] == self.slice_type[patterns]
        matrix = csr_array(block_array([
            [None, csr_array(-1.0 * (types == of_type)), csr_array(1.0 * (types == [at for at, _ in tiers]))],
            [csr_array(-1.0 * of_slice), csr_array(1.0 * offered.T), None],
            [csr_array(np.vstack(needed)), None, None],
        ]))
        before = len(patterns) + len(offered)
        cost = np.append(np.zeros(before), [price / problem.dearest for _, (price, _) in tiers])
        right = np.concatenate([np.zeros(len(types)), left.taken, part * (left.rps > 0),
                                left.least[self.asked_for], -left.most[self.counted]])
        most = np.full(len(cost), np.inf)
        most[before:] = [np.inf if count is None or not (limited or price == 0) else count
                         for _, (price, count) in tiers]
        return Rows(cost, matrix, right, np.zeros(len(cost)), most)

    def chosen(self, patterns: Ints, x: Floats) -> tuple[list[Ints], Ints]:
        """(partitions,) GPUs by type and the patterns, one by one, of a whole-number solution."""
        whole = np.rint(x).astype(int)
        ends = len(patterns) + np.cumsum([0, *(len(pool.partitions) for pool in self.problem.pools)])
        return [whole[start:end] for start, end in pairwise(ends)], np.repeat(patterns, whole[: len(patterns)])

    def useful(self, found: Relaxed, gap: float) -> Bools:
        """(patterns,) flags those that a plan may hold which costs this much more than the linear program."""
        return self.fits & (found.reduced <= gap)

    def less(self, left: Left, pattern: int) -> Left:
        """What is left when a pattern is taken."""
        taken = left.taken.copy()
        taken[self.slice_type[pattern]] += 1
        rps = np.where(left.rps > self.rps[pattern] * (1 + SOLVER), left.rps - self.rps[pattern], 0.0)
        return Left(rps, np.maximum(left.least - self.number[pattern], 0), left.most - self.number[pattern], taken)

    def price(self, units: float) -> float:
        """A price in multiples of the dearest GPU's."""
        return units / self.problem.dearest if math.isfinite(units) else units
