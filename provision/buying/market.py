"""What can be bought in every period, in arrays: GPU types, offers, reservations, and periods in groups.

Periods with equal demand that the same reservations cover form a group; they have one plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from provision.instances.files.demand import at_rates
from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan
from provision.models.problem.buying import HOURS_PER_YEAR, Buying
from provision.models.problem.instance import Instance
from provision.models.problem.objective import PER_HOUR, objective_of
from provision.models.problem.workload import FleetEntry

OWNED, RESERVED, ON_DEMAND, SPOT = OPTIONS = "owned", "reserved", "on demand", "spot"
APART = 1e-9
"""What the price of committed GPUs is raised by where it is that of others, since entries need to differ."""
PRICE_STEP = 1e-3
"""Prices of the search are whole multiples of this part of the highest one, so that solvers count them exactly."""


class Offer(NamedTuple):
    """GPUs of a type that can be had by the hour: at most ``most`` (infinite for any number) at once."""

    type: int
    price: float
    most: float


class Term(NamedTuple):
    """One possible beginning of a reservation: the entry of ``reserve``, its first period, the last one that it covers,
    and what one GPU of it costs within the table.
    """

    entry: int
    type: int
    first: int
    last: int
    cost: float


class Group(NamedTuple):
    """Periods with the same demand and reservations: rates (workloads,), hours in all, their indices."""

    rates: Floats
    hours: float
    periods: tuple[int, ...]


class Market:
    """The offers of an instance, by GPU type.

    Parameters
    ----------
    instance
        The Instance; it must state ``buying`` with demand, and prices.

    Raises
    ------
    InputError
        If it does not, or if spot GPUs are offered beside workflows.
    """

    def __init__(self, instance: Instance) -> None:
        self.buying = buying = _checked(instance)
        self.instance = instance.replace(buying=None)
        self.names = [one.name for one in instance.workloads]
        self.spans = buying.spans()
        self.entries = list({one.gpu: one for one in instance.fleet}.values())
        self.types = [one.gpu for one in self.entries]
        at = {gpu: index for index, gpu in enumerate(self.types)}
        self.own = np.zeros(len(at))
        self.own_per_hour = np.zeros(len(at))
        for one in instance.fleet:
            if one.committed:
                self.own[at[one.gpu]] += one.count or 0
                self.own_per_hour[at[one.gpu]] += (one.count or 0) * (one.price_per_hour or 0.0)
        self.on_demand = [Offer(at[one.gpu], one.price_per_hour or 0.0, inf if one.count is None else one.count)
                          for one in instance.fleet if not one.committed and one.count != 0]
        self.spot = [Offer(at[one.gpu], one.price_per_hour, inf if one.count is None else one.count)
                     for one in (buying.spot.offers if buying.spot else ())]
        self.quota = np.array([buying.quota.get(gpu, inf) for gpu in self.types], float)
        self.shares = np.array([buying.spot.shares.get(name, buying.spot.share) if buying.spot else 0.0
                                for name in self.names])
        self.terms = [Term(entry, at[one.gpu], first, last, one.per_hour * sum(
                          span.hours for span in self.spans[first:last + 1]))
                      for entry, one in enumerate(buying.reserve)
                      for first, last in self._terms(one.years, one.begins == "any")]
        self.hours = sum(span.hours for span in self.spans)
        self.sunk = float(self.own_per_hour.sum()) * self.hours

    def _terms(self, years: int, anywhere: bool) -> Iterator[tuple[int, int]]:
        """The first and the last period of every term of some years. A period counts to the term in which it begins."""
        starts, at = [span.start for span in self.spans], 0
        while at < len(starts):
            end = starts[at] + timedelta(hours=years * HOURS_PER_YEAR)
            last = max(index for index, start in enumerate(starts) if start < end)
            yield at, last
            at = at + 1 if anywhere else last + 1

    @cached_property
    def caps(self) -> Floats:
        """(types,) the most GPUs of each type that can be had at once; infinite for any number."""
        found = self.own.copy()
        for offer in [*self.on_demand, *self.spot]:
            found[offer.type] += offer.most
        for one in self.buying.reserve:
            found[self.types.index(one.gpu)] += inf if one.at_most is None else one.at_most
        return np.minimum(found, self.quota)

    @cached_property
    def usual(self) -> Floats:
        """(types,) the least price per hour of a GPU that is not owned; for types that are only owned, their price."""
        found = np.full(len(self.types), inf)
        for offer in self.on_demand:
            found[offer.type] = min(found[offer.type], offer.price)
        for one in self.buying.reserve:
            found[self.types.index(one.gpu)] = min(found[self.types.index(one.gpu)], one.per_hour)
        owned = self.own_per_hour / np.maximum(self.own, 1)
        return np.where(np.isfinite(found), found, owned)

    def rates(self, factor: float = 1.0) -> Floats:
        """(periods, workloads) the rates in requests/s, multiplied by a factor."""
        rows = [[span.rates.get(one.name, one.rate_rps * span.factor) for one in self.instance.workloads]
                for span in self.spans]
        return np.array(rows, float) * factor

    def groups(self, factor: float = 1.0) -> list[Group]:
        """The groups of periods, in the order of their first periods, with all rates multiplied by a factor."""
        found: dict[tuple[bytes, bytes], list[int]] = {}
        rates = self.rates(factor)
        for period in range(len(self.spans)):
            covers = bytes(term.first <= period <= term.last for term in self.terms)
            found.setdefault((rates[period].tobytes(), covers), []).append(period)
        return [Group(rates[periods[0]], sum(self.spans[one].hours for one in periods), tuple(periods))
                for periods in found.values()]

    def at(self, rates: Sequence[float] | Floats) -> Instance:
        """The instance with these rates."""
        return at_rates(self.instance, dict(zip(self.names, map(float, rates), strict=True)))

    def priced(self, rates: Floats, prices: Floats, caps: Floats, firm: bool = False) -> Instance:
        """The instance with these rates, in requests/s, prices by type and counts. ``firm`` is for the part that firm
        GPUs carry: it drops least replicas and survival, which firm and spot GPUs provide together.
        """
        fleet = tuple(
            FleetEntry(gpu=one.gpu, mig=one.mig, mps=one.mps, price_per_hour=float(price),
                       count=None if cap == inf else int(cap))
            for one, price, cap in zip(self.entries, prices, caps, strict=True))
        instance = self.at(rates).replace(fleet=fleet)
        if not firm:
            return instance
        left = np.maximum(1 - self.shares, 1e-9)
        return instance.with_policy(survive=None).replace(workloads=tuple(
            one.model_copy(update={"min_replicas": 0, "max_share_per_gpu": min(1.0, one.max_share_per_gpu / part)})
            for one, part in zip(instance.workloads, left, strict=True)))

    def beside(self, rates: Floats, committed: Floats) -> Instance:
        """The instance with these rates, with ``committed`` GPUs (types,) priced just above the cheapest offer of their
        type, and with all others as they are offered, up to the quota.
        """
        offered, fleet = defaultdict[tuple[int, float], float](float), list[FleetEntry]()
        for offer in [*self.on_demand, *self.spot]:
            most = self.quota[offer.type] - committed[offer.type]
            offered[offer.type, offer.price] += min(offer.most, most)
        for at, many in enumerate(committed.tolist()):
            paid = APART + min((price for kind, price in offered if kind == at), default=1.0)
            fleet.append(self.entries[at].model_copy(update={
                "price_per_hour": paid, "count": int(many), "committed": True, "tier": None}))
        fleet += [self.entries[at].model_copy(update={
            "price_per_hour": price, "count": None if many == inf else int(many), "committed": False, "tier": None})
            for (at, price), many in offered.items()]
        return self.at(rates).replace(fleet=tuple(fleet))

    def counts(self, plan: Plan) -> Floats:
        """(types,) the GPUs of a plan by type."""
        gpus = [one.gpu for one in plan.gpus]
        return np.array([gpus.count(gpu) for gpu in self.types], float)


def rounded(prices: Floats) -> Floats | None:
    """Prices in whole multiples of PRICE_STEP, at least one, with the highest at 1; None if all are 0."""
    highest = float(prices.max())
    return np.maximum(np.rint(prices / highest / PRICE_STEP), 1) * PRICE_STEP if highest > 0 else None


def _checked(instance: Instance) -> Buying:
    if instance.buying is None or instance.buying.demand is None:
        raise InputError(f"{instance.name}: states no demand over time; add buying.demand, or give --demand")
    if objective_of(instance).unit != PER_HOUR:
        raise InputError(f"{instance.name}: what to buy follows from prices; give every fleet entry a price_per_hour "
                         "and the objective min_cost")
    if instance.power is not None and instance.power.price_per_kwh:
        raise InputError(f"{instance.name}: power.price_per_kwh: buy counts no energy; add it to the prices of GPUs")
    if instance.places is not None and instance.buying.spot:
        raise InputError(f"{instance.name}: places: buy deals no spot GPUs to nodes; leave places or spot out")
    first: dict[str, FleetEntry] = {}
    for at, one in enumerate(instance.fleet):
        if first.setdefault(one.gpu, one).partitioned != one.partitioned:
            raise InputError(f"{instance.name}: fleet[{at}].mig: {one.gpu} is bought with MIG or without; keep one")
    if instance.buying.spot and instance.workflows:
        raise InputError(f"{instance.name}: buying.spot: stages of workflows, and pools of language models, stand on "
                         "firm GPUs alone; leave spot out")
    return instance.buying
