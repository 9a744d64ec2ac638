"""The pattern oracle of whole GPUs that replicas share under interference (iGniter's model, TPDS 2022).

Batch times do not depend on the routed rates, and a further neighbour never shortens them. So a pattern is valid if and
only if every replica keeps its SLO and can carry its role's rate beside the others.

Patterns of roles are priced exactly: the value of a replica is a step function of the rate that it carries. Roles of
the same models and SLO are one class. Its function has a step at the rate of each role: there a replica is worth the
dearest role that it can serve. If one pattern may have at most a few replicas of a model, each of its roles is a class
of its own, so that pricing counts how often a pattern has it.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.mps.kernels import NONE, arrange, settle
from provision.formulations.pricing.mps.offers import PlaceValues, choices_of, forgiving, step_values
from provision.formulations.pricing.mps.pricing import best_patterns
from provision.formulations.pricing.mps.rate_points import rate_points, together_rps
from provision.formulations.pricing.mps.rates import interference_rates
from provision.formulations.pricing.mps.schedule import SCHEDULE
from provision.formulations.pricing.mps.sets import demands_of, runs_of
from provision.formulations.pricing.mps.tables import PointTables, least_units, tables_of
from provision.formulations.pricing.oracle import Pattern, Priced, Running, WayOfSharing
from provision.formulations.pricing.settings import Setting, role_ways
from provision.formulations.search.problem import Group, Problem, Shareable
from provision.formulations.search.roles import Role, dominance
from provision.models.base.arrays import Bools, Ints, distinct_rows
from provision.models.base.clock import Deadline
from provision.models.base.compiled import compiled, inner
from provision.models.base.tolerances import DUST
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.catalogue import PerformanceFile
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry


class InterferenceOracle:
    """The patterns of whole GPUs of one type that replicas share under interference.

    Parameters
    ----------
    instance, data
        The problem, and the performance data of the GPU type: iGniter's coefficients, or a co-location file.
    roles
        All roles, ``hardest_first``.
    copies
        (roles,) the most replicas with each role in a pattern.

    Attributes
    ----------
    tables, members, points, choices
        The operating points of the roles; the roles of each class, by rate; and the operating points of the classes,
        with their options.
    """

    def __init__(self, instance: Instance, data: PerformanceFile, roles: Sequence[Role], copies: Ints) -> None:
        self.tables = tables_of(data, instance.shared_rule, demands_of(instance, roles))
        self.rates_rps = np.array([role.rate_rps for role in roles])
        models = {role.models: number for number, role in enumerate(roles)}
        model = np.array([models[role.models] for role in roles])
        common = (np.bincount(model, copies) >= SCHEDULE.many)[model]
        classes: dict[tuple[object, ...], list[int]] = {}
        for at, role in enumerate(roles):
            classes.setdefault(role.workload_class if common[at] else (*role.workload_class, at), []).append(at)
        self.members = [np.array(sorted(several, key=lambda at: roles[at].rate_rps)) for several in classes.values()]
        first = [roles[several[-1]] for several in self.members]
        limits = np.array([self.tables.most if common[several[0]] else copies[several[0]] for several in self.members])
        self.points = rate_points(instance, data, [
            Group(one.models, one.slo_ms, one.rate_rps, 0, math.inf, math.inf, (0,)) for one in first],
            instance.shared_rule)
        kind = np.array([models[roles[several[0]].models] if common[several[0]] else len(roles) + number
                         for number, several in enumerate(self.members)])
        self.choices = choices_of(self.points, kind, limits, self._useful())
        self.harder_first, self.harder = _next_harder(roles)

    def seeds(self) -> list[Pattern]:
        """The patterns of a single role that the GPU can serve."""
        return [(int(one),) for one in np.flatnonzero(self.tables.first[:, -1] > self.tables.first[:, 0])]

    def price(self, values: NDArray[np.int64], floor: int, effort: int) -> Priced:
        """Patterns of a value above a floor; see ``PatternOracle.price``."""
        longer = SCHEDULE.roles._replace(nodes=SCHEDULE.roles.nodes * SCHEDULE.more**effort)
        members, worth, most = best_patterns(self.points, self.choices, self._values(values), floor, longer)
        best = max(floor, worth.max(initial=0.0))
        return Priced(self._plannable(members), max(most, floor), most <= best * (1 + SCHEDULE.roles.close) + 1)

    def running(self, pattern: Pattern) -> list[Running] | None:
        """The operating points of a pattern's replicas; None if none are found."""
        return runs_of(self.tables, pattern)

    def _useful(self) -> Ints:
        """The points that some role of their class has in its tables; points that others beat are not in tables."""
        first, tables, points = self.tables.first, self.tables.at, self.points.at
        known = [(group, np.arange(first[one, 0], first[one, -1]))
                 for group, several in enumerate(self.members) for one in several]
        at = np.concatenate([one for _, one in known])
        group = np.repeat([group for group, _ in known], [len(one) for _, one in known])
        _, alike = distinct_rows(np.vstack([
            np.stack([group, tables.model[at], tables.units[at], tables.batch[at]], axis=1),
            np.stack([points.group, points.model, points.units, points.batch], axis=1)]))
        return np.flatnonzero(np.isin(alike[len(at):], alike[:len(at)]))

    def _plannable(self, members: Ints) -> list[Pattern]:
        """The patterns that plans may use, from patterns of points: each replica gets the hardest role that it carries.
        """
        if not len(members):
            return []
        roles, _ = distinct_rows(self._hardest(members))
        size = (roles != NONE).sum(axis=1)
        usable = np.zeros(len(size), bool)
        hardened(self.tables, roles, size, self.harder_first, self.harder, usable)
        rows = zip(roles[usable].tolist(), size[usable].tolist(), strict=True)
        return [tuple(sorted(those[:many])) for those, many in rows]

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
        group, found = self.points.at.group[members], np.full(members.shape, len(self.rates_rps))
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
def hardened(tables: PointTables, roles: Ints, size: Ints, harder_first: Ints, harder: Ints, usable: Bools) -> None:
    """Replace the roles in every pattern by harder roles of the same models, as long as the pattern stays feasible, in
    place; set which patterns are ``usable`` in plans.

    ``harder[harder_first[r] : harder_first[r + 1]]`` are the next harder roles of r. A check starts from the units that
    the members have so far; the check of the final pattern starts anew.
    """
    most = tables.most
    reached, units, points = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    for row in range(len(size)):
        members, many, changed = np.empty(size[row], np.int64), size[row], True
        _copy(roles[row], members)
        usable[row] = arrange(tables, members, many, units, points) > 0
        reached[:many] = 0
        if not usable[row] or settle(tables, members, many, reached, points) == NONE:
            continue
        while changed:
            changed = False
            for turn in range(many):
                at = (turn + row) % many
                one = members[at]
                for first in range(harder_first[one], harder_first[one + 1]):
                    members[at] = harder[first]
                    _copy(reached, units)
                    if settle(tables, members, many, units, points) != NONE:
                        _copy(units, reached)
                        changed = True
                        break
                    members[at] = one
        units[:many] = 0
        if settle(tables, members, many, units, points) != NONE:
            _copy(members, roles[row])


