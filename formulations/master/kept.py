"""Adds the patterns and prices of an earlier solve to a Generation, and keeps those of a Generation for the next solve.

A *demand* names a role by its models, SLO and rate. A demand that the new instance lacks is replaced by the role of its
class with the nearest rate, and the pattern is checked again. If the pattern is not valid, the role with the next lower
rate takes that place.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from provision.formulations.master.columns import Duals
from provision.formulations.master.generation import Generation
from provision.formulations.master.plans import slice_keys
from provision.formulations.pricing.oracle import Pattern, oracles_of
from provision.formulations.search.problem import Problem
from provision.models.problem.kept_columns import Demand, DemandClass, KeptColumns, SliceKey

Sorted = dict[DemandClass, list[tuple[float, int]]]
"""For each class of demands, pairs (rate, role) in ascending order of the rates."""


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
    problem, slice_types = generation.problem, dict[SliceKey, int]()
    for at, key in enumerate(slice_keys(problem)):
        slice_types.setdefault(key, at)
    by_rate, role_of = _by_rate(problem), {role[:3]: at for at, role in enumerate(problem.roles)}
    for key, patterns in kept.patterns.items():
        slice_type = slice_types.get(key, -1)
        oracles = oracles_of(problem).get(slice_type, [])
        found = [one for pattern in patterns
                 if (one := next((some for some, known in _handed(pattern, role_of, by_rate)
                                  if some and (known or any(oracle.running(some) for oracle in oracles))), ()))]
        generation.program.add(slice_type, sorted(found) if oracles else [])


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
