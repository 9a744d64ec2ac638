"""Tells a purchase in sentences: what to reserve, what it costs, what ends when, what growth costs, what spot risks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from provision.buying.purchase import End, Purchase, Reserved

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
    """From when on a supply no longer suffices: the day, and the time where periods are shorter than a day."""
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
