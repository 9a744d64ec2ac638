"""The way in which replicas share whole GPUs under interference (iGniter's model, TPDS 2022): what greedy fills GPUs
with, and a RateOracle. Of the patterns that carry rates, small ones are listed; all are priced.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE, feasible_sets, runs_of
from provision.formulations.pricing.mps.offers import RISE, PlaceValues, choices_of, padded
from provision.formulations.pricing.mps.pricing import best_patterns
from provision.formulations.pricing.mps.rate_points import MOST_RPS, rate_points, small_patterns, together_rps
from provision.formulations.pricing.mps.tables import Demand, least_units, running_at, tables_of
from provision.formulations.pricing.oracle import Setting, WayOfSharing, role_ways
from provision.formulations.pricing.rates import (
    GroupPrices,
    Listing,
    Member,
    Members,
    PricedRates,
    RatedPattern,
    RateOracle,
)
from provision.formulations.pricing.schedule import SCHEDULE
from provision.formulations.search.problem import Group, Problem, Role, Shareable
from provision.formulations.search.segments import SliceType
from provision.models.base.arrays import Ints
from provision.models.base.clock import Deadline
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.catalogue import PerformanceFile
from provision.models.problem.instance import Instance

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
    """

    hardest = SCHEDULE.hardest

    def __init__(self, problem: Problem, data: PerformanceFile) -> None:
        self.problem, self.data = problem, data
        self.most_rps = math.ceil(problem.single_rps.max(initial=0.0)) + 1
        self.points = rate_points(problem.instance, data, problem.groups)
        self.groups = len(problem.groups)
        self.choices = choices_of(self.points, np.arange(self.groups), self.points.groups.copies)

    def listed(self) -> Listing:
        """Patterns of up to SCHEDULE.small replicas with large batches, which use all units together."""
        if not len(self.points.at):
            return self._listing(np.zeros((0, 1), int))
        return self._listing(small_patterns(self.points, SCHEDULE.small, SCHEDULE.divided))

    def price(self, prices: GroupPrices, floor: float, effort: int) -> PricedRates:
        """See ``RateOracle.price``."""
        units = UNITS / max(floor, 1.0)
        longer = SCHEDULE.quick._replace(nodes=SCHEDULE.quick.nodes * SCHEDULE.more**effort)
        members, _, most = best_patterns(self.points, self.choices, self._values(
            prices, units, self.points.groups.copies), max(int(floor * units), 0), longer)
        return PricedRates(most / units, self._listing(members))

    def _values(self, prices: GroupPrices, units: float, copies: Ints) -> PlaceValues:
        """The values of places at some prices times ``units``; a pattern has at most ``copies`` of a group's replicas.

        All requests/s of a group up to its cap are together worth at most the price of the cap. So are the bonuses, if
        only some replicas have one.
        """
        limits, most = self.points.groups, self.points.most
        counts_rps = np.minimum(prices.cap_rps, limits.total_rps)
        endless = counts_rps >= MOST_RPS
        further = np.where(endless, prices.per_rps, np.where(prices.cap_rps < limits.total_rps, 1.0, 0.0))
        counts_rps[endless] = 0.0
        number = np.minimum(prices.counted, copies)
        each = np.where((prices.bonus < 0) | (number >= most), prices.bonus, 0.0)
        rps = padded([np.unique([0.0, least * (1 - RISE), least, min(counts, most), most]) for least, counts, most
                      in zip(limits.least_rps, counts_rps, limits.most_rps, strict=True)])
        value = (further * rps.T + (prices.per_rps - further) * np.minimum(rps.T, counts_rps) + prices.bonus).T
        value = np.where(rps < limits.least_rps[:, None], np.minimum(value, 0.0), value)
        beside = (further * rps.T + each).T
        together = (prices.per_rps - further) * counts_rps + np.where(each == prices.bonus, 0.0, prices.bonus * number)
        return PlaceValues(rps, value * units, np.ascontiguousarray(beside * units), together * units)

    def every(self, until: Deadline) -> list[tuple[int, ...]] | None:
        """All sets of replicas that can share a GPU, each as its groups in ascending order; see ``feasible_sets``.

        None if each workload may have several replicas, or if the objective is not throughput.
        """
        problem = self.problem
        if not (problem.fills and problem.single):
            return None
        demands = _demands_of(problem.instance, problem.groups)
        return feasible_sets(tables_of(self.data, problem.instance.shared_rule, demands),
                             [len(one.members) for one in problem.groups], until)

    def best(self, groups: tuple[int, ...], effort: int) -> tuple[float, Members | None]:
        """An upper bound on the total requests/s of a set, and the best pattern found (None if none was found).

        Each replica of the set has a bonus above all that its replicas can carry together. So only patterns with all of
        them are worth more than the floor.

        Parameters
        ----------
        groups
            The groups of the replicas, in ascending order.
        effort
            0 for a quick bound; higher numbers search longer.
        """
        points, number = self.points, np.bincount(groups, minlength=self.groups)
        few = points._replace(most=min(len(groups), points.most))
        among = np.flatnonzero(np.isin(points.at.group, groups))
        each, bonus, endless = np.ones(self.groups), self.most_rps * len(groups), np.full(self.groups, np.inf)
        floor, quick = bonus * len(groups) * UNITS, SCHEDULE.quick
        values = self._values(GroupPrices(each, each * bonus, endless, endless), UNITS, number)
        members, _, most = best_patterns(few, choices_of(few, np.arange(self.groups), number, among), values, floor,
                              quick._replace(nodes=quick.nodes if effort else 2 * len(groups),
                                             visits=quick.visits * SCHEDULE.patient**effort))
        listing = self._listing(members)
        best = int(listing.rps.sum(axis=1).argmax()) if len(listing.rps) else None
        return (most - floor) / UNITS, None if best is None else listing.rated(best).members

    def _listing(self, members: Ints) -> Listing:
        """The Listing of patterns that are given as (patterns, places) operating points."""
        points, there = self.points, members != NONE
        rps, group = together_rps(points, np.ascontiguousarray(members)), points.at.group[members]
        total, number = np.zeros((2, len(members), self.groups))
        row = np.broadcast_to(np.arange(len(members))[:, None], members.shape)
        np.add.at(total, (row[there], group[there]), rps[there])
        np.add.at(number, (row[there], group[there]), 1.0)

        def rated(at: int) -> RatedPattern:
            order = np.argsort(members[at][there[at]])
            chosen = [points.at[one] for one in members[at][there[at]][order]]
            members_at = tuple(Member(int(one.group), running_at(points.gpu, one)) for one in chosen)
            return RatedPattern(members_at, tuple(rps[at][there[at]][order].tolist()))

        return Listing(total, number, there.sum(axis=1).astype(float), rated)


