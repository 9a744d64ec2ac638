"""The pattern oracle of slices that replicas share at routed rates (closed networks).

Patterns are priced as knapsacks over processes, utilisation and memory, at every level of sharing. There are two sets
of levels. Patterns at the levels for plans are feasible. The levels for bounds cover all patterns.

Greedy methods fill such slices with ways of known utilisation and memory (``settings``). Under random arrivals,
patterns carry rates (``rates``).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.knapsacks import KnapsackOracle, Levels, pattern_at, worth_of
from provision.formulations.pricing.oracle import Pattern, Running, WayOfSharing
from provision.formulations.pricing.shared_mig.levels import bounded_levels, planned_levels
from provision.formulations.pricing.shared_mig.rates import network_rates
from provision.formulations.pricing.shared_mig.run_options import ways_of
from provision.formulations.pricing.shared_mig.schedule import SCHEDULE
from provision.formulations.pricing.shared_mig.settings import network_settings
from provision.formulations.search.roles import Role
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import SINGLE, TOLERANCE
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry


class NetworkOracle(KnapsackOracle):
    """The patterns of slices of one profile that closed networks share.

    Parameters
    ----------
    instance, entry, profile, data
        The problem, the fleet entry of the GPUs, the slices' profile, and the networks.
    roles
        All roles.
    copies
        (roles,) the most replicas of each role in a pattern.

    Attributes
    ----------
    run_alone
        For each role, the operating point of a replica that has the slice to itself, None if it cannot carry the role's
        rate. Patterns consist of roles that can (``able``) only, because in a plan the places of a replica's neighbours
        may stay empty, and the replica is then verified as one that is alone.
    """

    def __init__(self, instance: Instance, entry: FleetEntry, profile: str, data: FittedNetworks,
                 roles: Sequence[Role], copies: NDArray[np.int64]) -> None:
        clients, rule = entry.type.slice_mps_clients(profile), instance.shared_rule
        self.copies, self.memory_gib = np.minimum(copies, clients), entry.type.slice_memory_gib(profile)
        self.levels, bounded = (make(clients, rule.random_arrivals) for make in (planned_levels, bounded_levels))
        self.ways = ways_of(data, profile, instance.policy, rule, roles, self.levels, relaxed=False)
        loose = ways_of(data, profile, instance.policy, rule, roles, bounded, relaxed=True)
        self.planned = self.ways.knapsacks(self.levels, SCHEDULE.coarse, relaxed=False)
        self.bounded = loose.knapsacks(bounded, SCHEDULE.fine, relaxed=True)
        self.run_alone = [_run_alone(instance, entry, profile, role) for role in roles]
        self.able = np.array([run is not None for run in self.run_alone], bool)

    def seeds(self) -> list[Pattern]:
        """The patterns of a single role that the slice can serve."""
        return [(int(one),) for one in np.flatnonzero(self.able)]

    def running(self, pattern: Pattern) -> list[Running] | None:
        """Operating points of a pattern's replicas, in the order of its roles; None if the pattern is feasible at no
        level.
        """
        if len(pattern) == 1:
            run = self.run_alone[pattern[0]]
            return None if run is None else [run]
        tried = range(len(self.levels)) if self.able[list(pattern)].all() else ()
        return next((runs for runs in (self._running_at(level, pattern) for level in tried) if runs is not None), None)

    def _running_at(self, at: int, pattern: Pattern) -> list[Running] | None:
        """The operating points of a pattern's replicas at the level with the index ``at``; None if they do not fit."""
        level, ways = self.levels[at], self.ways
        needs = np.stack([ways.processes[at], ways.use[at], ways.memory_gib[at]], axis=1)
        room = np.array([level.processes, level.use * (1 - TOLERANCE), self.memory_gib * (1 - TOLERANCE)])
        of_roles = [np.arange(ways.start[role], ways.start[role + 1]) for role in pattern]
        chosen = _chosen(needs, [of_role[ways.processes[at, of_role] >= 0] for of_role in of_roles], room)
        return None if chosen is None else [
            Running(int(ways.model[at, way]), int(ways.batch[at, way]), int(ways.processes[at, way]), 1.0)
            for way in chosen]

    def _ranked(self, knapsacks: Levels, values: Ints, copies: Ints, gib_price: float, near: float
                ) -> list[tuple[int, int]]:
        """The levels with the highest gains."""
        most = worth_of(knapsacks, values, copies, gib_price, near, len(knapsacks.room))
        return [(int(most[level]), level) for level in np.argsort(-most, kind="stable").tolist()]

    def _taken(self, knapsacks: Levels, place: int, values: Ints, copies: Ints, gib_price: float
               ) -> tuple[Pattern, bool]:
        """A pattern of the highest gain at a level, and whether the slice has the memory for it."""
        ways = pattern_at(knapsacks, place, values, copies, gib_price)
        pattern = tuple(sorted((np.searchsorted(knapsacks.start, ways, side="right") - 1).tolist()))
        return pattern, bool(knapsacks.memory_gib[place, ways].sum() <= self.memory_gib * (1 - SINGLE))


def _chosen(needs: Floats, choices: Sequence[Ints], room: Floats) -> list[int] | None:
    """Choose one way from each of ``choices``, so that all fit into ``room`` (resources,); None if that is impossible.
    ``needs`` (ways, resources) is what the ways take.
    """
    if not choices or not all(map(len, choices)):
        return None if choices else []
    rest = np.sum([needs[ways].min(axis=0) for ways in choices[1:]], axis=0)
    for way in choices[0]:
        left = room - needs[way]
        if (rest <= left).all() and (further := _chosen(needs, choices[1:], left)) is not None:
            return [int(way), *further]
    return None


def _run_alone(instance: Instance, entry: FleetEntry, profile: str, role: Role) -> Running | None:
    """The best operating point of a replica that has a slice to itself; None if it cannot carry the role's rate."""
    budget_ms = np.array([role.slo_ms * instance.policy.part_of_slo * (1 + TOLERANCE / 2)])
    clients = entry.type.slice_mps_clients(profile)
    best, most_rps = None, role.rate_rps
    for number, model in enumerate(role.models):
        data = instance.performance_of(entry.gpu, model, profile)
        if data is None:
            continue
        points = instance.points_of(data, model, profile)
        rps, _, batch, processes = instance.shared_rule.best_points(points, clients, budget_ms)[0].tolist()
        if rps >= most_rps and batch:
            best, most_rps = Running(number, int(batch), int(processes), 1.0), rps
    return best


def network_oracle(instance: Instance, entry: FleetEntry, profile: str, data: FittedNetworks, roles: Sequence[Role],
                   copies: NDArray[np.int64]) -> NetworkOracle | None:
    """The oracle of a slice type; None if the networks do not describe it, or if only one process may run there."""
    if profile not in data.profiles or not entry.mps or entry.type.slice_mps_clients(profile) < 2:
        return None
    return NetworkOracle(instance, entry, profile, data, roles, copies)


oracle = WayOfSharing(network_oracle, network_rates, network_settings)
"""The way of sharing: MIG slices and whole GPUs at routed rates."""
