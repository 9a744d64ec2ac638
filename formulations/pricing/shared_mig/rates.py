"""The RateOracles of slices that closed networks share.

Under rules for random arrivals, batch times are taken with all processes busy beside given neighbours, and patterns are
priced by a search (``rate_search``).

For the objective max_throughput under other rules, a batch takes Z + P S, with think time Z, slice time S and P
processes on the slice. So the rate of a replica depends only on P and on its own operating point, and for each P the
best pattern is a knapsack over processes. Memory is left out: the performance models refuse patterns that need too
much.
"""

from collections.abc import Iterable, Iterator, Sequence
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
from provision.formulations.pricing.schedule import SCHEDULE as PRICING
from provision.formulations.pricing.shared_mig.rate_options import RateOptions, rate_options
from provision.formulations.pricing.shared_mig.rate_search import climb, search
from provision.formulations.pricing.shared_mig.schedule import SCHEDULE
from provision.formulations.search.problem import Group, Problem
from provision.formulations.search.segments import SliceType
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import Deadline
from provision.models.performance.closed_network import work_ms_array
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.performance.longest_batches import network_hold_ms
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry


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
    if problem.fills and not random_arrivals:
        return NetworkCapacities(problem.instance, entry, slice_type.profile, data, problem.groups)
    few = random_arrivals and len(problem.groups) <= MOST_PRICED
    return NetworkPatterns(problem, slice_type, data) if few else None


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


class NetworkCapacities(RateOracle):
    """The patterns of at least two processes on slices of one profile.

    Parameters
    ----------
    instance, entry, profile, data
        The problem, the fleet entry of the GPUs, the slices' profile, and the networks.
    groups
        The problem's groups.

    Attributes
    ----------
    rps
        (levels, groups, processes from 1) the highest requests/s of a replica; level 0 has two processes on the slice.
    model, batch
        The model (an index into the models of the group) and the batch size with which the replica carries it.
    """

    together = False

    def __init__(self, instance: Instance, entry: FleetEntry, profile: str, data: FittedNetworks,
                 groups: Sequence[Group]) -> None:
        memory_gib = entry.type.slice_memory_gib(profile) * GENEROUS
        least_gib = min(float(one.coefficients.memory_gib(1, 1)) for one in data.models.values())
        clients = max(min(entry.type.slice_mps_clients(profile), int(memory_gib / least_gib)), 1)
        levels, processes = np.arange(2, clients + 1)[:, None, None], np.arange(1, clients + 1)[:, None]
        shape = clients - 1, len(groups), clients
        self.rps, self.model, self.batch = np.zeros(shape), np.zeros(shape, int), np.zeros(shape, int)
        for at, group in enumerate(groups):
            budget_ms = group.slo_ms * instance.policy.part_of_slo * GENEROUS
            for model, name in enumerate(group.models):
                if name not in data.models:
                    continue
                network = data.models[name].coefficients
                batch = np.array([size for size in data.batches if size <= network.max_batch])
                think_ms, slice_ms = work_ms_array(network, batch, levels, entry.type.slice_compute(profile))
                hold_ms = think_ms + levels * slice_ms
                rps = instance.shared_rule.capacity_rps(batch, processes, hold_ms, hold_ms, budget_ms)
                fits = (network.memory_gib(batch, processes) <= memory_gib) & (processes <= network.max_processes)
                rps = np.where(fits & (processes <= levels), rps, 0.0) * GENEROUS
                better = rps.max(axis=2) > self.rps[:, at]
                self.rps[:, at] = np.maximum(self.rps[:, at], rps.max(axis=2))
                self.model[:, at][better], self.batch[:, at][better] = model, batch[rps.argmax(axis=2)][better]

    def price(self, prices: GroupPrices, floor: float, effort: int) -> PricedRates:
        """See ``RateOracle.price``."""
        each = prices.of(self.rps.swapaxes(0, 1))
        group, best = each.argmax(axis=0), each.max(axis=0, initial=-np.inf)
        totals, taken = _knapsacks(best)
        most = totals[np.arange(len(totals)), np.arange(2, len(totals) + 2)]
        first = np.argsort(-most, kind="stable")[:PRICING.tried].tolist()
        tried = [level for level in first if most[level] > max(floor, 0.0)]
        found = [one for level in tried for one in self._rated(level, group[level], taken[level], each[:, level],
                                                               float(most[level]) - max(floor, 0.0))]
        return PricedRates(float(most.max(initial=0.0)), listing_of(list(dict.fromkeys(found)), len(prices.per_rps)))

    def _rated(self, level: int, group: Ints, taken: Ints, values: Floats, spare: float
               ) -> Iterator[RatedPattern]:
        """Yield the best pattern of a level; then those in which one replica is of another group, one of the
        ``SCHEDULE.mixed`` best there, if they lose less than ``spare``. Plans need such patterns, too.

        ``group`` (processes,) is the best group of a replica, ``taken`` a row of ``_knapsacks``, and ``values``
        (groups, processes) are the values of replicas.
        """
        sizes, left = list[int](), level + 2
        while left:
            size = int(taken[left])
            sizes += [size] * (size > 0)
            left -= size or 1
        groups = [int(group[size - 1]) for size in sizes]
        yield self._pattern(level, groups, sizes)
        for at, size in enumerate(sizes):
            for other in np.argsort(-values[:, size - 1], kind="stable")[:SCHEDULE.mixed].tolist():
                if other != groups[at] and values[groups[at], size - 1] - values[other, size - 1] < spare:
                    yield self._pattern(level, [*groups[:at], other, *groups[at + 1:]], sizes)

    def _pattern(self, level: int, groups: Sequence[int], sizes: Sequence[int]) -> RatedPattern:
        """The pattern of replicas of some groups with these numbers of processes."""
        places = [(level, group, size - 1) for group, size in zip(groups, sizes, strict=True)]
        members = [Member(at[1], Running(int(self.model[at]), int(self.batch[at]), at[2] + 1, 1.0)) for at in places]
        return RatedPattern(tuple(members), tuple(float(self.rps[at]) for at in places))


def _knapsacks(values: Floats) -> tuple[Floats, Ints]:
    """Two arrays (levels, processes from 0): the highest value of a pattern with at most so many processes, and the
    processes of the replica that was added last (0 for none). ``values`` (levels, processes from 1) are those of
    replicas.
    """
    levels, most = values.shape
    total, taken = np.zeros((levels, most + 1)), np.zeros((levels, most + 1), int)
    for used in range(1, most + 1):
        added = total[:, used - 1::-1] + values[:, :used]
        gained = np.concatenate([total[:, [used - 1]], added], axis=1)
        taken[:, used], total[:, used] = gained.argmax(axis=1), gained.max(axis=1)
    return total, taken