@inner
def _copy(source: Ints, target: Ints) -> None:
    """Copy entries; an assignment of arrays would be compiled with the text of an error, which takes long."""
    for at in range(min(len(source), len(target))):
        target[at] = source[at]


def interference_settings(problem: Problem, shared: Shareable, until: Deadline) -> list[Setting]:
    """The setting of a whole GPU, with a way for every role that the GPU can serve; an empty list for other slices, and
    without roles. Raises TimeIsUpError at the deadline.
    """
    if problem.segments.slice_types[shared.slice_type].profile != WHOLE or not problem.roles:
        return []
    tables = tables_of(shared.data, problem.instance.shared_rule, demands_of(problem.instance, problem.roles),
                       until=until)
    units = least_units(tables)
    shares = {at: float(units[at]) / tables.limit for at in np.flatnonzero(units <= tables.limit).tolist()}
    return [Setting(role_ways(problem, shares), processes=tables.most, points=tables, running=partial(runs_of, tables))]


def interference_oracle(instance: Instance, entry: FleetEntry, profile: str, data: PerformanceFile,
                        roles: Sequence[Role], copies: NDArray[np.int64]) -> InterferenceOracle | None:
    """The oracle of a slice type; None unless the slice is a whole GPU."""
    return InterferenceOracle(instance, data, roles, copies) if profile == WHOLE else None


oracle = WayOfSharing(interference_oracle, interference_rates, interference_settings)
"""The way of sharing: whole GPUs under MPS."""
