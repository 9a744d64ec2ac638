"""What an instance states for ``provision buy``: demand by period, reservations, spot GPUs and quotas.

On-demand GPUs are the entries of the fleet; owned ones are those of its entries that are ``committed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Annotated, Any, Literal, NamedTuple, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, Field, model_validator

from provision.models.base.fields import Count, Fraction, Name, NonNegative, Number, Positive, PositiveCount, Record
from provision.models.base.register import did_you_mean

HOURS_PER_YEAR = 8760.0
GAP = 1.5
"""Where no hours are stated, a step of more than this many usual steps is a gap."""
CLOSE_S = 1.0
"""The seconds by which two periods may lie apart or overlap."""
MOST_PERIODS = 10_000
NO_UNIT = {"price", "cost", "monthly", "hourly", "per_hour", "per_month", "price_upfront"}


def _text(given: object) -> object:
    """A date or time as YAML reads it, as text; other values unchanged."""
    return given.isoformat() if hasattr(given, "isoformat") else given


Moment = Annotated[str, BeforeValidator(_text), Field(strict=True, max_length=40)]
"""A moment in ISO 8601, such as ``2026-01-05 00:00``; in the stated time zone if it names none."""


class _Priced(Record):
    """Base of offers: refuses prices that do not name their unit."""

    gpu: Name

    @model_validator(mode="before")
    @classmethod
    def _with_unit(cls, given: Any) -> Any:
        for name in given if isinstance(given, dict) else ():
            if name in NO_UNIT:
                units = ", ".join(one for one in ("upfront", "price_per_month", "price_per_hour")
                                  if one in cls.model_fields)
                raise ValueError(f"{name}: has no unit; write it in $ as {units}")
        return given


class Reservation(_Priced):
    """GPUs that may be reserved for one or three years: each costs ``upfront`` $ when its term begins and
    ``price_per_month`` $ until it ends. By default reservations begin with the table, and anew as each term ends; with
    ``begins: any`` they may begin with any period.
    """

    years: Literal[1, 3]
    upfront: NonNegative = 0.0
    price_per_month: NonNegative = 0.0
    at_most: Count | None = None
    begins: Literal["terms", "any"] = "terms"

    @model_validator(mode="after")
    def _costs(self) -> Self:
        if not self.upfront and not self.price_per_month:
            raise ValueError("a reservation costs something; add upfront or price_per_month, in $")
        return self

    @property
    def per_hour(self) -> float:
        """What a reserved GPU costs in $ per hour of its term, the upfront payment included."""
        return (self.upfront + self.price_per_month * 12 * self.years) / (HOURS_PER_YEAR * self.years)

    @property
    def named(self) -> str:
        """The option in words."""
        years = "1 year" if self.years == 1 else f"{self.years} years"
        return f"reserved {years}" + (f", {self.upfront:,.0f} $ upfront" if self.upfront else "")


class SpotOffer(_Priced):
    """Spot GPUs of one type; ``interruption_per_month`` is the probability that one is taken back within a month."""

    price_per_hour: NonNegative
    interruption_per_month: Annotated[Number, Field(ge=0, lt=1)]
    count: Count | None = None


class Spot(Record):
    """Spot GPUs, and ``share``, the largest part of a workload's rate that may stand on them, all types together;
    ``shares`` states another part for some workloads.
    """

    share: Fraction
    shares: dict[Name, Annotated[Number, Field(ge=0, le=1)]] = Field(default={})
    offers: tuple[SpotOffer, ...] = Field(min_length=1)


class Period(Record):
    """One row of the demand: rates in requests/s from ``start`` on. Without ``hours`` it lasts until the next row. A
    workload that the row does not name has its own rate.
    """

    start: Moment
    hours: Annotated[Positive, Field(le=1e6)] | None = None
    rates: dict[Name, NonNegative] = Field(default={})


class Growth(Record):
    """Demand that grows from the rates of the workloads: ``count`` periods of ``hours``, ``per_year`` more each year
    (0.3 is 30 %), compounded.
    """

    start: Moment
    hours: Annotated[Positive, Field(le=1e6)]
    count: Annotated[PositiveCount, Field(le=MOST_PERIODS)]
    per_year: Annotated[Number, Field(gt=-1, le=100)]


class Span(NamedTuple):
    """A period with its absolute start, its hours, the rates by workload, and a factor on all other rates."""

    start: datetime
    hours: float
    rates: dict[str, float]
    factor: float = 1.0

    @property
    def end(self) -> datetime:
        """The moment at which the period ends."""
        return self.start + timedelta(hours=self.hours)


class Buying(Record):
    """Demand by period and what may be bought. ``zone`` is the time zone (IANA, such as ``Europe/Berlin``) of moments
    that name none, and in which results are told. ``quota`` bounds the GPUs of a type, whatever option pays for them.
    """

    zone: Name | None = None
    demand: Growth | Annotated[tuple[Period, ...], Field(min_length=1, max_length=MOST_PERIODS)] | None = None
    reserve: tuple[Reservation, ...] = ()
    spot: Spot | None = None
    quota: dict[Name, Count] = Field(default={})

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        self.spans()
        return self

    def time_zone(self) -> ZoneInfo | None:
        """The stated time zone; None if there is none.

        Raises
        ------
        ValueError
            If it is unknown.
        """
        try:
            return None if self.zone is None else ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"zone: there is no time zone {self.zone!r}; name one like Europe/Berlin or UTC") from None

    def spans(self) -> list[Span]:
        """All periods in order; none without demand.

        Raises
        ------
        ValueError
            If a moment is none, or periods overlap or leave gaps.
        """
        zone = self.time_zone()
        if self.demand is None:
            return []
        if isinstance(self.demand, Growth):
            start, hours, grown = _moment("demand.start", self.demand.start, zone), self.demand.hours, self.demand
            return [Span(start + timedelta(hours=hours * at), hours, {},
                         (1 + grown.per_year) ** (at * hours / HOURS_PER_YEAR)) for at in range(grown.count)]
        starts = [_moment(f"demand[{at}].start", row.start, zone) for at, row in enumerate(self.demand)]
        steps = [(after - before).total_seconds() / 3600 for before, after in pairwise(starts)]
        usual = median(steps) if steps else 0.0
        found: list[Span] = []
        for at, (row, start) in enumerate(zip(self.demand, starts, strict=True)):
            if row.hours is None and not steps:
                raise ValueError("demand[0].hours: one period alone has no length; add hours")
            hours = row.hours or (steps[at] if at < len(steps) else steps[-1])
            if row.hours is None and at < len(steps) and hours > GAP * usual:
                raise ValueError(f"demand[{at + 1}].start: {self.demand[at + 1].start}: a gap of {hours - usual:g} h "
                                 "before it; add the rows that are missing, or hours")
            if found:
                apart = (start - found[-1].end).total_seconds()
                if abs(apart) > CLOSE_S:
                    what = ("a gap of {} h after the period before; add a row for it" if apart > 0 else
                            "overlaps the period before by {} h; correct start or hours")
                    raise ValueError(f"demand[{at}].start: {row.start}: " + what.format(f"{abs(apart) / 3600:g}"))
            found.append(Span(start, hours, dict(row.rates)))
        return found

    def check(self, gpus: Sequence[str], owned: dict[str, int], workloads: Sequence[str]) -> None:
        """Refuse names that the instance lacks, and quotas that contradict each other.

        Raises
        ------
        ValueError
            If there are such.
        """
        offers = self.spot.offers if self.spot else ()
        named = [(f"reserve[{at}].gpu", one.gpu) for at, one in enumerate(self.reserve)]
        named += [(f"spot.offers[{at}].gpu", one.gpu) for at, one in enumerate(offers)]
        for field, gpu in [*named, *(("quota", gpu) for gpu in self.quota)]:
            if gpu not in gpus:
                raise ValueError(f"buying.{field}: {gpu!r} is not in the fleet; add it there, with count: 0 if it is "
                                 f"not sold on demand{did_you_mean(gpu, gpus)}")
        for gpu, most in self.quota.items():
            if most < owned.get(gpu, 0):
                raise ValueError(f"buying.quota: {most} {gpu} contradict the {owned[gpu]} that are committed in the "
                                 "fleet; raise the quota")
        rows = () if self.demand is None or isinstance(self.demand, Growth) else self.demand
        rates = [(f"demand[{at}].rates", name) for at, row in enumerate(rows) for name in row.rates]
        for field, name in [*rates, *(("spot.shares", name) for name in (self.spot.shares if self.spot else ()))]:
            if name not in workloads:
                raise ValueError(f"buying.{field}: there is no workload {name!r}; it has "
                                 f"{', '.join(workloads[:10])}{did_you_mean(name, workloads)}")


def _moment(field: str, text: str, zone: ZoneInfo | None) -> datetime:
    """The moment that a text names, in UTC."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{field}: {text!r} is no date and time; write it like 2026-01-05 00:00") from None
    if found.tzinfo is None and zone is None:
        raise ValueError(f"{field}: {text!r} names no time zone; add zone: Europe/Berlin (or another) to buying")
    moment = (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)
    if found.tzinfo is None and moment.astimezone(zone).replace(tzinfo=None) != found:
        raise ValueError(f"{field}: {text!r} does not exist in {zone}, where clocks go forward then; name another hour")
    return moment
