"""The pattern oracle of slices that replicas share at routed rates (closed networks).

Patterns are priced as knapsacks over processes, utilisation and memory, at every level of sharing. There are two sets
of levels. Patterns at the levels for plans are feasible. The levels for bounds cover all patterns.

Greedy methods fill such slices with ways of known utilisation and memory (``Setting``). Under random arrivals, patterns
carry rates (RateOracle).
"""

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.knapsacks import Levels, pattern_at, worth_of
from provision.formulations.pricing.oracle import Pattern, Priced, Running, WayOfSharing
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
from provision.formulations.pricing.settings import UNLIMITED, Setting, Way
from provision.formulations.pricing.shared_mig.capacities import NetworkCapacities
from provision.formulations.pricing.shared_mig.levels import bounded_levels, planned_levels, searched_levels
from provision.formulations.pricing.shared_mig.points import choices_of
from provision.formulations.pricing.shared_mig.rate_options import RateOptions, rate_options
from provision.formulations.pricing.shared_mig.rate_search import GroupValues, climb, search
from provision.formulations.pricing.shared_mig.run_options import ways_of
from provision.formulations.pricing.shared_mig.running import Runner
from provision.formulations.pricing.shared_mig.schedule import SCHEDULE
from provision.formulations.search.problem import Group, Problem, Shareable
from provision.formulations.search.roles import Role
from provision.formulations.search.segments import SliceType
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import SINGLE, TOLERANCE
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.performance.longest_batches import network_hold_ms
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry

MARGIN = 1 - TOLERANCE
"""The part of their capacity for which slices and processes are planned; the rest leaves room for rounding."""


def network_settings(problem: Problem, shared: Shareable, until: Deadline) -> Iterator[Setting]:
    """Yield a setting for every level of a slice type that at least two workloads can share, by the networks of one
    file. Raises TimeIsUpError at the deadline.
    """
    slice_type = problem.segments.slice_types[shared.slice_type]
    entry, data = problem.instance.fleet[slice_type.entry], shared.data
    if not isinstance(data, FittedNetworks) or slice_type.profile not in data.profiles:
        return
    clients = entry.type.slice_mps_clients(slice_type.profile)
    levels = searched_levels(clients, problem.instance.shared_rule.random_arrivals)
    found = list(_ways(problem, shared, data, clients))
    until.check()
    for number, level in enumerate(levels):
        ways = [way for at, way in found if at == number]
        if sum(len(problem.groups[at].members) for at in {way.group for way in ways}) > 1:
            yield Setting(ways, level.use * MARGIN, level.processes,
                          entry.type.slice_memory_gib(slice_type.profile) * MARGIN, workloads=2)


def _ways(problem: Problem, shared: Shareable, data: FittedNetworks, clients: int) -> Iterator[tuple[int, Way]]:
    """Yield the ways at all levels, each with the index of its level; models that an earlier file describes have none.
    """
    instance, slice_type = problem.instance, problem.segments.slice_types[shared.slice_type]
    entry = instance.fleet[slice_type.entry]
    levels = searched_levels(clients, instance.shared_rule.random_arrivals)
    before = [one.data for one in problem.shareable if one.slice_type == shared.slice_type]
    known = {model for file in before[: before.index(data)] for model in file.models}
    asked: dict[tuple[str, bool], list[int]] = {}
    for at, group in enumerate(problem.groups):
        workload = instance.workloads[group.members[0]]
        for name in () if workload.tokens else workload.models:
            if name in data.models and name not in known:
                asked.setdefault((name, _is_counted(instance, group)), []).append(at)
    for (name, counted), groups in asked.items():
        network = data.models[name].coefficients
        most = min(network.max_processes, clients)
        workloads = [instance.workloads[problem.groups[at].members[0]] for at in groups]
        choices = choices_of(instance, workloads, network, data.batches, entry, slice_type.profile, levels,
                             most if counted else 1)
        for at, workload, several in zip(groups, workloads, choices, strict=True):
            model = workload.models.index(name)
            for one in several:
                yield one.level, Way(
                    at, Running(model, one.batch, one.processes, 1.0), 0, one.least_rps, one.most_rps * MARGIN,
                    one.busy, one.memory_gib, UNLIMITED if counted else most, counted)


def _is_counted(instance: Instance, group: Group) -> bool:
    """Whether the number of replicas of a workload, or the number of processes of each replica, matters."""
    one = instance.workloads[group.members[0]]
    return one.min_replicas > 1 or one.max_replicas is not None or instance.shared_rule.random_arrivals


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
            part = self.options._replace(most_rps=most_rps)
            found += self._climbed(part, GroupValues(per_rps, np.zeros(groups), np.zeros(groups), 0.0), starts)
        return self._listing(found)

    def price(self, prices: GroupPrices, floor: float, effort: int) -> PricedRates:
        """See ``RateOracle.price``."""
        options, values = self._priced(prices)
        found = self._listing(self._climbed(options, values, self._starts(prices)))
        worth = self._worth(options, values, found)
        best = max(floor, float(worth.max(initial=0.0)))
        searched = search(options, values, best, 0 if best > floor else SCHEDULE.nodes * SCHEDULE.more**effort)
        exact = self._listing([searched.members] if len(searched.members) else [])
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

    def _starts(self, prices: GroupPrices) -> Iterator[Ints]:
        """Patterns to improve: none, and some drawn at random."""
        draw, useful = np.random.default_rng(0), np.flatnonzero(prices.per_rps[self.options.group] > 0)
        yield np.zeros(0, int)
        for _ in range(SCHEDULE.climbs - 1 if len(useful) else 0):
            yield draw.choice(useful, int(draw.integers(1, SCHEDULE.sharing + 1)))

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


