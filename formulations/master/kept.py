"""Adds the patterns and prices of an earlier solve to a Generation, and keeps those of a Generation for the next solve.

A *demand* names a role by its models, SLO and rate. A demand that the new instance lacks is replaced by the role of its
class with the nearest rate, and the pattern is checked again. Demands of unknown classes are left out.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from functools import cache

import numpy as np

from provision.formulations.master.columns import Duals
from provision.formulations.master.generation import Generation
from provision.formulations.master.plans import slice_keys
from provision.formulations.pricing.oracle import Pattern, oracles_of
from provision.formulations.search.roles import Role
from provision.models.problem.kept_columns import Demand, DemandClass, KeptColumns, SliceKey


def keep(generation: Generation, kept: KeptColumns) -> None:
    """Replace the content of ``kept`` by the patterns and the last prices of a Generation."""
    problem, keys = generation.problem, slice_keys(generation.problem)
    demands: list[Demand] = [role[:3] for role in problem.roles]
    patterns: defaultdict[SliceKey, set[tuple[Demand, ...]]] = defaultdict(set)
    for slice_type, pattern in generation.program.patterns:
        if pattern[-1] < len(demands):
            patterns[keys[slice_type]].add(tuple(demands[role] for role in pattern))
    kept.instance, kept.patterns, kept.effort = problem.instance, dict(patterns), generation.effort
    if generation.last is not None:
        kept.slice_prices = dict(zip(keys, generation.last.slice_types.tolist(), strict=True))
        kept.prices = dict(zip(demands, generation.last.places[: len(demands)].tolist(), strict=True))


def seed(kept: KeptColumns, generation: Generation) -> None:
    """Add the kept patterns to a Generation, as far as they are valid there."""
    problem, roles = generation.problem, defaultdict[DemandClass, list[Role]](list)
    for role in problem.roles:
        roles[role.workload_class].append(role)
    at, oracles = {role[:3]: number for number, role in enumerate(problem.roles)}, oracles_of(problem)

    @cache
    def nearest(demand: Demand) -> list[int]:
        """The role that takes the place of a demand, if there is one."""
        alike = roles.get(demand[:2], ())
        return [at[min(alike, key=lambda role: abs(role.rate_rps - demand[2]))[:3]]] if alike else []

    slice_types = {key: number for number, key in reversed(list(enumerate(slice_keys(problem))))}
    for key, patterns in kept.patterns.items():
        slice_type, found = slice_types.get(key, -1), list[Pattern]()
        for demands in patterns if slice_type in oracles else ():
            pattern = tuple(sorted(role for demand in demands for role in nearest(demand)))
            if pattern and (at.keys() >= set(demands) or any(
                    oracle.running(pattern) for oracle in oracles[slice_type])):
                found.append(pattern)
        generation.program.add(slice_type, sorted(found))


def prices_of_kept(kept: KeptColumns, generation: Generation) -> Duals:
    """The kept prices as prices of a Generation.

    A role whose rate has no kept price gets the price of the next lower rate of its class. So a pattern with such a
    role is hardly worth more than a pattern of kept demands.
    """
    problem = generation.problem
    slices = np.array([kept.slice_prices.get(key, 0.0) for key in slice_keys(problem)])
    known: defaultdict[DemandClass, list[tuple[float, float]]] = defaultdict(list)
    for models, slo_ms, rate_rps in sorted(kept.prices):
        known[models, slo_ms].append((rate_rps, kept.prices[models, slo_ms, rate_rps]))
    places = np.zeros(len(generation.program.wanted))
    for at, role in enumerate(problem.roles):
        if role.workload_class in known:
            places[at] = _price(role.rate_rps, known[role.workload_class])
    return Duals(0.0, slices, places, np.zeros(0), np.zeros(0))


def _price(rate_rps: float, known: Sequence[tuple[float, float]]) -> float:
    """The price of a rate: that of the highest known rate which does not exceed it. If all known rates are higher, the
    price of the lowest is scaled down in proportion to the rate.
    """
    at = bisect_right(known, (rate_rps, math.inf))
    least_rps, price = known[0]
    return known[at - 1][1] if at else price * rate_rps / least_rps
