"""Patterns that carry rates as columns of the restricted master, for least cost.

    minimise   price of the GPUs
    types      GPUs of all tiers of a type  >=  those in its partitions
    slices     slices of type k in the partitions  >=  patterns on k
    demand     sum over patterns of the fraction of a workload's rate that a pattern carries, at most 1 each  >=  1
    at_least   replicas of a workload  >=  its least number
    at_most    replicas of a workload  <=  its largest number

Rates can be split freely, so no grid of rates is needed. A pattern counts for at most the whole rate of a workload. No
plan needs more than that, and the limit makes the linear program tighter where rates are small.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.linear.highs import IntegerSolution
from provision.formulations.linear.restricted import Columns, RestrictedMaster
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.pricing.listing import undominated
from provision.formulations.pricing.rates import Listing, RatedPattern
from provision.formulations.search.problem import Problem
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import MISSING, SOLVER


class Left(NamedTuple):
    """The remaining demand.

    ``rps`` (groups,) are requests/s, ``least`` and ``most`` (groups,) numbers of replicas. ``taken`` (slice types,) are
    the slices of the patterns that have already been taken.
    """

    rps: Floats
    least: Floats
    most: Floats
    taken: Ints


class Relaxed(NamedTuple):
    """A solution of the linear program, in multiples of the dearest GPU's price.

    ``slices``, ``per_rps`` and ``bonus`` are the prices of a slice, a request/s and a replica, and ``asked`` is the
    total price of the remaining demand. ``patterns`` are the patterns that the solution may use, and ``parts`` their
    values in it. ``reduced`` are the reduced costs of all patterns, infinite for patterns that must not be used.
    """

    value: float
    slices: Floats
    per_rps: Floats
    bonus: Floats
    asked: float
    patterns: Ints
    parts: Floats
    reduced: Floats


class RateColumns:
    """The patterns known so far for one Problem, and the master program over them.

    Columns stand in the order: patterns, partitions, tiers.

    Parameters
    ----------
    problem
        The Problem.

    Attributes
    ----------
    slice_type, rps, number
        (patterns,) the slice type of each pattern; (patterns, groups) the highest requests/s that it may carry, which
        holds for bounds, and its number of replicas.
    fits
        (patterns,) whether a plan may use the pattern; True until the pattern has been found infeasible.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, groups = problem, problem.groups
        members = np.array([len(group.members) for group in groups], float)
        self.all = Left(members * [group.asked_rps for group in groups],
                        members * [group.least for group in groups], members * [group.most for group in groups],
                        np.zeros(len(problem.segments.slice_types), int))
        self.slice_type, self.fits = np.zeros(0, int), np.zeros(0, bool)
        self.rps = self.number = np.zeros((0, len(groups)))
        self.listings: list[tuple[int, Listing]] = []
        self.counted = np.flatnonzero(np.isfinite(self.all.most))
        self.asked_for = np.flatnonzero(members < self.all.least)
        self.master = RestrictedMaster(problem, demand=np.ones(len(groups)), at_least=self.all.least[self.asked_for],
                                       at_most=-self.all.most[self.counted])

    def add(self, slice_type: int, listing: Listing | None, fits: bool = True) -> None:
        """Add a list of patterns of a slice type; None adds nothing. ``fits`` tells whether a plan may use them."""
        if listing is not None and len(listing.rps):
            self.listings.append((len(self.slice_type), listing))
            self.slice_type = np.append(self.slice_type, np.full(len(listing.rps), slice_type))
            self.fits = np.append(self.fits, np.full(len(listing.rps), fits))
            self.rps = np.concatenate([self.rps, listing.rps])
            self.number = np.concatenate([self.number, listing.number])

    def rated(self, at: int) -> RatedPattern:
        """A pattern by its index."""
        first, listing = max((one for one in self.listings if one[0] <= at), key=lambda one: one[0])
        return listing.rated(at - first)

    def relaxed(self, left: Left, counts: Sequence[int] | None = None, begin: Ints | None = None,
                planned: bool = False) -> Relaxed | None:
        """The solution of the linear program; None if it has none. The counts of price tiers are not limits here.

        Parameters
        ----------
        left
            The demand that is to be met.
        counts
            The number of GPUs of each type that are free of charge. Further GPUs cost the price of the dearest tier.
        begin
            The indices of patterns to begin with. Others are added while their reduced costs are negative.
        planned
            Whether only patterns that a plan may use are used.
        """
        part, tiers, right = self.part(left), self.master.tiers(counts, limited=False), self._right(left)
        usable = self.fits | (not planned)
        taken = np.append((part * usable[:, None]).argmax(axis=0), np.zeros(0, int) if begin is None else begin)
        taken = np.unique(taken[usable[taken]])
        while True:
            found = self.master.relaxed([self._patterns(taken, left), self.master.partitions, tiers], right)
            if found is None:
                return None
            duals, bonus = self.master.split(found.duals), np.zeros(len(left.rps))
            bonus[self.asked_for] += duals["at_least"]
            bonus[self.counted] -= duals["at_most"]
            reduced = duals["slices"][self.slice_type] - part @ duals["demand"] - self.number @ bonus
            reduced[~usable] = np.inf
            new = np.setdiff1d(np.flatnonzero(reduced < -SOLVER), taken)
            if not len(new):
                asked = float(found.duals @ right - duals["demand"].sum() * MISSING)
                per_rps = np.divide(duals["demand"], left.rps, out=np.zeros(len(left.rps)), where=left.rps > 0)
                return Relaxed(found.value, duals["slices"], per_rps, bonus, asked, taken, found.x[: len(taken)],
                               reduced)
            best = new[np.argsort(reduced[new], kind="stable")[: SCHEDULE.few]]
            taken = np.union1d(taken, best)

    def worth(self, found: Relaxed, patterns: "RateColumns | Listing") -> Floats:
        """(patterns,) the values of patterns at the prices of a linear program."""
        return np.minimum(patterns.rps, self.all.rps) @ found.per_rps + patterns.number @ found.bonus

    def best(self, found: Relaxed) -> Floats:
        """(slice types,) the highest value of a known pattern at the prices of a linear program."""
        best = np.zeros(len(found.slices))
        np.maximum.at(best, self.slice_type, self.worth(found, self))
        return best

    def of_gpus(self, found: Relaxed) -> Floats:
        """(slice types,) the least reduced cost of a GPU that offers a slice of the type."""
        of_gpu = np.full(len(found.slices), np.inf)
        for pool in self.problem.pools:
            reduced = np.maximum(pool.cost(1) / self.problem.dearest - pool.partitions @ found.slices, 0.0)
            of_gpu = np.minimum(of_gpu, np.where(pool.partitions > 0, reduced[:, None], np.inf).min(axis=0))
        return of_gpu

    def useful(self, found: Relaxed, most: float) -> Ints:
        """The known patterns that a plan of cost at most ``most`` may use, by rising reduced cost. Every pattern of a
        plan adds its reduced cost to the linear program's value. ``most`` is in multiples of the dearest GPU's price.
        """
        over = found.reduced + self.of_gpus(found)[self.slice_type]
        tolerance = SOLVER * (found.value + self.problem.most_gpus)  # the solver's, for each replica
        useful = np.flatnonzero(over <= most - found.value + tolerance)
        return useful[np.argsort(over[useful], kind="stable")]

    def undominated(self, patterns: Ints) -> Ints:
        """The patterns that no other pattern on the same slice type dominates. Raises TooManyError if there are more
        than ``SCHEDULE.most``.
        """
        part, found = self.part(self.all), []
        for slice_type in np.unique(self.slice_type[patterns]):
            here = patterns[self.slice_type[patterns] == slice_type]
            features = np.column_stack([part[here], -self.number[here][:, self.counted],
                                        self.number[here][:, self.asked_for]])
            found.append(here[undominated(features, SCHEDULE.most)])
        return np.concatenate(found)

    def integral(self, patterns: Ints, part: float, most: float, seconds: float) -> IntegerSolution:
        """A whole-number solution over given patterns that carries the fraction ``part`` of all rates and costs at most
        ``most``.

        Costs are in multiples of the dearest GPU's price. ``seconds`` limits the time of the solver.
        """
        sorts = [self._patterns(patterns, self.all), self.master.partitions, self.master.tiers()]
        return self.master.integral(sorts, seconds, self._right(self.all, part), dearest=most)

    def part(self, left: Left) -> Floats:
        """(patterns, groups) the fraction of each group's remaining rate that a pattern carries."""
        return _part(self.rps, left)

    def _right(self, left: Left, part: float = 1.0) -> Floats:
        """The right sides of the rows for a fraction of the remaining demand."""
        return self.master.sides(slices=left.taken, demand=np.where(left.rps > 0, part, 0.0),
                                 at_least=left.least[self.asked_for], at_most=-left.most[self.counted])

    def _patterns(self, patterns: Ints, left: Left) -> Columns:
        """The columns of the patterns with the given indices, for the remaining demand."""
        number = self.number[patterns].T
        of_slice = np.arange(len(left.taken))[:, None] == self.slice_type[patterns]
        return self.master.columns(np.zeros(len(patterns)), slices=-1.0 * of_slice,
                                   demand=_part(self.rps[patterns], left).T, at_least=number[self.asked_for],
                                   at_most=-number[self.counted])._replace(at=patterns)

    def chosen(self, patterns: Ints, x: Floats) -> tuple[list[Ints], Ints]:
        """The GPUs of each pool, (partitions,), and the index of each used pattern, repeated as often as it is used."""
        many, gpus, _ = np.split(np.rint(x).astype(int), np.cumsum([len(patterns), len(self.problem.partitions.entry)]))
        return self.master.gpus(gpus), np.repeat(patterns, many)

    def less(self, left: Left, pattern: int) -> Left:
        """The remaining demand after a pattern is taken."""
        taken = left.taken.copy()
        taken[self.slice_type[pattern]] += 1
        rps = np.where(left.rps > self.rps[pattern] * (1 + SOLVER), left.rps - self.rps[pattern], 0.0)
        return Left(rps, np.maximum(left.least - self.number[pattern], 0), left.most - self.number[pattern], taken)


def _part(rps: Floats, left: Left) -> Floats:
    """(patterns, groups) requests/s as fractions of the remaining rates, at most 1."""
    part = np.divide(rps, left.rps, out=np.zeros(rps.shape), where=left.rps > 0)
    return np.minimum(part, 1.0, out=part)