def network_rates(problem: Problem, slice_type: SliceType, data: FittedNetworks, until: Deadline
                  ) -> RateOracle | None:
    """The RateOracle of a slice type, made quickly, whatever the deadline; None if the slice cannot be shared.

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


class NetworkOracle:
    """The patterns of slices of one profile that closed networks share.

    Parameters
    ----------
    instance, entry, profile, data
        The problem, the fleet entry of the GPUs, the slices' profile, and the networks.
    roles
        All roles.
    copies
        (roles,) the most replicas of each role in a pattern.
    """

    def __init__(self, instance: Instance, entry: FleetEntry, profile: str, data: FittedNetworks,
                 roles: Sequence[Role], copies: NDArray[np.int64]) -> None:
        clients = entry.type.slice_mps_clients(profile)
        self.copies = np.minimum(copies, clients)
        self.memory_gib = entry.type.slice_memory_gib(profile)
        rule = instance.shared_rule
        planned, bounded = (make(clients, rule.random_arrivals) for make in (planned_levels, bounded_levels))
        self.ways = ways_of(data, profile, instance.policy, rule, roles, planned, relaxed=False)
        loose = ways_of(data, profile, instance.policy, rule, roles, bounded, relaxed=True)
        self.planned = [self.ways.knapsacks(planned, units, relaxed=False) for units in SCHEDULE.units]
        self.bounded = [loose.knapsacks(bounded, units, relaxed=True) for units in SCHEDULE.units]
        self.runner = Runner(instance, entry, profile, roles, planned, self.ways)

    def seeds(self) -> list[Pattern]:
        """The patterns of a single role that the slice can serve."""
        return [(int(one),) for one in np.flatnonzero(self.runner.alone)]

    def price(self, values: NDArray[np.int64], floor: int, effort: int) -> Priced:
        """Patterns of a value above a floor; see ``PatternOracle.price``."""
        step = min(effort, len(SCHEDULE.units) - 1)
        sure = np.where(self.runner.alone, values, 0)
        found = self._patterns(self.planned[step], sure, floor)
        worth = max((int(values[list(pattern)].sum()) for pattern in found), default=0)
        most = max(self._most(self.bounded[step], values, floor), worth, int(sure.max(initial=0)))
        return Priced(found, most, most <= max(worth, floor) or step == len(SCHEDULE.units) - 1)

    def running(self, pattern: Pattern) -> list[Running] | None:
        """Operating points of a pattern's replicas; None if the pattern is not feasible."""
        return self.runner.of(pattern)

    def _patterns(self, levels: Levels, values: NDArray[np.int64], floor: int) -> list[Pattern]:
        """Patterns of the levels with the highest values. If some of them do not fit into the memory, the search is
        repeated with a higher price of memory.
        """
        found: dict[Pattern, None] = {}
        highest = 0
        for part in (0.0, *PRICING.parts):
            gib_price, fitting = part * highest / self.memory_gib, True
            most = worth_of(levels, values, self.copies, gib_price, SCHEDULE.promising)
            highest = highest or int(most.max(initial=0))
            for level in np.argsort(-most, kind="stable")[:SCHEDULE.found]:
                if most[level] <= (0 if part else floor):
                    break
                ways = pattern_at(levels, int(level), values, self.copies, gib_price)
                pattern = self._pattern(levels, ways)
                if levels.memory_gib[level, ways].sum() > self.memory_gib * (1 - SINGLE):
                    fitting = False
                elif values[list(pattern)].sum() > floor:
                    found[pattern] = None
            if fitting:
                break
        return list(found)

    def _most(self, levels: Levels, values: NDArray[np.int64], floor: int) -> int:
        """An upper bound on the value of any pattern."""
        most = worth_of(levels, values, self.copies, 0.0, 1.0)
        highest = least = int(most.max(initial=0))
        if highest <= floor:
            return least
        level = int(most.argmax())
        ways = pattern_at(levels, level, values, self.copies, 0.0)
        if levels.memory_gib[level, ways].sum() > self.memory_gib:
            for part in PRICING.parts:
                gib_price = part * highest / self.memory_gib
                dearer = worth_of(levels, values, self.copies, gib_price, 1.0)
                all_gib = int(np.ceil(gib_price * self.memory_gib * (1 + SINGLE)))
                least = min(least, int(dearer.max(initial=0)) + all_gib)
        return least

    def _pattern(self, levels: Levels, ways: Sequence[int]) -> Pattern:
        """The pattern (roles in ascending order) of the given ways."""
        return tuple(sorted((np.searchsorted(levels.start, ways, side="right") - 1).tolist()))


def network_oracle(instance: Instance, entry: FleetEntry, profile: str, data: FittedNetworks, roles: Sequence[Role],
                   copies: NDArray[np.int64]) -> NetworkOracle | None:
    """The oracle of a slice type; None if the networks do not describe it, or if only one process may run there."""
    if profile not in data.profiles or not entry.mps or entry.type.slice_mps_clients(profile) < 2:
        return None
    return NetworkOracle(instance, entry, profile, data, roles, copies)


oracle = WayOfSharing(network_oracle, network_rates, network_settings)
"""The way of sharing: MIG slices and whole GPUs at routed rates."""
