"""Finds the operating points of the replicas on a shared slice: one way for each role, at a level at which all replicas
fit.
"""

from collections.abc import Sequence

import numpy as np

from provision.formulations.pricing.oracle import Pattern, Running
from provision.formulations.pricing.shared_mig.levels import Level
from provision.formulations.pricing.shared_mig.run_options import Ways
from provision.formulations.search.roles import Role
from provision.models.base.tolerances import TOLERANCE
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry


class Runner:
    """Finds the operating points of patterns on slices of one profile.

    Parameters
    ----------
    instance, entry, profile
        The problem, the fleet entry, and the profile.
    roles
        All roles.
    levels, ways
        The levels for plans, and the ways of the roles at these levels.

    Attributes
    ----------
    alone
        (roles,) whether a replica of the role can have the slice to itself. Patterns consist of such roles only,
        because in a plan the places of a replica's neighbours may stay empty, and the replica is then verified as one
        that is alone.
    """

    def __init__(self, instance: Instance, entry: FleetEntry, profile: str, roles: Sequence[Role],
                 levels: Sequence[Level], ways: Ways) -> None:
        self.instance, self.entry, self.profile = instance, entry, profile
        self.roles, self.levels, self.ways = roles, levels, ways
        self.memory_gib = entry.type.slice_memory_gib(profile)
        self._alone = [self._run_alone(role) for role in roles]
        self.alone = np.array([run is not None for run in self._alone], bool)

    def of(self, pattern: Pattern) -> list[Running] | None:
        """The operating points of a pattern's replicas, in the order of its roles; None if the pattern is feasible at
        no level.
        """
        if len(pattern) == 1:
            run = self._alone[pattern[0]]
            return None if run is None else [run]
        if not self.alone[list(pattern)].all():
            return None
        found = (self._at(at, pattern) for at in range(len(self.levels)))
        return next((runs for runs in found if runs is not None), None)

    def _at(self, at: int, pattern: Pattern) -> list[Running] | None:
        """The operating points of a pattern's replicas at the level with the index ``at``; None if the replicas do not
        fit.
        """
        level, ways = self.levels[at], self.ways
        choices_of_groups = []
        for role in pattern:
            here = np.arange(ways.start[role], ways.start[role + 1])
            here = here[ways.processes[at, here] >= 0]
            if not len(here):
                return None
            choices_of_groups.append(
                np.stack([here, ways.processes[at, here], ways.use[at, here], ways.memory_gib[at, here]], 1)
            )
        room = np.array([level.processes, level.use * (1 - TOLERANCE), self.memory_gib * (1 - TOLERANCE)])
        chosen = _choose(choices_of_groups, room)
        if chosen is None:
            return None
        return [Running(int(ways.model[at, way]), int(ways.batch[at, way]), int(ways.processes[at, way]), 1.0)
                for way in chosen]

    def _run_alone(self, role: Role) -> Running | None:
        """The best operating point of a replica that has a slice to itself; None if it cannot carry the role's rate."""
        budget_ms = np.array([role.slo_ms * self.instance.policy.part_of_slo * (1 + TOLERANCE / 2)])
        clients = self.entry.type.slice_mps_clients(self.profile)
        best, most_rps = None, role.rate_rps
        for number, model in enumerate(role.models):
            data = self.instance.performance_of(self.entry.gpu, model, self.profile)
            if data is None:
                continue
            points = self.instance.points_of(data, model, self.profile)
            rps, _, batch, processes = self.instance.shared_rule.best_points(points, clients, budget_ms)[0].tolist()
            if rps >= most_rps and batch:
                best, most_rps = Running(number, int(batch), int(processes), 1.0), rps
        return best


def _choose(choices_of_groups: Sequence[np.ndarray], room: np.ndarray) -> list[int] | None:
    """Choose one row (way, resources that it takes) of each array, so that all fit into ``room``; None if that is
    impossible.
    """
    least = np.cumsum([choices[:, 1:].min(axis=0) for choices in reversed(choices_of_groups)], axis=0)[::-1]
    if (least[0] > room).any():
        return None
    rest = np.vstack([least[1:], np.zeros(room.shape)])
    taken: list[int] = []

    def extend(at: int, room: np.ndarray) -> bool:
        if at == len(choices_of_groups):
            return True
        for row in choices_of_groups[at]:
            left = room - row[1:]
            if (rest[at] <= left).all():
                taken.append(int(row[0]))
                if extend(at + 1, left):
                    return True
                taken.pop()
        return False

    return taken if extend(0, room) else None
