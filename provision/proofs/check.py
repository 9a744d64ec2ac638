"""Checks the claims of a certificate; its bound is proven if every claim holds.

A certificate has several *cuts*. Each has its own prices of slices, and of replicas on shared slices. At these prices,
a GPU of type t is worth at most ``most[t]``, and the replicas of a workload are worth at least what the workload needs.
So the GPUs of any plan are together worth at least the sum of all needs.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import pairwise
from math import ceil

from provision.models.base.errors import InputError
from provision.models.base.tolerances import LOOSE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.igniter import IgniterProfiles
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.proofs.demand import Cut, Pool, Segments, Steps, affordable, credited, least_price, pools_of, rate_of
from provision.proofs.lines import MOST, MOST_UNITS, HardError, Line, unsealed
from provision.proofs.sharing import Sharing

Prices = dict[tuple[str, str], int]
"""The price of a slice by the name of its pool and its profile."""
MOST_CUTS, MOST_STEPS = 100, 20_000
"""The most cuts of a certificate, and the most steps of one cut."""
RATES_RPS = 0.0, 1e12
"""The lowest and the highest rate of a step."""


class Facts:
    """What claims are checked against: the GPUs of the instance, and what replicas can carry on their slices."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.segments = instance, Segments(instance)
        self.unit, self.pools = pools_of(instance)
        self.slices = [(pool, profile) for pool in self.pools for profile in pool.entry.profiles]
        self.shared = [data for entry in instance.fleet for data in instance.sharing_files(entry.gpu)]
        other = [f"slices shared by data of kind {data.kind}" for data in self.shared
                 if not isinstance(data, IgniterProfiles)]
        other += [THROUGHPUT] if instance.objective == THROUGHPUT else []
        other += ["tokens" for one in instance.workloads if one.tokens]
        if other:
            raise InputError(f"{instance.name}: there are no certificates for {other[0]}; leave --certificate out")

    def needs(self, name: str, prices: Prices, steps: Steps) -> int | None:
        """The least price of replicas that carry a workload's rate; None if no replicas carry it."""
        one = self.instance.workload[name]
        asked = rate_of(self.instance.planned_rps(one))
        alone = [(rate, prices.get((pool.name, profile), 0)) for pool, profile in self.slices
                 if (rate := self.segments.carried(one, pool.entry, profile)) is not None]
        choices = alone + (credited(steps, asked) if self.shared else [])
        return least_price(one.min_replicas, one.max_replicas, asked, choices)

    def most(self, pool: Pool, prices: Prices, steps: Mapping[str, Steps], target: int, first: bool = False) -> int:
        """An upper bound on what a GPU of a pool is worth, at least ``target``: the price of its dearest partition or
        set of replicas. With ``first`` it is ``target`` or some worth above it. Raises HardError if there are too many
        sets.
        """
        own = [prices.get((pool.name, profile), 0) for profile in pool.entry.profiles]
        most = max(target, *(sum(int(many) * price for many, price in zip(one, own, strict=True))
                             for one in pool.partitions))
        for data in () if pool.entry.partitioned else self.instance.sharing_files(pool.entry.gpu):
            assert isinstance(data, IgniterProfiles)
            clients = pool.entry.type.slice_mps_clients(WHOLE) if pool.entry.mps else 1
            known = [(self.instance.workload[name], several) for name, several in steps.items()]
            most = Sharing(self.instance, data, clients, known).most(most, first)
        return most

    def spread(self) -> Cut:
        """The cut from limits on shares: if a GPU may carry at most 1 / k of the rate of some workload, a plan has at
        least k GPUs.
        """
        shares = [Fraction(one.max_share_per_gpu) for one in self.instance.workloads if one.rate_rps > 0]
        return Cut(max((ceil(1 / share - Fraction(LOOSE)) for share in shares), default=0), (1,) * len(self.pools))


