"""The RateOracle of whole GPUs that replicas share under interference. Small patterns are listed; all are priced."""

from collections.abc import Sequence

import numpy as np

from provision.formulations.pricing.mps.rate_lists import NONE, patterns_of_set, small_patterns
from provision.formulations.pricing.mps.rate_points import Prices, rate_points, together_rps
from provision.formulations.pricing.mps.rate_search import search
from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.rates import (
    MOST_NAMED,
    NEAR,
    GroupPrices,
    Listing,
    Member,
    PricedRates,
    RatedPattern,
    RateOracle,
)
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import SliceType
from provision.models.base.arrays import Ints
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.sm_shares import shares_of

SMALL, LISTED = 3, 40_000
"""The most replicas of the patterns that are listed, and the approximate number of listed patterns of each size."""
DIVISIONS = 1000
"""The approximate number of divisions of the units among the replicas of one set."""
NODES, MORE, VISITS, ROOM = 300, 3, 1000, 5000
"""Limits of a search: the nodes of the quickest search, the factor by which each further effort opens more nodes, the
visits of the depth-first search in each node, and the patterns that are returned.
"""
PATIENT = 20
"""The factor by which each further effort allows more visits if all patterns are wanted: where a node has very many of
them, its halves have hardly fewer.
"""
HARDEST = 4
"""The greatest effort. A search four times as long seldom proves more."""
UNITS = 10**6
"""The price of a GPU in the whole-number units in which patterns are priced. For the most throughput, prices are in
requests/s, and this is the floor of their values.
"""


class InterferencePatterns(RateOracle):
    """The patterns of whole GPUs of one type.

    Parameters
    ----------
    problem, data
        The Problem, and the performance data of the GPU type.
    clients
        The most replicas on one GPU.
    """

    hardest = HARDEST

    def __init__(self, problem: Problem, data: PerformanceFile, clients: int) -> None:
        self.points = rate_points(problem.instance, data, problem.groups, clients)
        self.shares, self.groups = shares_of(self.points.gpu.unit_share), len(problem.groups)

    def listed(self) -> Listing:
        """All patterns of one replica, and patterns of up to SMALL replicas with large batches."""
        if not len(self.points.units):
            return self._listing(np.zeros((0, 1), int))
        return self._listing(small_patterns(self.points, SMALL, LISTED).members)

    def of_set(self, groups: Sequence[int]) -> Listing | None:
        """See ``RateOracle.of_set``."""
        return self._listing(patterns_of_set(self.points, groups, DIVISIONS).members)

    def price(self, prices: GroupPrices, floor: float, effort: int) -> PricedRates:
        """See ``RateOracle.price``."""
        return self._searched(prices, floor, NODES * MORE**effort, every=False)

    def above(self, prices: GroupPrices, floor: float, effort: int) -> Listing | None:
        """See ``RateOracle.above``."""
        found = self._searched(prices, floor, NODES, every=True, visits=VISITS * PATIENT**effort)
        return None if found.most > floor * (1 + NEAR) else found.patterns

    def _searched(self, prices: GroupPrices, floor: float, nodes: int, every: bool, visits: int = VISITS
                  ) -> PricedRates:
        """The result of pricing; whether ``every`` pattern above the floor is wanted, or the best of each group."""
        units = UNITS / max(floor, 1.0)
        counted = np.full(self.groups, self.points.limit) if prices.counted is None else prices.counted
        whole = Prices(prices.per_rps * units, prices.bonus * units, prices.cap_rps, units,
                       np.minimum(counted, self.points.limit).astype(int))
        found = search(self.points, whole, max(int(floor * units), 0), nodes, visits, ROOM, every)
        members = np.where(np.arange(found.members.shape[1]) < found.size[:, None], found.members, NONE)
        return PricedRates(found.most / units, self._listing(np.unique(members, axis=0) if every else members))

    def _listing(self, members: Ints) -> Listing:
        """The Listing of patterns that are given as (patterns, places) operating points."""
        points, there = self.points, members != NONE
        rps, group = together_rps(points, np.ascontiguousarray(members)), points.group[members]
        total, number = np.zeros((2, len(members), self.groups))
        row = np.broadcast_to(np.arange(len(members))[:, None], members.shape)
        np.add.at(total, (row[there], group[there]), rps[there])
        np.add.at(number, (row[there], group[there]), 1.0)

        def rated(at: int) -> RatedPattern:
            chosen = members[at][there[at]]
            return RatedPattern(tuple(self._member(one) for one in chosen.tolist()), tuple(rps[at][there[at]].tolist()))

        return Listing(total, number, there.sum(axis=1).astype(float), rated)

    def _member(self, at: int) -> Member:
        """The replica at an operating point, given by its index."""
        points = self.points
        return Member(int(points.group[at]), Running(int(points.model[at]), int(points.batch[at]), 1,
                                                     float(self.shares[points.units[at] - 1])))


def interference_patterns(problem: Problem, slice_type: SliceType, data: PerformanceFile
                          ) -> InterferencePatterns | None:
    """The patterns of a slice type.

    They are None if the slice is not a whole GPU, if there are more than MOST_NAMED workloads, or if a group has
    several workloads. For the most throughput, a group may have several.
    """
    apart = problem.fills or all(len(group.members) == 1 for group in problem.groups)
    if slice_type.profile != WHOLE or not apart or len(problem.groups) > MOST_NAMED:
        return None
    return whole_gpu_patterns(problem, slice_type, data)


def whole_gpu_patterns(problem: Problem, slice_type: SliceType, data: PerformanceFile) -> InterferencePatterns:
    """The patterns of whole GPUs, with at most as many replicas as MPS allows clients."""
    entry = problem.instance.fleet[slice_type.entry]
    return InterferencePatterns(problem, data, entry.type.slice_mps_clients(WHOLE) if entry.mps else 1)
