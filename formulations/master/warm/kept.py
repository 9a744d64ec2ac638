"""Adds the columns and prices of an earlier solve to a Generation, and keeps those of a Generation for the next solve.

A *demand* names a role by its models, SLO and rate. A demand that the new instance lacks is replaced by the role of its
class with the nearest rate, and the pattern is checked again. If the pattern is not valid, the role with the next lower
rate takes that place. Replica sets are always checked again.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from provision.formulations.master.centre import Centre
from provision.formulations.master.generation import Generation
from provision.formulations.master.plans import carries
from provision.formulations.master.role_columns import ReplicaSet
from provision.formulations.pricing.oracle import Pattern
from provision.formulations.pricing.register import oracles_of
from provision.formulations.search.problem import Group, Problem
from provision.models.problem.kept_columns import Demand, DemandClass, GroupKey, KeptColumns, SliceKey

Sorted = dict[DemandClass, list[tuple[float, int]]]
"""For each class of demands, pairs (rate, role) in ascending order of the rates."""


class Naming:
    """The names of a Problem's slice types, roles and groups in KeptColumns."""

    def __init__(self, problem: Problem) -> None:
        fleet = problem.instance.fleet
        self.slice_keys: list[SliceKey] = [(fleet[one.entry].gpu, fleet[one.entry].partitioned, one.profile)
                                           for one in problem.segments.slice_types]
        self.demands: list[Demand] = [role[:3] for role in problem.roles]
        self.groups: list[GroupKey] = [group_key(group) for group in problem.groups]
        self.slice_type: dict[SliceKey, int] = {}
        for at, key in enumerate(self.slice_keys):
            self.slice_type.setdefault(key, at)
        self.role = {demand: at for at, demand in enumerate(self.demands)}
        self.group = {key: at for at, key in enumerate(self.groups)}

    @cached_property
    def rows(self) -> dict[SliceKey | Demand, int]:
        """The index of every name in a list of all slice types and then all roles."""
        found: dict[SliceKey | Demand, int] = dict(self.slice_type.items())
        found.update((demand, len(self.slice_keys) + at) for demand, at in self.role.items())
        return found

    def name(self, row: int) -> SliceKey | Demand:
        """The name at an index of that list."""
        many = len(self.slice_keys)
        return self.slice_keys[row] if row < many else self.demands[row - many]


def group_key(group: Group) -> GroupKey:
    """The name of a group."""
    return group.models, group.slo_ms, group.rate_rps, group.least, group.most, group.cap_rps


def keep(generation: Generation, kept: KeptColumns) -> None:
    """Replace the content of ``kept`` by the columns and prices of a Generation."""
    problem, program = generation.problem, generation.program
    kept.instance, naming = problem.instance, Naming(problem)
    patterns: defaultdict[SliceKey, set[tuple[Demand, ...]]] = defaultdict(set)
    for slice_type, pattern in program.patterns:
        patterns[naming.slice_keys[slice_type]].add(tuple(naming.demands[role] for role in pattern))
    kept.patterns = dict(patterns)
    kept.replica_sets = {
        (naming.groups[one.group], tuple((naming.name(row), many) for row, many in one.uses)): strict
        for one, strict in zip(program.replica_sets, program.strict, strict=True)}
    centre = generation.centre
    if centre.value > 0:
        kept.slice_prices = dict(zip(naming.slice_keys, centre.slice_types.tolist(), strict=True))
        kept.prices = dict(zip(naming.demands, centre.roles.tolist(), strict=True))
    kept.jumps = frozenset(naming.demands[at] for at in np.flatnonzero(generation.breakpoints.jumps))
    kept.finer, kept.effort, kept.scale = dict(problem.finer), generation.effort, generation.scale


