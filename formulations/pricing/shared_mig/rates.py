"""The RateOracle of slices that closed networks share.

It is for rules for random arrivals, where batch times are taken with all processes busy beside given neighbours, and
for the objective max_throughput. Patterns are priced by a search (``rate_search``).
"""

import numpy as np

from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.rates import (
    GENEROUS,
    MOST_PRICED,
    GroupPrices,
    Member,
    PricedRates,
    RatedPattern,
    RateOracle,
    listing_of,
)
from provision.formulations.pricing.shared_mig.rate_options import rate_options
from provision.formulations.pricing.shared_mig.rate_search import search
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

    def price(self, prices: GroupPrices, floor: float, effort: int) -> PricedRates:
        """See ``RateOracle.price``. For least cost, the operating points have the limits of rates."""
        options = self.options
        if self.problem.fills:
            options = options._replace(most_rps=prices.cap_rps, total_rps=prices.cap_rps)
        prices = prices._replace(cap_rps=options.total_rps)
        members, most = search(options, prices, max(floor, 0.0), SCHEDULE.nodes * SCHEDULE.more**effort)
        rated = self._rated(members) if len(members) else None
        found = [] if rated is None or min(rated.rps) <= 0 else [rated]
        return PricedRates(most * GENEROUS, listing_of(found, len(prices.per_rps)))

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
