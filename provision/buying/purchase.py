"""A purchase (commitments, costs, a verified plan for every period) and the sentences that tell it.

The sentences tell what to reserve, what it costs, what ends when, what growth costs, and what spot risks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from math import log1p
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np

from provision.buying.known import on_spot_of
from provision.buying.market import APART, ON_DEMAND, OWNED, RESERVED, SPOT, Market
from provision.buying.programs import Choice
from provision.buying.search import LEAST_S, Found, served
from provision.models.base.arrays import Floats
from provision.models.base.errors import MethodError
from provision.models.base.shown import Shown, frame
from provision.models.plans.disturbance import disturbance
from provision.models.plans.plan import Plan, carried_rps
from provision.models.plans.result import relative_gap
from provision.models.problem.buying import HOURS_PER_YEAR
from provision.models.problem.instance import Instance
from provision.models.problem.objective import HOURS_PER_MONTH
from provision.models.problem.workload import FleetEntry
from provision.replanning.replan import replan
from provision.solving.solve import solve
from provision.verification.verify import verify

if TYPE_CHECKING:
    from pandas import DataFrame

@dataclass(frozen=True)
class Reserved:
    """GPUs to reserve: their type, option, number, and moments of begin and end. ``upfront`` is paid at once, and
    ``cost`` is the part of all payments that falls within the table.
    """

    gpu: str
    option: str
    gpus: int
    begins: str
    ends: str
    upfront: float
    cost: float


@dataclass(frozen=True)
class PeriodBought:
    """One period: its start, hours, GPUs by option and type, and cost by option, with the index of its plan and the
    changes from the plan before (slices destroyed and replicas started).
    """

    start: str
    hours: float
    gpus: dict[str, dict[str, int]]
    cost: dict[str, float]
    plan: int
    moved: int


@dataclass(frozen=True)
class Grown:
    """The cost per month, and a bound on it, with all rates ``percent`` higher. ``per_percent`` is the further cost per
    percent. ``short`` is the start of the first period that nothing can serve.
    """

    percent: float
    cost_per_month: float | None
    bound_per_month: float
    per_percent: float | None
    short: str | None


@dataclass(frozen=True)
class SpotTold:
    """What spot GPUs save per month, and what is proven of it; how many are taken back per month on average; and the
    largest parts of a workload's rate that stand on all spot GPUs, and on one of them.
    """

    saves_per_month: float
    saves_at_least: float
    interruptions_per_month: float
    most_share: float
    most_on_one: float


@dataclass(frozen=True)
class End:
    """When a supply (``what``: owned, committed or quota) no longer suffices. ``start`` is the start of the first
    period that needs more; None if there is none. ``proven`` tells whether no plan serves that period within the
    supply.
    """

    what: str
    start: str | None
    proven: bool


@dataclass(frozen=True, repr=False)
class Purchase(Shown):
    """The verified answer of ``provision buy``: ``status`` is optimal, feasible, infeasible or unknown, ``cost`` and
    ``bound`` are in $ for the whole table; ``plans`` are the plans of ``periods``, each with the instance (its rates
    and what is bought then) for which it was verified.
    """

    instance: str
    status: str
    reason: str
    zone: str
    hours: float
    cost: float | None
    bound: float
    reserved: tuple[Reserved, ...] = ()
    periods: tuple[PeriodBought, ...] = ()
    ends: tuple[End, ...] = ()
    growth: tuple[Grown, ...] = ()
    spot: SpotTold | None = None
    solves: int = 0
    seconds: float = 0.0
    plans: tuple[tuple[Instance, Plan], ...] = field(default=())

    @property
    def gap(self) -> float | None:
        """The relative distance of the cost from the bound; None without a purchase."""
        return relative_gap(self.cost, self.bound)

    def per_month(self, cost: float) -> float:
        """A cost of the whole table per month of 730 hours."""
        return cost / self.hours * HOURS_PER_MONTH

    @cached_property
    def options(self) -> dict[str, float]:
        """The cost per month, in $, of every option that costs something."""
        total: defaultdict[str, float] = defaultdict(float)
        for one in self.periods:
            for option, cost in one.cost.items():
                total[option] += self.per_month(cost)
        return {option: cost for option, cost in total.items() if cost}

    @cached_property
    def months(self) -> list[dict[str, Any]]:
        """A row per calendar month in the zone: its cost by option, by the hours of every period that fall into it."""
        zone, rows = UTC if self.zone == "UTC" else ZoneInfo(self.zone), dict[str, defaultdict[str, float]]()
        for one in self.periods:
            at = datetime.fromisoformat(one.start).astimezone(UTC)
            end = at + timedelta(hours=one.hours)
            while at < end:
                first = at.astimezone(zone).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
                after = min(end, (first + timedelta(days=32)).replace(day=1).astimezone(UTC))
                row = rows.setdefault(f"{first:%Y-%m}", defaultdict(float))
                for option, cost in one.cost.items():
                    row[option] += cost * ((after - at).total_seconds() / 3600 / one.hours)
                at = after
        return [{"month": month, **{option: row[option] for option in self.options}} for month, row in rows.items()]

    def summary(self) -> dict[str, Any]:
        """The JSON object that ``provision buy --json`` prints, but for the files."""
        rest = {name: getattr(self, name) for name in ("instance", "status", "reason", "zone", "hours", "cost", "bound",
                                                       "gap", "months", "solves", "seconds")}
        cost = None if self.cost is None else self.per_month(self.cost)
        return rest | {
            "cost_per_month": cost, "bound_per_month": self.per_month(self.bound), "options_per_month": self.options,
            **{name: [asdict(one) for one in getattr(self, name)]
               for name in ("reserved", "periods", "ends", "growth")},
            "spot": asdict(self.spot) if self.spot else None,
            "plans": [plan.model_dump(mode="json", exclude_none=True) for _, plan in self.plans],
        }

    def __repr__(self) -> str:
        cost = "nothing bought" if self.cost is None else f"{self.per_month(self.cost):,.0f} $ per month"
        return f"<Purchase for {self.instance}: {self.status}, {cost}, {len(self.periods)} periods>"

    def to_frame(self) -> DataFrame:
        """A pandas frame with a row per period: its start, hours, GPUs by option and type, and cost."""
        return frame([{"start": one.start, "hours": one.hours,
                       **{f"{option} {gpu}": many for option, gpus in one.gpus.items() for gpu, many in gpus.items()},
                       "cost": sum(one.cost.values()), "plan": one.plan, "moved": one.moved} for one in self.periods])


class Account:
    """Turns a choice of the search into what is told."""

    def __init__(self, market: Market, found: Found, choice: Choice, columns: Sequence[tuple[Plan, tuple[int, ...]]],
                 zone: tzinfo) -> None:
        self.market, self.found, self.choice, self.columns, self.zone = market, found, choice, columns, zone
        self.group_of = {period: at for at, group in enumerate(found.groups) for period in group.periods}

    def moment(self, when: datetime) -> str:
        """A moment in the zone, as text."""
        return when.astimezone(self.zone).isoformat(timespec="minutes")

    def reserved(self) -> tuple[Reserved, ...]:
        """The GPUs to reserve."""
        found = []
        for many, term in zip(self.choice.reserved.astype(int).tolist(), self.market.terms, strict=True):
            if many:
                one, start = self.market.buying.reserve[term.entry], self.market.spans[term.first].start
                hours = timedelta(hours=one.years * HOURS_PER_YEAR)
                found.append(Reserved(one.gpu, one.named, many, self.moment(start), self.moment(start + hours),
                                      many * one.upfront, many * term.cost))
        return tuple(found)

    def committed(self, group: int) -> tuple[Floats, Floats]:
        """(types,) the GPUs that are owned or reserved in a group of periods, and what they cost per hour."""
        gpus, cost = self.market.own.copy(), self.market.own_per_hour.copy()
        for many, term in zip(self.choice.reserved, self.market.terms, strict=True):
            if term.first <= self.found.groups[group].periods[0] <= term.last:
                gpus[term.type] += many
                cost[term.type] += many * self.market.buying.reserve[term.entry].per_hour
        return gpus, cost

    def bought(self, group: int) -> Instance:
        """The instance of a group of periods: its rates, and the GPUs that are paid for then."""
        market, fleet = self.market, list[FleetEntry]()
        gpus, cost = self.committed(group)
        hourly = [(offer, many) for offers, row in ((market.on_demand, self.choice.on_demand[group]),
                                                    (market.spot, self.choice.spot[group]))
                  for offer, many in zip(offers, row, strict=False)]
        for at, entry in enumerate(market.entries):
            same: Counter[float] = Counter()
            for offer, many in hourly:
                same[offer.price] += int(many) if offer.type == at else 0
            price = float(cost[at] / gpus[at]) if gpus[at] else 0.0
            price = price * (1 + APART) + APART if price in same else price
            fleet.append(entry.model_copy(update={"count": int(gpus[at]), "price_per_hour": price, "committed": True,
                                                  "tier": None}))
            fleet += [entry.model_copy(update={"count": many, "price_per_hour": price, "committed": False,
                                               "tier": None}) for price, many in same.items() if many]
        return market.at(self.found.groups[group].rates).replace(fleet=tuple(fleet))

    def plans(self, few_changes: bool, limit_s: float) -> list[tuple[Instance, Plan]]:
        """A verified plan for every group; with ``few_changes`` each is replanned from the one that runs before it.

        Raises
        ------
        MethodError
            If the verifier rejects a plan.
        """
        found: list[tuple[Instance, Plan]] = []
        for at, (plan, _) in enumerate(self.columns):
            instance = self.bought(at)
            plan = instance.adopted(served(self.market, plan, self.found.groups[at].rates))
            before = self.group_of.get(self.found.groups[at].periods[0] - 1)
            if few_changes and before is not None:
                plan = self._near(instance, found[before][1], plan, at, limit_s)
            if not verify(instance, plan).ok:  # a plan for higher demand, which does not hold for this one
                own = solve(instance, time_limit_s=max(limit_s, LEAST_S), replay=False)
                if own.plan is None or not own.verified or not self._is_bought(own.plan, at):
                    start = self.market.spans[self.found.groups[at].periods[0]].start
                    raise MethodError(f"no plan for {self.moment(start)} holds with what is bought; allow more time")
                plan = own.plan
            found.append((instance, plan))
        return found

    def _near(self, instance: Instance, before: Plan, plan: Plan, group: int, limit_s: float) -> Plan:
        """Of a plan and one replanned from the plan before, within what is bought, the one with fewer changes."""
        most = 10 * max(one.price_per_hour or 0.0 for one in instance.fleet) + 1
        near = replan(instance, before, most, time_limit_s=limit_s).plan
        if near is None or disturbance(before, near).moved >= disturbance(before, plan).moved:
            return plan
        return near if self._is_bought(near, group) and verify(instance, near).ok else plan

    def _is_bought(self, plan: Plan, group: int) -> bool:
        """Whether what a plan needs of GPUs that are not spot GPUs is bought for a group of periods."""
        counts, firm = self.market.counts(plan), self.committed(group)[0]
        for offer, many in zip(self.market.on_demand, self.choice.on_demand[group], strict=True):
            firm[offer.type] += many
        on_spot = on_spot_of(self.market, plan) if self.market.spot else ()
        spot = Counter(self.market.types.index(plan.gpus[one].gpu) for one in on_spot)
        return all(counts[at] - spot[at] <= firm[at] for at in range(len(counts)))

    def periods(self, plans: Sequence[tuple[Instance, Plan]]) -> tuple[PeriodBought, ...]:
        """All periods in order."""
        market, rows, last = self.market, list[PeriodBought](), None
        for period, span in enumerate(market.spans):
            at = self.group_of[period]
            committed, per_hour = self.committed(at)
            gpus = {OWNED: market.own, RESERVED: committed - market.own}
            cost = {OWNED: float(market.own_per_hour.sum()), RESERVED: float((per_hour - market.own_per_hour).sum())}
            for option, offers, row in ((ON_DEMAND, market.on_demand, self.choice.on_demand[at]),
                                        (SPOT, market.spot, self.choice.spot[at])):
                gpus[option] = np.zeros(len(market.types))
                for offer, many in zip(offers, row, strict=False):
                    gpus[option][offer.type] += many
                cost[option] = float(sum(offer.price * many for offer, many in zip(offers, row, strict=False)))
            moved = 0 if last in (None, at) else disturbance(plans[last][1], plans[at][1]).moved
            named = {option: {gpu: int(many) for gpu, many in zip(market.types, row, strict=True) if many}
                     for option, row in gpus.items()}
            rows.append(PeriodBought(
                self.moment(span.start), span.hours, {one: row for one, row in named.items() if row},
                {one: value * span.hours for one, value in cost.items() if value}, at, moved))
            last = at
        return tuple(rows)

    def spot(self, firm: tuple[Choice | None, float]) -> SpotTold | None:
        """What spot GPUs save and risk, from the best purchase and the bound without them."""
        market, hours = self.market, self.market.hours
        if not market.buying.spot or firm[0] is None:
            return None
        rate = [-log1p(-one.interruption_per_month) for one in market.buying.spot.offers]
        used = sum(self.choice.spot[at] * group.hours for at, group in enumerate(self.found.groups)) / hours
        most = one_most = 0.0
        for at, (plan, on_spot) in enumerate(self.columns):
            whole, held = carried_rps(plan.gpus), set[int]()
            for kind in range(len(market.types)):
                many = sum(int(bought) for offer, bought in zip(market.spot, self.choice.spot[at], strict=False)
                           if offer.type == kind)
                held |= set([one for one in on_spot if plan.gpus[one].gpu == market.types[kind]][:many])
            on = carried_rps([plan.gpus[one] for one in held])
            most = max([most, *(on[name] / whole[name] for name in on if whole[name])])
            one_most = max([one_most, *(rate_rps / whole[name] for one in held
                                        for name, rate_rps in carried_rps([plan.gpus[one]]).items() if whole[name])])
        month = HOURS_PER_MONTH / hours
        return SpotTold((firm[0].cost - self.choice.cost) * month, max(0.0, (firm[1] - self.choice.cost) * month),
                        float(np.dot(used, rate)), most, one_most)


WHATS = {"owned": "What is owned", "committed": "What is owned and reserved", "quota": "What may be had at all"}


def told(found: Purchase) -> list[str]:
    """Sentences on a purchase."""
    if found.cost is None:
        return [f"{found.instance}: {found.status}: {found.reason}."]
    proof = ("proven: nothing costs less" if found.status == "optimal" else
             f"nothing costs less than {_money(found.per_month(found.bound))} ({found.gap or 0:.2%} away)")
    lines = [f"{found.instance}: {_money(found.per_month(found.cost))} per month over "
             f"{len(found.periods)} period{'s'[:len(found.periods) != 1]}; {proof}."]
    lines += _reserve(found)
    lines += ["By option: " + ", ".join(f"{option} {_money(cost)}" for option, cost in found.options.items())
              + " per month."] if found.options else []
    lines += [_end(one, min(period.hours for period in found.periods)) for one in found.ends]
    lines += _growth(found)
    lines += _spot(found)
    moved = sum(one.moved for one in found.periods)
    lines.append(f"From one period to the next, {moved} slices are destroyed or replicas started in all.")
    return lines


def _money(value: float) -> str:
    return f"{value:,.0f} $"


def _reserve(found: Purchase) -> Iterator[str]:
    for one in found.reserved:
        upfront = f", {_money(one.upfront)} upfront in all" if one.upfront else ""
        yield (f"Reserve {one.gpus} {one.gpu} ({one.option}) from {one.begins[:10]} to {one.ends[:10]}{upfront}; "
               f"{_money(one.cost)} fall within the table{_beyond(found, one)}.")
    if not found.reserved:
        yield "Reserve nothing."


def _beyond(found: Purchase, one: Reserved) -> str:
    """A warning if the table covers less than half of the term; else an empty text."""
    days = (datetime.fromisoformat(one.ends) - datetime.fromisoformat(one.begins)) / timedelta(days=1)
    covered = timedelta(hours=found.hours) / timedelta(days=1)
    return f", which covers at most {covered:,.0f} of its {days:,.0f} days" if covered < days / 2 else ""


def _end(one: End, hours: float) -> str:
    """A sentence on when a supply no longer suffices: the day, and the time if periods are shorter than a day."""
    if one.start is None:
        return f"{WHATS[one.what]} suffices to the end of the table."
    sure = "no longer suffices" if one.proven else "may no longer suffice (not proven)"
    return f"{WHATS[one.what]} {sure} from {one.start[: 16 if hours < 24 else 10].replace('T', ' ')}."


def _growth(found: Purchase) -> Iterator[str]:
    for one in found.growth:
        if one.short:
            yield f"With {one.percent:g} % more traffic what may be had no longer suffices from {one.short[:10]}."
        elif one.cost_per_month is None:
            yield f"With {one.percent:g} % more traffic: nothing found in the time."
        else:
            yield (f"With {one.percent:g} % more traffic: {_money(one.cost_per_month)} per month (at least "
                   f"{_money(one.bound_per_month)}), {_money(one.per_percent or 0.0)} per further percent.")


def _spot(found: Purchase) -> Iterator[str]:
    one = found.spot
    if one is None:
        return
    if not any("spot" in row.gpus for row in found.periods):
        yield "Spot GPUs save nothing here."
        return
    yield (f"Spot GPUs save {_money(one.saves_per_month)} per month (at least {_money(one.saves_at_least)}, proven). "
           f"{one.interruptions_per_month:.2g} of them are taken back per month on average; one takes at most "
           f"{one.most_on_one:.0%} of a workload's traffic with it, all together {one.most_share:.0%}.")
