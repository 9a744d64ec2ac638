"""The RateOracle of slices that closed networks share under random arrivals."""

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np

from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.rates import (
    GENEROUS,
    MOST_PRICED,
    NEAR,
    GroupPrices,
    Listing,
    Member,
    PricedRates,
    RatedPattern,
    RateOracle,
    listing_of,
)
from provision.formulations.pricing.shared_mig.rate_options import RateOptions, rate_options
from provision.formulations.pricing.shared_mig.rate_search import GroupValues, climb, search
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import SliceType
from provision.models.base.arrays import Floats, Ints
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.performance.longest_batches import network_hold_ms

NODES, MORE, HARDEST = 1000, 4, 3
"""The nodes of the quickest search, the factor by which each further effort opens more, and the greatest effort."""
ROOM = 4000
"""The most patterns that are listed at once."""
CLIMBS, SHARING = 6, 3
"""How many times a pattern is improved step by step in one call of pricing, and the replicas with which it begins."""
STARTS = 3
"""From how many points of two groups the listed patterns are improved."""


class NetworkPatterns(RateOracle):
    """The patterns of at least two replicas on slices of one profile.

    Parameters
    ----------
    problem, slice_type, data
        The Problem, the slice type and the networks.
    """

    hardest = HARDEST

    def __init__(self, problem: Problem, slice_type: SliceType, data: FittedNetworks) -> None:
        self.problem, self.rule = problem, problem.instance.shared_rule
        self.options = rate_options(problem.instance, data, slice_type.profile, problem.groups, problem.fills)
        self.budget_ms = np.array([group.slo_ms * problem.instance.policy.part_of_slo for group in problem.groups])
        self.single_rps = problem.single_rps[:, problem.segments.slice_types.index(slice_type)]

    def listed(self) -> Listing:
        """Patterns of each two groups: one carries a part, drawn at random, of what it carries alone, and the other as
        much as it can beside it.
        """
        draw, groups, found = np.random.default_rng(0), len(self.single_rps), list[Ints]()
        points = [np.flatnonzero(self.options.group == group) for group in range(groups)]
        even = 1 / np.maximum(self.single_rps, self.single_rps.max(initial=0.0) / 10)
        for pair in permutations([group for group in range(groups) if len(points[group])], 2):
            per_rps, most_rps = np.zeros(groups), self.options.most_rps.copy()
            per_rps[list(pair)] = even[list(pair)] * [SHARING, 1]
            most_rps[pair[0]] = min(most_rps[pair[0]], draw.random() / even[pair[0]])
            starts = [np.array([draw.choice(points[group]) for group in pair]) for _ in range(STARTS)]
            part = self.options._replace(most_rps=most_rps)
            found += self._climbed(part, GroupValues(per_rps, np.zeros(groups), np.zeros(groups), 0.0), starts)
        return self._listing(found)

    def price(self, prices: GroupPrices, floor: float, effort: int) -> PricedRates:
        """See ``RateOracle.price``."""
        options, values = self._priced(prices)
        found = self._listing(self._climbed(options, values, self._starts(prices)))
        worth = self._worth(options, values, found)
        best = max(floor, float(worth.max(initial=0.0)))
        searched = search(options, values, best, 0 if best > floor else NODES * MORE**effort, 0)
        exact = self._listing([one[:many] for one, many in zip(searched.members, searched.size, strict=True)])
        both = [found.rated(at) for at in np.flatnonzero(worth > floor).tolist()]
        both += [exact.rated(at) for at in range(len(exact.rps))]
        return PricedRates(searched.most * GENEROUS, listing_of(both, len(self.single_rps)))

    def _priced(self, prices: GroupPrices) -> tuple[RateOptions, GroupValues]:
        """The operating points and values at prices. For least cost, the points have the limits of rates."""
        every = np.full(len(prices.per_rps), np.inf)
        if not self.problem.fills:
            return self.options, GroupValues(prices.per_rps, prices.bonus, every, 0.0)
        return (self.options._replace(most_rps=prices.cap_rps, total_rps=prices.cap_rps), GroupValues(
            prices.per_rps, prices.bonus, every if prices.counted is None else prices.counted, 1.0))

    def above(self, prices: GroupPrices, floor: float, effort: int) -> Listing | None:
        """See ``RateOracle.above``."""
        values = self._priced(prices)[1]
        found = search(self.options, values, floor / GENEROUS, NODES * MORE**HARDEST, ROOM)
        return self._listing([one[:many] for one, many in zip(found.members, found.size, strict=True)]
                             ) if found.complete and found.most <= floor * (1 + NEAR) else None

    def _starts(self, prices: GroupPrices) -> Iterator[Ints]:
        """Patterns to improve: none, and some drawn at random."""
        draw, useful = np.random.default_rng(0), np.flatnonzero(prices.per_rps[self.options.group] > 0)
        yield np.zeros(0, int)
        for _ in range(CLIMBS - 1 if len(useful) else 0):
            yield draw.choice(useful, int(draw.integers(1, SHARING + 1)))

    @staticmethod
    def _climbed(options: RateOptions, values: GroupValues, starts: Iterator[Ints] | Sequence[Ints]) -> list[Ints]:
        """The patterns of at least two replicas to which the starts can be improved."""
        found = []
        for start in starts:
            places = np.zeros(options.think_ms.shape[1], int)
            many = min(len(start), len(places))
            places[:many] = start[:many]
            members, size, worth = climb(options, values, places, many) if len(options.group) else (start, 0, 0.0)
            found += [members] if size > 1 and worth > 0 else []
        return found

    @staticmethod
    def _worth(options: RateOptions, values: GroupValues, listing: Listing) -> Floats:
        """(patterns,) the values of patterns."""
        counted = np.minimum(listing.rps, options.total_rps)
        paid = np.where(values.bonus > 0, np.minimum(listing.number, values.counted), listing.number)
        return counted @ values.per_rps + paid @ values.bonus + values.beyond * (listing.rps - counted).sum(axis=1)

    def _listing(self, found: Sequence[Ints]) -> Listing:
        """The Listing of patterns of points: their rates at their exact hold times. Those in which a replica carries
        nothing are left out.
        """
        different = dict.fromkeys(tuple(sorted(one.tolist())) for one in found)
        rated = [self._rated(np.array(one)) for one in different]
        return listing_of([one for one in rated if min(one.rps, default=0.0) > 0], len(self.single_rps))

    def _rated(self, members: Ints) -> RatedPattern:
        """A pattern with the highest rates of its replicas."""
        options = self.options
        processes, group = options.processes[members], options.group[members]
        think_ms = options.think_ms[members, processes.sum() - 1]
        hold_ms = network_hold_ms(think_ms, options.slice_ms[members], options.cycle_ms[members], processes)
        rps = self.rule.capacity_rps(options.batch[members], processes, hold_ms, hold_ms,
                                     self.budget_ms[group] * GENEROUS)
        counted = np.minimum(rps * GENEROUS, options.most_rps[group])
        return RatedPattern(tuple(
            Member(int(options.group[one]), Running(int(options.model[one]), int(options.batch[one]),
                                                    int(options.processes[one]), 1.0))
            for one in members.tolist()), tuple(counted.tolist()))


def network_patterns(problem: Problem, slice_type: SliceType, data: FittedNetworks) -> NetworkPatterns | None:
    """The RateOracle of a slice type.

    It is None under other rules than those for random arrivals, if the slice cannot be shared, and if there are more
    than MOST_PRICED groups.
    """
    profile, mps = slice_type.profile, problem.instance.fleet[slice_type.entry].mps
    if not problem.instance.shared_rule.random_arrivals or profile not in data.profiles or not mps:
        return None
    return NetworkPatterns(problem, slice_type, data) if len(problem.groups) <= MOST_PRICED else None
