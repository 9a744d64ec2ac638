"""Writes certificates of bounds. A certificate has prices of the master program, and claims about them that
`provision.proofs` checks.

The master program proves its bound in floating-point numbers and by its own pricing. The claims are computed twice at
the same prices: as the search does, and as the checker does. The weaker of the two is claimed. So a certificate may
prove less than the search did, but an error of the checker alone makes no false claim.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from provision.formulations.master.generation import Generation, PricedCut
from provision.formulations.pricing.alone.knapsack import Knapsack
from provision.formulations.search.problem import Group, Problem
from provision.formulations.search.problem import Pool as ProblemPool
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import LOOSE, MISSING
from provision.models.problem.instance import Instance
from provision.models.problem.workload import LEAST_RPS
from provision.proofs.check import Facts, Prices
from provision.proofs.demand import Steps
from provision.proofs.fleet import Cut, Pool, affordable
from provision.proofs.lines import HardError, sealed

MOST_CUTS = 8
"""The most cuts of a certificate: the last ones that raised the bound. Further cuts take time and raise the bound only
a little.
"""
COUNTED = 128
"""Limits on the number of replicas above this are not counted."""


class Certificate(NamedTuple):
    """The lines of a certificate, and the bound that they prove."""

    lines: list[str]
    bound: float


class _Claimed(NamedTuple):
    """A cut, and the claims from which it follows."""

    claims: list[dict[str, Any]]
    cut: Cut


def certificate_of(instance: Instance, seconds: float, enough: float | None = None,
                   tell: Callable[[str], None] = lambda text: None) -> Certificate:
    """A certificate of a bound on the cost of every plan.

    Parameters
    ----------
    instance
        The problem. For every workload, the fleet must have a slice that can serve it.
    seconds
        The seconds for which prices are sought. The claims are computed afterwards.
    enough
        The cost of a plan. The search for prices ends when the bound reaches it.
    tell
        Called with the activity in words.

    Raises
    ------
    InputError
        If there are no certificates for instances of this kind.
    """
    facts, problem = Facts(instance), Problem(instance)
    generation = Generation(problem)
    tell("prices for the certificate")
    for bound in generation.rounds(Deadline(seconds)):
        if enough is not None and problem.objective(bound) >= enough:
            break
    tell("what the prices prove")
    claimed = []
    for cut in generation.cuts[-MOST_CUTS:]:
        with suppress(HardError):  # the checker would not accept it
            claimed.append(_claimed(facts, problem, cut))
    units = _units(facts, claimed)
    for one in list(claimed):
        if _units(facts, rest := [other for other in claimed if other is not one]) >= units:
            claimed = rest
    return Certificate(list(sealed(_claims(facts, claimed, units))), float(units * facts.unit))


def _claims(facts: Facts, claimed: list[_Claimed], units: int) -> Iterator[dict[str, Any]]:
    """All claims of a certificate, in order."""
    yield {"certificate": 1, "instance": facts.instance.name, "digest": facts.instance.digest}
    for one in claimed:
        yield from one.claims
        yield {"cut": one.cut.needed}
    yield {"units": units, "bound": str(units * facts.unit)}


def _claimed(facts: Facts, problem: Problem, priced: PricedCut) -> _Claimed:
    """The cut that the checker accepts at given prices, with its claims."""
    prices: Prices = {}
    for pool in facts.pools:
        for at in next((one.slice_types for one in problem.pools if _same(one, pool)), ()):
            prices[pool.name, problem.segments.slice_types[at].profile] = int(priced.slice_types[at])
    steps = _steps(problem, priced) if facts.shared else {}
    claims: list[dict[str, Any]] = [{"slice": list(key), "price": price} for key, price in prices.items()]
    groups = {member: group for group in problem.groups for member in group.members}
    needed = 0
    for at, one in enumerate(facts.instance.workloads):
        own = steps.get(one.name, ())
        least = min(facts.needs(one.name, prices, own) or 0,
                    _needs(problem, priced, groups[at], own if facts.shared else None) if at in groups else 0)
        shared = {"steps": list(map(list, steps[one.name]))} if one.name in steps else {}
        claims.append({"workload": one.name, "needs": least} | shared)
        needed += least
    most = []
    for pool in facts.pools:
        target = next((worth for one, worth in zip(problem.pools, priced.worth, strict=True) if _same(one, pool)), 0)
        most.append(facts.most(pool, prices, steps, target))
        claims.append({"gpu": pool.name, "most": most[-1]})
    return _Claimed(claims, Cut(needed, tuple(most)))


def _needs(problem: Problem, priced: PricedCut, group: Group, steps: Steps | None) -> int:
    """A lower bound on the price of every replica set that can serve a group; 0 if there is none.

    It is computed by the Knapsack, as in the search. ``priced`` has the prices of slices, ``steps`` those of replicas
    on shared slices; ``steps`` is None if no slices are shared.
    """
    alone_rps = problem.alone_rps[problem.position[group]]
    rates, costs = [*(alone_rps[alone_rps > 0] * (1 + LOOSE))], [*priced.slice_types[alone_rps > 0]]
    if steps is not None:
        ends = [*(rate * (1 - 2 * MISSING) for rate, _ in steps), group.rate_rps]
        shared = list(zip(ends, [0, *(price for _, price in steps)], strict=True))
        shared = shared[1:] if steps and steps[0][0] == 0 else shared
        rates, costs = [*rates, *(rate for rate, _ in shared)], [*costs, *(price for _, price in shared)]
    exact = group.most <= COUNTED
    known = Knapsack(np.maximum(np.array(rates, float), LEAST_RPS), np.array(costs, np.int64),
                     int(group.most) if exact else group.least, exact)
    found = known.cheapest(group.rate_rps * (1 - MISSING), group.least)
    return 0 if found is None else found.bound


def _same(one: ProblemPool, pool: Pool) -> bool:
    """Whether two pools, of the search and of the checker, have the same GPUs."""
    return (one.gpu, one.mig) == (pool.entry.gpu, pool.entry.partitioned)


def _steps(problem: Problem, priced: PricedCut) -> dict[str, Steps]:
    """The prices of every workload's replicas on shared slices, by the rate that they could carry.

    If a workload may have several replicas, each of them has at least the price of the role with the lowest rate.
    """
    found: dict[str, Steps] = {}
    for group in problem.groups:
        known = [(role.rate_rps, int(price)) for role, price in zip(problem.roles, priced.roles, strict=True)
                 if role.workload_class == group.workload_class]
        if group.most == 1:
            steps = [one for one in known if one[0] == group.rate_rps]
        else:
            rising = sorted(one for one in known if one[0] <= group.rate_rps)
            prices = list(accumulate((price for _, price in rising), lambda one, other: max(one, other)))
            rates = [0.0, *(rate for rate, _ in rising[1:])][: len(rising)]  # none if shared GPUs have no data of it
            steps = list(zip(rates, prices, strict=True))
        for member in group.members:
            found[problem.instance.workloads[member].name] = steps
    return found


def _units(facts: Facts, claimed: list[_Claimed]) -> int:
    """The bound that cuts prove, in units of price: the least price of GPUs that satisfy all of them."""
    cuts = [facts.spread(), *(one.cut for one in claimed)]
    low, high = 0, sum(pool.bought(10**18, max(cut.needed for cut in cuts))[1] for pool in facts.pools)
    if not _affordable(facts, cuts, high):
        return 0  # no GPUs of the fleet suffice
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _affordable(facts, cuts, middle) else (middle + 1, high)
    return low


def _affordable(facts: Facts, cuts: list[Cut], units: int) -> bool:
    """Whether GPUs for so many units of price satisfy all cuts; also if that takes the checker too long to tell."""
    try:
        return affordable(facts.pools, cuts, units)
    except HardError:
        return True