def interference_rates(problem: Problem, slice_type: SliceType, data: PerformanceFile, until: Deadline
                       ) -> InterferencePatterns | None:
    """The RateOracle of a slice type, which is made quickly, so that the deadline is not read.

    It is None if the slice is not a whole GPU.
    """
    return InterferencePatterns(problem, data) if slice_type.profile == WHOLE else None


def interference_settings(problem: Problem, shared: Shareable, until: Deadline) -> list[Setting]:
    """The setting of a whole GPU, with a way for every role that the GPU can serve; an empty list for other slices, and
    without roles. Raises TimeIsUpError at the deadline.
    """
    if problem.segments.slice_types[shared.slice_type].profile != WHOLE or not problem.roles:
        return []
    tables = tables_of(shared.data, problem.instance.shared_rule, _demands_of(problem.instance, problem.roles),
                       until=until)
    units = least_units(tables)
    shares = {at: float(units[at]) / tables.limit for at in np.flatnonzero(units <= tables.limit).tolist()}
    return [Setting(role_ways(problem, shares), processes=tables.most, points=tables, running=partial(runs_of, tables))]


def _demands_of(instance: Instance, those: Sequence[Role] | Sequence[Group]) -> list[Demand]:
    """The models, the latency budget (ms) and the rate of each role or group, as PointTables need them."""
    return [(one.models, one.slo_ms * instance.policy.part_of_slo, one.rate_rps) for one in those]


oracle = WayOfSharing(rates=interference_rates, settings=interference_settings)
"""The way of sharing: whole GPUs under MPS."""
