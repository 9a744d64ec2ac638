"""Writes certificates of bounds. A certificate has prices that a search has found, and claims about them that
`provision.proofs` checks.

The searches prove their bounds in floating-point numbers and by their own pricing. The claims are computed twice at the
same prices: as the search does, and as the checker does. The weaker of the two is claimed. So a certificate may prove
less than the search did, but an error of the checker alone makes no false claim.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import Pool as ProblemPool
from provision.formulations.search.type_counts import FINE
from provision.formulations.values.bound import applies, value_bound
from provision.heuristics.core.mixing import cuts_of
from provision.models.base.arrays import Ints
from provision.models.base.clock import Deadline
from provision.models.problem.instance import Instance
from provision.proofs.check import Facts, Prices
from provision.proofs.demand import Cut, Pool, Steps, affordable
from provision.proofs.lines import HardError, sealed
from provision.solving.schedule import CERTIFICATE


class Certificate(NamedTuple):
    """The lines of a certificate, and the bound that they prove."""

    lines: list[str]
    bound: float


class _Prices(NamedTuple):
    """Whole-number prices that a search has found, and what follows from them by its own pricing.

    Attributes
    ----------
    slices
        (slice types,) the price of a slice.
    steps
        By workload, the prices of its replicas on shared slices.
    needs
        By workload, a lower bound on the price of replicas that carry its rate.
    worth
        (pools,) what no GPU is worth more than.
    """

    slices: Ints
    steps: dict[str, Steps]
    needs: dict[str, int]
    worth: list[int]


Claimed = tuple[list[dict[str, Any]], Cut]
"""Claims, and the cut that follows from them."""


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
    facts, problem, until = Facts(instance), Problem(instance), Deadline(seconds)
    tell("prices for the certificate")
    found = _of_values(problem, until, enough) if facts.shared else _of_slices(problem, until)
    tell("what the prices prove")
    claimed = list[Claimed]()
    for prices in found[-CERTIFICATE.cuts:]:
        with suppress(HardError):  # the checker would not accept it
            claimed.append(_claimed(facts, problem, prices))
    units = _units(facts, claimed)
    for one in list(claimed):
        if _units(facts, rest := [other for other in claimed if other is not one]) >= units:
            claimed = rest
    return Certificate(list(sealed(_claims(facts, claimed, units))), float(units * facts.unit))


def _claims(facts: Facts, claimed: list[Claimed], units: int) -> Iterator[dict[str, Any]]:
    """All claims of a certificate, in order."""
    yield {"certificate": 1, "instance": facts.instance.name, "digest": facts.instance.digest}
    for claims, cut in claimed:
        yield from claims
        yield {"cut": cut.needed}
    yield {"units": units, "bound": str(units * facts.unit)}


def _claimed(facts: Facts, problem: Problem, priced: _Prices) -> Claimed:
    """The cut that the checker accepts at given prices, with its claims."""
    prices: Prices = {}
    for pool in facts.pools:
        for at in next((one.slice_types for one in problem.pools if _same(one, pool)), ()):
            prices[pool.name, problem.segments.slice_types[at].profile] = int(priced.slices[at])
    claims: list[dict[str, Any]] = [{"slice": list(key), "price": price} for key, price in prices.items()]
    needed, steps = 0, {name: one for name, one in priced.steps.items() if one}
    for one in facts.instance.workloads:
        least = min(facts.needs(one.name, prices, steps.get(one.name, ())) or 0, priced.needs.get(one.name, 0))
        shared = {"steps": list(map(list, steps[one.name]))} if one.name in steps else {}
        claims.append({"workload": one.name, "needs": least} | shared)
        needed += least
    most = []
    for pool in facts.pools:
        target = next((worth for one, worth in zip(problem.pools, priced.worth, strict=True) if _same(one, pool)), 0)
        most.append(facts.most(pool, prices, steps, target))
        claims.append({"gpu": pool.name, "most": most[-1]})
    return claims, Cut(needed, tuple(most))


def _same(one: ProblemPool, pool: Pool) -> bool:
    """Whether two pools, of the search and of the checker, have the same GPUs."""
    return (one.gpu, one.mig) == (pool.entry.gpu, pool.entry.partitioned)


def _of_values(problem: Problem, until: Deadline, enough: float | None) -> list[_Prices]:
    """The values of replicas that prove the best bound, as steps of workloads that share GPUs."""
    instance = problem.instance
    if not applies(instance):
        return []
    found, steps, needs = value_bound(instance), dict[str, Steps](), dict[str, int]()
    for units in found.rounds(until):
        if enough is not None and found.problem.objective(units) >= enough:
            break
    if found.values is None or found.center is None:
        return []
    for at, one in enumerate(found.classes):
        rps, value = found.values.rps[at], found.values.value[at]
        least = np.floor(found.least_value(found.values, at, one.rates_rps) * FINE).astype(int)
        for member, rate_rps, needed in zip(one.members.tolist(), one.rates_rps.tolist(), least.tolist(), strict=True):
            steep = np.geomspace(rate_rps * CERTIFICATE.lowest, rate_rps, CERTIFICATE.steps)
            rates = np.union1d(steep, rate_rps / np.arange(1, 5))
            prices = np.maximum.accumulate(np.floor(np.interp(rates, rps, value) * FINE).astype(int))
            name, rates[0] = instance.workloads[member].name, 0.0  # else tiny replicas would carry rates for nothing
            if found.single[at]:
                rates, prices = rates[-1:], prices[-1:]
            steps[name] = list(zip(rates.tolist(), prices.tolist(), strict=True))
            needs[name] = needed
    slices = np.ceil(found.center.slices * FINE).astype(int)
    return [_Prices(slices, steps, needs, [math.ceil(one * FINE) for one in found.worth])]


def _of_slices(problem: Problem, until: Deadline) -> list[_Prices]:
    """The prices of slices by which replica sets were mixed, where every replica has a slice to itself."""
    names = [one.name for one in problem.instance.workloads]
    return [_Prices(prices, {}, dict(zip(names, needed.tolist(), strict=True)),
                    [int((pool.partitions @ prices).max()) for pool in problem.pools])
            for prices, needed in cuts_of(problem.instance, problem.segments, until)]


def _units(facts: Facts, claimed: list[Claimed]) -> int:
    """The bound that cuts prove, in units of price: the least price of GPUs that satisfy all of them."""
    cuts = [facts.spread(), *(cut for _, cut in claimed)]
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
