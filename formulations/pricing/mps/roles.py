"""Exact pricing of patterns of roles: the value of a replica is a step function of the rate that it carries.

Roles of the same models and SLO are one class. Its function has a step at the rate of each role: there a replica is
worth the dearest role that it can serve. If one pattern may have at most a few replicas of a model, each of its roles
is a class of its own, so that pricing counts how often a pattern has it.
"""

import math
from collections.abc import Sequence

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE, arrange, settle
from provision.formulations.pricing.mps.offers import PlaceValues, choices_of, forgiving, step_values
from provision.formulations.pricing.mps.pricing import Effort, PointPatterns, best_patterns
from provision.formulations.pricing.mps.rate_points import rate_points, together_rps
from provision.formulations.pricing.mps.schedule import SCHEDULE
from provision.formulations.pricing.mps.tables import PointTables
from provision.formulations.search.problem import Group
from provision.formulations.search.roles import Role, dominance
from provision.models.base.arrays import Ints, distinct_rows
from provision.models.base.compiled import compiled
from provision.models.base.tolerances import DUST
from provision.models.performance.catalogue import PerformanceFile
from provision.models.problem.instance import Instance


class RolePricing:
    """The patterns of roles on whole GPUs of one type, and their prices.

    Parameters
    ----------
    instance, data
        The problem, and the performance data of the GPU type.
    tables
        The operating points of the roles.
    roles
        All roles, ``hardest_first``.
    copies
        (roles,) the most replicas with each role in a pattern.
    """

    def __init__(self, instance: Instance, data: PerformanceFile, tables: PointTables, roles: Sequence[Role],
                 copies: Ints) -> None:
        self.tables, self.rates_rps = tables, np.array([role.rate_rps for role in roles])
        models = {role.models: number for number, role in enumerate(roles)}
        model = np.array([models[role.models] for role in roles])
        common = (np.bincount(model, copies) >= SCHEDULE.many)[model]
        classes: dict[tuple[object, ...], list[int]] = {}
        for at, role in enumerate(roles):
            classes.setdefault(role.workload_class if common[at] else (*role.workload_class, at), []).append(at)
        self.members = [np.array(sorted(several, key=lambda at: roles[at].rate_rps)) for several in classes.values()]
        first = [roles[several[-1]] for several in self.members]
        limits = np.array([tables.most if common[several[0]] else copies[several[0]] for several in self.members])
        self.points = rate_points(instance, data, [
            Group(one.models, one.slo_ms, one.rate_rps, 0, math.inf, math.inf, (0,)) for one in first],
            tables.most, instance.shared_rule)
        kind = np.array([models[roles[several[0]].models] if common[several[0]] else len(roles) + number
                         for number, several in enumerate(self.members)])
        self.choices = choices_of(self.points, kind, limits, self._useful())
        self.harder_first, self.harder = _next_harder(roles)

    def _useful(self) -> Ints:
        """The points that some role of their class has in its tables; points that others beat are not in tables."""
        tables, points = self.tables, self.points
        known = [(group, np.arange(tables.first[one, 0], tables.first[one, -1]))
                 for group, several in enumerate(self.members) for one in several]
        at = np.concatenate([one for _, one in known])
        group = np.repeat([group for group, _ in known], [len(one) for _, one in known])
        _, alike = distinct_rows(np.vstack([
            np.stack([group, tables.model[at], tables.units[at], tables.batch[at]], axis=1),
            np.stack([points.group, points.model, points.units, points.batch], axis=1)]))
        return np.flatnonzero(np.isin(alike[len(at):], alike[:len(at)]))

    def priced(self, prices: Ints, floor: int, effort: Effort) -> tuple[list[tuple[int, ...]], PointPatterns]:
        """Patterns whose roles have a total price above a floor, and what the search found; ``prices`` (roles,) are
        whole numbers.
        """
        found = best_patterns(self.points, self.choices, self._values(prices), floor, effort)
        if not len(found.members):
            return [], found
        roles, _ = distinct_rows(self._hardest(found.members))
        size = (roles != NONE).sum(axis=1)
        kept = hardened(self.tables, roles, size, self.harder_first, self.harder)
        rows = zip(roles[kept].tolist(), size[kept].tolist(), strict=True)
        return [tuple(sorted(members[:many])) for members, many in rows], found

    def _values(self, prices: Ints) -> PlaceValues:
        """The prices as step functions of the classes."""
        values = step_values([self.rates_rps[several] for several in self.members],
                             [prices[several] for several in self.members])
        return forgiving(values.rps, values.value)

    def _hardest(self, members: Ints) -> Ints:
        """(patterns, places) the role of each replica: that of the highest rate that it carries. Replicas stand in
        ascending order, before the empty places.
        """
        there, rps = members != NONE, together_rps(self.points, members) * (1 + DUST)
        group, found = self.points.group[members], np.full(members.shape, len(self.rates_rps))
        for at, several in enumerate(self.members):
            here = there & (group == at)
            steps = np.searchsorted(self.rates_rps[several], rps[here], "right") - 1
            found[here] = several[np.maximum(steps, 0)]
        found.sort(axis=1)
        return np.where(found < len(self.rates_rps), found, NONE)


def _next_harder(roles: Sequence[Role]) -> tuple[Ints, Ints]:
    """Two arrays, ``first`` (roles + 1,) and ``harder`` (edges,): the next harder roles of role r are
    ``harder[first[r] : first[r + 1]]``.
    """
    harder, easier = dominance(roles)
    order = np.argsort(easier, kind="stable")
    return np.searchsorted(easier[order], np.arange(len(roles) + 1)), harder[order]


@compiled
def hardened(tables: PointTables, roles: Ints, size: Ints, harder_first: Ints, harder: Ints) -> Ints:
    """Replace the roles in every pattern by harder roles of the same models, as long as the pattern stays feasible, in
    place; return the indices of the patterns that plans may use.

    ``harder[harder_first[r] : harder_first[r + 1]]`` are the next harder roles of r. A check starts from the units that
    the members have so far; the check of the final pattern starts anew.
    """
    most = tables.most
    reached, units, points = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    kept, taken = np.empty(len(size), np.int64), 0
    for row in range(len(size)):
        members, many, changed = roles[row].copy(), size[row], True
        if arrange(tables, members, many, units, points) <= 0:
            continue
        kept[taken], taken = row, taken + 1
        reached[:] = 0
        if settle(tables, members, many, reached, points) == NONE:
            continue
        while changed:
            changed = False
            for turn in range(many):
                at = (turn + row) % many
                one = members[at]
                for first in range(harder_first[one], harder_first[one + 1]):
                    members[at] = harder[first]
                    units[:] = reached
                    if settle(tables, members, many, units, points) != NONE:
                        reached[:] = units
                        changed = True
                        break
                    members[at] = one
        units[:] = 0
        if settle(tables, members, many, units, points) != NONE:
            roles[row] = members
    return kept[:taken].copy()
