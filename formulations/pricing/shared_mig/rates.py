"""The RateOracle of slices that closed networks share.

It is for rules for random arrivals, where batch times are taken with all processes busy beside given neighbours, and
for the objective max_throughput. Patterns are priced by a search (``rate_search``).
"""

from collections.abc import Iterable, Iterator
from itertools import permutations

import numpy as np

from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.rates import (
    GENEROUS,
    MOST_PRICED,
    GroupPrices,
    Listing,
    Member,
    PricedRates,
    RatedPattern,
    RateOracle,
    listing_of,
)
from provision.formulations.pricing.shared_mig.rate_options import RateOptions, rate_options
from provision.formulations.pricing.shared_mig.rate_search import climb, search
from provision.formulations.pricing.shared_mig.schedule import SCHEDULE
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import SliceType
from provision.models.base.arrays import Ints
from provision.models.base.clock import Deadline
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.performance.longest_batches import network_hold_ms


def network_rates(problem: Problem, slice_type: SliceType, data: FittedNetworks, until: Deadline
                  ) -> RateOracle | None:
    """The RateOracle of a slice type, which is made quickly, so that the deadline is not read; None if the slice cannot
    be shared.

    It is None, too, if there are more than MOST_PRICED groups under rules for random arrivals. For least cost it is
    None under other rules: there, rates depend on what is routed.
    """
    entry, random_arrivals = problem.instance.fleet[slice_type.entry], problem.instance.shared_rule.random_arrivals
    if slice_type.profile not in data.profiles or not entry.mps or entry.type.slice_mps_clients(slice_type.profile) < 2:
        return None
    priced = len(problem.groups) <= MOST_PRICED if random_arrivals else problem.fills
    return NetworkPatterns(problem, slice_type, data) if priced else None


class NetworkPatterns(RateOracle):
    """The patterns of at least two replicas on slices of one profile.

    Parameters
    ----------
    problem, slice_type, data
        The Problem, the slice type and the networks.
    """

    hardest = SCHEDULE.hardest

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
            per_rps[list(pair)] = even[list(pair)] * [SCHEDULE.sharing, 1]
            most_rps[pair[0]] = min(most_rps[pair[0]], draw.random() / even[pair[0]])
            starts = [np.array([draw.choice(points[group]) for group in pair]) for _ in range(SCHEDULE.starts)]
            prices = GroupPrices(per_rps, np.zeros(groups), self.options.total_rps, np.zeros(groups))
            found += self._climbed(self.options._replace(most_rps=most_rps, beyond=0.0), prices, starts)
        return listing_of(self._patterns(found), groups)

    def price(self, prices: GroupPrices, floor: float, effort: int) -> PricedRates:
        """See ``RateOracle.price``. For least cost, the operating points have the limits of rates."""
        options, groups = self.options, len(self.single_rps)
        if self.problem.fills:
            options = options._replace(most_rps=prices.cap_rps, total_rps=prices.cap_rps)
        prices = prices._replace(cap_rps=options.total_rps)
        climbed = self._patterns(self._climbed(options, prices, self._starts(prices)))
        worth = prices.of_totals(listing_of(climbed, groups), options.beyond)
        best = max(floor, float(worth.max(initial=0.0)))
        members, most = search(options, prices, best, 0 if best > floor else SCHEDULE.nodes * SCHEDULE.more**effort)
        kept = [climbed[at] for at in np.flatnonzero(worth > floor).tolist()]
        return PricedRates(most * GENEROUS, listing_of(kept + self._patterns([members]), groups))

    def _starts(self, prices: GroupPrices) -> Iterator[Ints]:
        """Patterns to improve: none, and some drawn at random."""
        draw, useful = np.random.default_rng(0), np.flatnonzero(prices.per_rps[self.options.group] > 0)
        yield np.zeros(0, int)
        for _ in range(SCHEDULE.climbs - 1 if len(useful) else 0):
            yield draw.choice(useful, int(draw.integers(1, SCHEDULE.sharing + 1)))

    @staticmethod
    def _climbed(options: RateOptions, prices: GroupPrices, starts: Iterable[Ints]) -> list[Ints]:
        """The patterns of at least two replicas to which the starts can be improved, as points."""
        found = [climb(options, prices, start) for start in starts] if len(options.group) else []
        return [members for members, worth in found if len(members) > 1 and worth > 0]

    def _patterns(self, found: Iterable[Ints]) -> list[RatedPattern]:
        """Different patterns of points with their rates at their exact hold times. Those in which a replica carries
        nothing are left out.
        """
        different = dict.fromkeys(tuple(sorted(members.tolist())) for members in found)
        rated = [self._rated(np.array(members)) for members in different if members]
        return [pattern for pattern in rated if min(pattern.rps) > 0]

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
