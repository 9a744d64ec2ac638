"""Checks the claims of a certificate; its bound is proven if every claim holds.

A certificate has several *cuts*. Each has its own prices of slices, and of replicas on shared slices. At these prices,
a GPU of type t is worth at most ``most[t]``, and the replicas of a workload are worth at least what the workload needs.
So the GPUs of any plan are together worth at least the sum of all needs.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil

import numpy as np

from provision.models.base.errors import InputError
from provision.models.base.tolerances import LOOSE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.igniter import IgniterProfiles
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.proofs.demand import Segments, Steps, credited, least_price, rate_of
from provision.proofs.fleet import Cut, Pool, affordable, pools_of
from provision.proofs.lines import Line, unsealed
from provision.proofs.sharing import Sharing

Prices = dict[tuple[str, str], int]
"""The price of a slice by the name of its pool and its profile."""


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
        alone = [(self.segments.carried(one, pool.entry, profile), prices.get((pool.name, profile), 0))
                 for pool, profile in self.slices]
        return least_price(one, asked, alone + (credited(steps, asked) if self.shared else []))

    def most(self, pool: Pool, prices: Prices, steps: Mapping[str, Steps], target: int) -> int:
        """An upper bound on what a GPU of a pool is worth, at least ``target``: the price of its dearest partition or
        set of replicas.
        """
        own = [prices.get((pool.name, profile), 0) for profile in pool.entry.profiles]
        most = max(target, *(int(np.dot(one, own)) for one in pool.partitions))
        for data in () if pool.entry.partitioned else self.instance.sharing_files(pool.entry.gpu):
            assert isinstance(data, IgniterProfiles)
            clients = pool.entry.type.slice_mps_clients(WHOLE) if pool.entry.mps else 1
            known = [(self.instance.workload[name], several) for name, several in steps.items()]
            most = Sharing(self.instance, data, clients, known).most(most)
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
        slices = {(pool.name, profile) for pool, profile in facts.slices} - self.prices.keys()
        if (place := next((one for one in slices if fields.get("slice") == [*one]), None)) and not self.needs:
            self.prices[place] = line.whole("price")
        elif fields.get("workload") in facts.instance.workload.keys() - self.needs.keys() and not self.most:
            name = fields["workload"]
            self.steps[name], self.needs[name] = _steps(line), line.whole("needs")
            found = facts.needs(name, self.prices, self.steps[name])
            if found is not None and found < self.needs[name]:
                raise line.refused(f"workload {name} needs {found}, not {self.needs[name]}")
        elif fields.get("gpu") in {pool.name for pool in facts.pools} - self.most.keys():
            [pool] = [pool for pool in facts.pools if pool.name == fields["gpu"]]
            self.most[pool.name] = line.whole("most")
            found = facts.most(pool, self.prices, self.steps, self.most[pool.name])
            if found > self.most[pool.name]:
                raise line.refused(f"a GPU of {pool.name} may be worth {found}, not {self.most[pool.name]} at most")
        else:
            raise line.refused("says nothing that belongs here, or what another line says")

    def cut(self, line: Line) -> Cut:
        """The cut that all claims together prove."""
        if line.whole("cut") != sum(self.needs.values()):
            raise line.refused(f"all workloads need {sum(self.needs.values())}, not {line.fields['cut']}")
        if missing := [pool.name for pool in self.facts.pools if pool.name not in self.most]:
            raise line.refused(f"what a GPU of {missing[0]} is worth is missing")
        return Cut(line.whole("cut"), tuple(self.most[pool.name] for pool in self.facts.pools))


def check(instance: Instance, texts: Iterable[str]) -> Fraction:
    """The bound of a certificate on the objective, after every claim was recomputed.

    Raises RefusedError for the first line that does not hold, and InputError when the certificate is of another
    instance or there are none for it.
    """
    first, *lines = [*unsealed(texts)] or [Line(1, {})]
    if first.fields.get("certificate") != 1 or not lines:
        raise first.refused("does not begin a certificate of version 1")
    if first.fields.get("digest") != instance.digest:
        raise InputError(f"the certificate is of {first.fields.get('instance')}, or another state of it, not of "
                         f"{instance.name} as it is; solve it again with --certificate")
    facts = Facts(instance)
    cuts, claims = [facts.spread()], Claims(facts)
    for line in lines[:-1]:
        if "cut" in line.fields:
            cuts.append(claims.cut(line))
            claims = Claims(facts)
        else:
            claims.read(line)
    units = lines[-1].whole("units")
    if units and affordable(facts.pools, cuts, units - 1):
        raise lines[-1].refused(f"GPUs for {(units - 1) * facts.unit} satisfy all cuts")
    if lines[-1].fields.get("bound") != str(units * facts.unit):
        raise lines[-1].refused(f"the bound is {units * facts.unit}, not {lines[-1].fields.get('bound')}")
    return units * facts.unit


def _steps(line: Line) -> Steps:
    """The prices of a workload's replicas on shared slices, by rate."""
    try:
        steps = [(float(rate), int(price)) for rate, price in line.fields.get("steps", [])]
    except (TypeError, ValueError):
        steps = [(0.0, -1)]
    if any(not (rate < more and price <= dearer) for (rate, price), (more, dearer) in
           zip([(-1.0, 0), *steps], steps, strict=False)):
        raise line.refused("steps should be rising pairs of a rate and a whole number, 0 or more")
    return steps