class Claims:
    """The claims of one cut, in this order: the prices of slices, what workloads need, and what a GPU of each pool is
    worth at most.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.prices: Prices = {}
        self.steps: dict[str, Steps] = {}
        self.needs: dict[str, int] = {}
        self.most: dict[str, int] = {}

    def read(self, line: Line) -> None:
        """Check one claim, and keep it for those that follow. A claim that does not hold raises a RefusedError."""
        fields, facts = line.fields, self.facts
        pool = next((pool for pool in facts.pools if fields.get("gpu") == pool.name), None)
        slices = [(pool.name, profile) for pool, profile in facts.slices]
        place = next((one for one in slices if fields.get("slice") == [*one]), None)
        name = next((name for name in facts.instance.workload if fields.get("workload") == name), None)
        if place is not None and place not in self.prices and not self.needs:
            line.only("slice", "price")
            self.prices[place] = line.whole("price")
        elif name is not None and name not in self.needs and not self.most:
            line.only("workload", "needs", *(["steps"] if "steps" in fields else []))
            self.steps[name], self.needs[name] = _steps(line), line.whole("needs")
            if sum(map(len, self.steps.values())) > MOST_STEPS:
                raise line.refused(f"has one step too many; a cut may have {MOST_STEPS:,}")
            least = facts.needs(name, self.prices, self.steps[name])
            if least is not None and least < self.needs[name]:
                raise line.refused(f"workload {name} needs {least}, not {self.needs[name]}")
        elif pool is not None and pool.name not in self.most:
            line.only("gpu", "most")
            self.most[pool.name] = line.whole("most")
            worth = facts.most(pool, self.prices, self.steps, self.most[pool.name], first=True)
            if worth > self.most[pool.name]:
                raise line.refused(f"a GPU of {pool.name} may be worth {worth}, not {self.most[pool.name]} at most")
        else:
            raise line.refused("says nothing that belongs here, or what another line says")

    def cut(self, line: Line) -> Cut:
        """The cut that all claims together prove."""
        line.only("cut")
        needed = sum(self.needs.values())
        if line.whole("cut", max(needed, MOST_UNITS)) != needed:
            raise line.refused(f"all workloads need {needed}, not {line.fields['cut']}")
        if missing := [pool.name for pool in self.facts.pools if pool.name not in self.most]:
            raise line.refused(f"what a GPU of {missing[0]} is worth is missing")
        return Cut(needed, tuple(self.most[pool.name] for pool in self.facts.pools))


def check(instance: Instance, texts: Iterable[str]) -> Fraction:
    """The bound of a certificate on the objective, after every claim was recomputed.

    Raises RefusedError for the first line that does not hold or takes too long to check, and InputError when the
    certificate is of another instance or there are none for it.
    """
    first, *lines = [*unsealed(texts)] or [Line(1, {})]
    if type(first.fields.get("certificate")) is not int or first.fields["certificate"] != 1 or not lines:
        raise first.refused("does not begin a certificate of version 1")
    if first.fields.get("digest") != instance.digest:
        raise InputError(f"the certificate is of {first.fields.get('instance')}, or another state of it, not of "
                         f"{instance.name} as it is; solve it again with --certificate")
    first.only("certificate", "instance", "digest")
    if first.fields["instance"] != instance.name:
        raise first.refused(f"the instance is {instance.name}, not {str(first.fields['instance'])[:40]}")
    line = first
    try:
        facts = Facts(instance)
        cuts, claims = [facts.spread()], Claims(facts)
        for line in lines[:-1]:
            if "cut" in line.fields and len(cuts) <= MOST_CUTS:
                cuts.append(claims.cut(line))
                claims = Claims(facts)
            else:
                claims.read(line)
        line = lines[-1]
        line.only("units", "bound")
        units = line.whole("units", MOST_UNITS)
        if units and affordable(facts.pools, cuts, units - 1):
            raise line.refused(f"GPUs for {(units - 1) * facts.unit} satisfy all cuts")
    except HardError:
        raise line.refused("takes too long to check") from None
    if line.fields["bound"] != str(units * facts.unit):
        raise line.refused(f"the bound is {units * facts.unit}, not {str(line.fields['bound'])[:40]}")
    return units * facts.unit


def _steps(line: Line) -> Steps:
    """The prices of a workload's replicas on shared slices, by rate."""
    steps = line.fields.get("steps", [])
    valid = isinstance(steps, list) and all(isinstance(one, list) and len(one) == 2 for one in steps) and all(
        type(rate) in (int, float) and RATES_RPS[0] <= rate <= RATES_RPS[1] and type(price) is int
        and 0 <= price <= MOST for rate, price in steps)
    if not valid or any(not (rate < more and price <= dearer) for (rate, price), (more, dearer) in pairwise(steps)):
        raise line.refused(f"steps should be rising pairs of a rate and a whole number from 0 to {MOST:,}")
    return [(float(rate), price) for rate, price in steps]
