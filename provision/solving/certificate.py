"""Writes certificates of bounds. A certificate has prices of the master program, and claims about them that
`provision.proofs` checks.

The master program proves its bound in floating-point numbers and by its own pricing. The claims, however, are what the
checker computes at the same prices. So a certificate may prove less than the search did, but never more.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from provision.formulations.master.generation import Generation, PricedCut
from provision.formulations.search.problem import Pool as ProblemPool
from provision.formulations.search.problem import Problem
from provision.models.base.clock import Deadline
from provision.models.problem.instance import Instance
from provision.proofs.check import Facts, Prices
from provision.proofs.demand import Steps
from provision.proofs.fleet import Cut, Pool, affordable
from provision.proofs.lines import sealed

MOST_CUTS = 8
"""The most cuts of a certificate: the last ones that raised the bound. Further cuts take time and raise the bound only
a little.
"""


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
    claimed = [_claimed(facts, problem, cut) for cut in generation.cuts[-MOST_CUTS:]]
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
    """The cut that the checker accepts at given prices, with its claims; the functions of the checker compute what they
    say.
    """
    prices: Prices = {}
    for pool in facts.pools:
        for at in next((one.slice_types for one in problem.pools if _same(one, pool)), ()):
            prices[pool.name, problem.segments.slice_types[at].profile] = int(priced.slice_types[at])
    steps = _steps(problem, priced) if facts.shared else {}
    claims: list[dict[str, Any]] = [{"slice": list(key), "price": price} for key, price in prices.items()]
    needed = 0
    for one in facts.instance.workloads:
        least = facts.needs(one.name, prices, steps.get(one.name, ())) or 0
        shared = {"steps": list(map(list, steps[one.name]))} if one.name in steps else {}
        claims.append({"workload": one.name, "needs": least} | shared)
        needed += least
    most = []
    for pool in facts.pools:
        target = next((worth for one, worth in zip(problem.pools, priced.worth, strict=True) if _same(one, pool)), 0)
        most.append(facts.most(pool, prices, steps, target))
        claims.append({"gpu": pool.name, "most": most[-1]})
    return _Claimed(claims, Cut(needed, tuple(most)))


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
            steps = list(zip([0.0, *(rate for rate, _ in rising[1:])], prices, strict=True))
        for member in group.members:
            found[problem.instance.workloads[member].name] = steps
    return found


def _units(facts: Facts, claimed: list[_Claimed]) -> int:
    """The bound that cuts prove, in units of price: the least price of GPUs that satisfy all of them."""
    cuts = [facts.spread(), *(one.cut for one in claimed)]
    low, high = 0, sum(pool.bought(10**18, max(cut.needed for cut in cuts))[1] for pool in facts.pools)
    if not affordable(facts.pools, cuts, high):
        return 0  # no GPUs of the fleet suffice
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if affordable(facts.pools, cuts, middle) else (middle + 1, high)
    return low
