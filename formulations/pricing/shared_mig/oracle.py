"""The pattern oracle of slices that replicas share at routed rates (closed networks).

Patterns are priced as knapsacks over processes, utilisation and memory, at every level of sharing. There are two sets
of levels. Patterns at the levels for plans are feasible. The levels for bounds cover all patterns.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.knapsacks import PARTS_OF_WORTH, Levels, pattern_at, worth_of
from provision.formulations.pricing.level_capacities import LevelCapacities
from provision.formulations.pricing.oracle import Pattern, Priced, Running, WayOfSharing
from provision.formulations.pricing.shared_mig.capacities import capacities
from provision.formulations.pricing.shared_mig.levels import bounded_levels, planned_levels
from provision.formulations.pricing.shared_mig.network_settings import network_settings
from provision.formulations.pricing.shared_mig.rates import NetworkPatterns, network_patterns
from provision.formulations.pricing.shared_mig.run_options import ways_of
from provision.formulations.pricing.shared_mig.running import Runner
from provision.formulations.pricing.throughput_patterns import ThroughputPatterns
from provision.formulations.search.problem import Problem
from provision.formulations.search.roles import Role
from provision.formulations.search.segments import SliceType
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import SINGLE
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry

UNITS = (64, 120)
"""Units of utilisation in the quickest search, and in all others."""
MOST_FOUND = 40
"""The most patterns that one search returns."""
NEAR = 0.8
"""Levels whose estimate is below this fraction of the best pattern's value are skipped."""


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
        self.planned = [self.ways.knapsacks(planned, units, relaxed=False) for units in UNITS]
        self.bounded = [loose.knapsacks(bounded, units, relaxed=True) for units in UNITS]
        self.runner = Runner(instance, entry, profile, roles, planned, self.ways)

    def seeds(self) -> list[Pattern]:
        """The patterns of a single role that the slice can serve."""
        return [(int(one),) for one in np.flatnonzero(self.runner.alone)]

    def price(self, values: NDArray[np.int64], floor: int, effort: int) -> Priced:
        """Patterns of a value above a floor; see ``PatternOracle.price``."""
        step = min(effort, len(UNITS) - 1)
        sure = np.where(self.runner.alone, values, 0)
        found = self._patterns(self.planned[step], sure, floor)
        worth = max((int(values[list(pattern)].sum()) for pattern in found), default=0)
        most = max(self._most(self.bounded[step], values, floor), worth, int(sure.max(initial=0)))
        return Priced(found, most, most <= max(worth, floor) or step == len(UNITS) - 1)

    def running(self, pattern: Pattern) -> list[Running] | None:
        """Operating points of a pattern's replicas; None if the pattern is not feasible."""
        return self.runner.of(pattern)

    def _patterns(self, levels: Levels, values: NDArray[np.int64], floor: int) -> list[Pattern]:
        """Patterns of the levels with the highest values. If some of them do not fit into the memory, the search is
        repeated with a higher price of memory.
        """
        found: dict[Pattern, None] = {}
        highest = 0
        for part in (0.0, *PARTS_OF_WORTH):
            gib_price, fitting = part * highest / self.memory_gib, True
            most = worth_of(levels, values, self.copies, gib_price, NEAR)
            highest = highest or int(most.max(initial=0))
            for level in np.argsort(-most, kind="stable")[:MOST_FOUND]:
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
            for part in PARTS_OF_WORTH:
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


def network_rates(problem: Problem, slice_type: SliceType, data: FittedNetworks, until: Deadline
                  ) -> LevelCapacities | NetworkPatterns | None:
    """The patterns of a slice type under random arrivals. They are made quickly, whatever the deadline.

    Under other rules, rates depend on what is routed. There, objective max_throughput has the tables alone, and least
    cost has nothing.
    """
    patterns = network_patterns(problem, slice_type, data)
    if not problem.fills:
        return patterns
    entry = problem.instance.fleet[slice_type.entry]
    levels = capacities(problem.instance, entry, slice_type.profile, data, problem.groups)
    return levels if levels is None or patterns is None else ThroughputPatterns(levels, patterns)


oracle = WayOfSharing(network_oracle, network_rates, network_settings)
"""The way of sharing: MIG slices and whole GPUs at routed rates."""