def seed(kept: KeptColumns, generation: Generation) -> None:
    """Add the kept columns to a Generation, as far as they are valid there. Prices may jump where they jumped before.
    """
    problem, program = generation.problem, generation.program
    naming, by_rate = Naming(problem), _by_rate(problem)
    for key, patterns in kept.patterns.items():
        slice_type = naming.slice_type.get(key, -1)
        oracles = oracles_of(problem).get(slice_type, [])
        found = [one for pattern in patterns
                 if (one := next((some for some, known in _handed(pattern, naming.role, by_rate)
                                  if some and (known or any(oracle.running(some) for oracle in oracles))), ()))]
        program.add_patterns(slice_type, sorted(found))
    jumps = [_easier(demand, by_rate) for demand in kept.jumps]
    generation.breakpoints.jump([at for at in jumps if at is not None])
    for (group, uses), strict in kept.replica_sets.items():
        at = naming.group.get(group)
        rows = [(naming.rows.get(key), many) for key, many in uses]
        known = tuple(sorted((row, many) for row, many in rows if row is not None))
        if at is not None and len(known) == len(rows) and (not strict or carries(problem, at, known)):
            program.add_replica_set(ReplicaSet(at, known), strict)


def centre_of_kept(kept: KeptColumns, problem: Problem) -> Centre:
    """The kept prices as central prices of a Problem, with the bound 0, since it is not known what bound they prove.

    A role whose rate has no kept price gets the price of the next lower rate of its class. So a pattern with such a
    role is hardly worth more than a pattern of kept demands.
    """
    naming = Naming(problem)
    slices = np.array([kept.slice_prices.get(key, 0.0) for key in naming.slice_keys])
    known: defaultdict[DemandClass, list[tuple[float, float]]] = defaultdict(list)
    for models, slo_ms, rate_rps in sorted(kept.prices):
        known[models, slo_ms].append((rate_rps, kept.prices[models, slo_ms, rate_rps]))
    roles = np.zeros(len(problem.roles))
    for at, role in enumerate(problem.roles):
        if role.workload_class in known:
            roles[at] = _price(role.rate_rps, known[role.workload_class])
    return Centre(0.0, slices, roles)


def _price(rate_rps: float, known: Sequence[tuple[float, float]]) -> float:
    """The price of a rate: that of the highest known rate which does not exceed it. If all known rates are higher, the
    price of the lowest is scaled down in proportion to the rate.
    """
    at = bisect_right(known, (rate_rps, math.inf))
    least_rps, price = known[0]
    return known[at - 1][1] if at else price * rate_rps / least_rps


def _by_rate(problem: Problem) -> Sorted:
    """The roles of every class by rate."""
    found: Sorted = defaultdict(list)
    for at, role in enumerate(problem.roles):
        found[role.workload_class].append((role.rate_rps, at))
    return {one: sorted(rates) for one, rates in found.items()}


def _handed(pattern: Sequence[Demand], roles: dict[Demand, int], by_rate: Sorted) -> Iterator[tuple[Pattern, bool]]:
    """Yield patterns of roles that can replace a kept pattern, each with whether it is known to be valid. Callers try
    them in this order.

    A pattern is known to be valid if every demand of the kept pattern has a role. Demands of unknown classes are left
    out.
    """
    same = [roles.get(demand) for demand in pattern]
    if None not in same:
        yield tuple(sorted(role for role in same if role is not None)), True
        return
    near = [role if role is not None else _nearest(demand, by_rate)
            for role, demand in zip(same, pattern, strict=True)]
    yield tuple(sorted(role for role in near if role is not None)), False
    easier = [role if role is not None else _easier(demand, by_rate)
              for role, demand in zip(same, pattern, strict=True)]
    yield tuple(sorted(role for role in easier if role is not None)), False


def _nearest(demand: Demand, by_rate: Sorted) -> int | None:
    """The role of a demand's class whose rate is nearest; None if there is none."""
    rates = by_rate.get(demand[:2], [])
    return min(rates, key=lambda one: abs(one[0] - demand[2]))[1] if rates else None


def _easier(demand: Demand, by_rate: Sorted) -> int | None:
    """The role of a demand's class with the highest rate that does not exceed the demand's rate; None if there is none.
    """
    rates = by_rate.get(demand[:2], [])
    at = bisect_right(rates, (demand[2], math.inf))
    return rates[at - 1][1] if at else None
