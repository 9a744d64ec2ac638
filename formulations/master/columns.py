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
from provision.formulations.pricing.rates import Listing, RatedPattern, undominated
from provision.formulations.search.problem import Problem
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import MISSING, SOLVER


class Relaxed(NamedTuple):
    """A solution of the linear program, in multiples of the dearest GPU's price.

    ``slices``, ``per_rps`` and ``bonus`` are the prices of a slice, a request/s and a replica, and ``asked`` is the
    total price of the demand. ``reduced`` are the reduced costs of all patterns.
    """

    value: float
    slices: Floats
    per_rps: Floats
    bonus: Floats
    asked: float
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
    asked_rps, least, most
        (groups,) the requests/s that are asked for, and the least and the largest numbers of replicas.
    slice_type, part, number
        (patterns,) the slice type of each pattern; (patterns, groups) the highest fraction of each group's rate that it
        may carry, which holds for bounds, and its number of replicas.
    fits
        (patterns,) whether a plan may use the pattern; True until the pattern has been found infeasible.
    met
        The indices of the patterns that solutions of the linear program used.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, groups = problem, problem.groups
        members = np.array([len(group.members) for group in groups], float)
        self.asked_rps = members * [group.asked_rps for group in groups]
        self.least, self.most = members * [group.least for group in groups], members * [group.most for group in groups]
        self.slice_type, self.fits = np.zeros(0, int), np.zeros(0, bool)
        self.part = self.number = np.zeros((0, len(groups)))
        self.met = np.zeros(0, int)
        self.listings: list[tuple[int, Listing]] = []
        self.counted = np.flatnonzero(np.isfinite(self.most))
        self.asked_for = np.flatnonzero(members < self.least)
        self.master = RestrictedMaster(problem, demand=np.where(self.asked_rps > 0, 1.0, 0.0),
                                       at_least=self.least[self.asked_for], at_most=-self.most[self.counted])

    def add(self, slice_type: int, listing: Listing | None, together: bool = True) -> None:
        """Add a list of patterns of a slice type; None adds nothing. ``together`` is that of their oracle."""
        if listing is not None and len(listing.rps):
            self.listings.append((len(self.slice_type), listing))
            self.slice_type = np.append(self.slice_type, np.full(len(listing.rps), slice_type))
            self.fits = np.append(self.fits, np.ones(len(listing.rps), bool))
            self.part = np.concatenate([self.part, self.parts(listing, together)])
            self.number = np.concatenate([self.number, listing.number])

    def rated(self, at: int) -> RatedPattern:
        """A pattern by its index."""
        first, listing = max((one for one in self.listings if one[0] <= at), key=lambda one: one[0])
        return listing.rated(at - first)

    def parts(self, listing: Listing, together: bool) -> Floats:
        """(patterns, groups) the fractions of the groups' rates that the patterns of a list carry: at most 1, or at
        most 1 for each replica unless ``together``.
        """
        parts = np.divide(listing.rps, self.asked_rps, out=np.zeros(listing.rps.shape), where=self.asked_rps > 0)
        return np.minimum(parts, 1.0, out=parts) if together else parts

    def relaxed(self, counts: Sequence[int] | None = None) -> Relaxed | None:
        """The solution of the linear program over all known patterns; None if it has none.

        It begins with the patterns that earlier solutions used. Others are added while their reduced costs are
        negative. ``counts`` are the numbers of GPUs of each type that are free of charge; None for none. Further GPUs
        cost the price of the dearest tier.
        """
        if not len(self.slice_type):
            return None
        tiers, right = self.master.tiers(counts), self.master.right
        taken = np.unique(np.append(self.part.argmax(axis=0), self.met))
        while True:
            found = self.master.relaxed([self._patterns(taken), self.master.partitions, tiers])
            if found is None:
                return None
            duals, bonus = self.master.split(found.duals), np.zeros(len(self.asked_rps))
            bonus[self.asked_for] += duals["at_least"]
            bonus[self.counted] -= duals["at_most"]
            reduced = duals["slices"][self.slice_type] - self.part @ duals["demand"] - self.number @ bonus
            new = np.setdiff1d(np.flatnonzero(reduced < -SOLVER), taken)
            if not len(new):
                asked = float(found.duals @ right - duals["demand"].sum() * MISSING)
                per_rps = np.divide(duals["demand"], self.asked_rps, out=np.zeros(len(bonus)),
                                    where=self.asked_rps > 0)
                self.met = np.union1d(self.met, taken[found.x[: len(taken)] > 0])
                return Relaxed(found.value, duals["slices"], per_rps, bonus, asked, reduced)
            best = new[np.argsort(reduced[new], kind="stable")[: SCHEDULE.few]]
            taken = np.union1d(taken, best)

    def worth(self, found: Relaxed, patterns: Listing, together: bool) -> Floats:
        """(patterns,) the values of patterns at the prices of a linear program."""
        return self.parts(patterns, together) @ (found.per_rps * self.asked_rps) + patterns.number @ found.bonus

    def best(self, found: Relaxed) -> Floats:
        """(slice types,) the highest value of a known pattern at the prices of a linear program."""
        best, worth = np.zeros(len(found.slices)), self.part @ (found.per_rps * self.asked_rps)
        np.maximum.at(best, self.slice_type, worth + self.number @ found.bonus)
        return best

    def of_gpus(self, found: Relaxed) -> Floats:
        """(slice types,) the least reduced cost of a GPU that offers a slice of the type."""
        of_gpu = np.full(len(found.slices), np.inf)
        for pool in self.problem.pools:
            reduced = np.maximum(pool.cost(1) / self.problem.dearest - pool.partitions @ found.slices, 0.0)
            of_gpu = np.minimum(of_gpu, np.where(pool.partitions > 0, reduced[:, None], np.inf).min(axis=0))
        return of_gpu

    def useful(self, found: Relaxed, most: float) -> Ints:
        """The known patterns that a plan of cost at most ``most`` may use. The cost, in multiples of the dearest GPU's
        price, is at least the linear program's value plus the reduced costs of the patterns. Those of the least reduced
        cost come first; of equal ones, those that carry most.
        """
        over = found.reduced + self.of_gpus(found)[self.slice_type]
        tolerance = SOLVER * (found.value + self.problem.most_gpus)  # the solver's, for each replica
        useful = np.flatnonzero(over <= most - found.value + tolerance)
        return useful[np.lexsort((-self.part[useful].sum(axis=1), np.rint(over[useful] / tolerance)))]

    def undominated(self, patterns: Ints) -> Ints:
        """The patterns that no other pattern on the same slice type dominates. Raises TooManyError if there are more
        than ``SCHEDULE.most``.
        """
        found = []
        for slice_type in np.unique(self.slice_type[patterns]):
            here = patterns[self.slice_type[patterns] == slice_type]
            features = np.column_stack([self.part[here], -self.number[here][:, self.counted],
                                        self.number[here][:, self.asked_for]])
            found.append(here[undominated(features, SCHEDULE.most)])
        return np.concatenate(found)

    def integral(self, patterns: Ints, part: float, most: float, seconds: float) -> IntegerSolution:
        """A whole-number solution over given patterns that carries the fraction ``part`` of all rates and costs at most
        ``most``.

        Costs are in multiples of the dearest GPU's price. ``seconds`` limits the time of the solver.
        """
        sorts = [self._patterns(patterns), self.master.partitions, self.master.tiers()]
        right = self.master.sides(demand=np.where(self.asked_rps > 0, part, 0.0))
        return self.master.integral(sorts, seconds, right, dearest=most)

    def _patterns(self, patterns: Ints) -> Columns:
        """The columns of the patterns with the given indices."""
        number = self.number[patterns].T
        of_slice = np.arange(len(self.problem.segments.slice_types))[:, None] == self.slice_type[patterns]
        return self.master.columns(np.zeros(len(patterns)), slices=-1.0 * of_slice,
                                   demand=self.part[patterns].T, at_least=number[self.asked_for],
                                   at_most=-number[self.counted])

    def chosen(self, patterns: Ints, x: Floats) -> tuple[list[Ints], Ints]:
        """The GPUs of each pool, (partitions,), and the index of each used pattern, repeated as often as it is used."""
        many, gpus, _ = np.split(np.rint(x).astype(int), np.cumsum([len(patterns), len(self.problem.partitions.entry)]))
        return self.master.gpus(gpus), np.repeat(patterns, many)
