"""``provision buy``: what to reserve for demand over time. ``ration``: who goes without where GPUs are short."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from provision import InputError, write
from provision.answers.margins import margins_of
from provision.buying import purchase
from provision.buying.buy import GAP, GROWTH, buy, with_demand
from provision.commands.planning.solve import print_answer
from provision.commands.verb import Given, Seconds, Writing, planned, read_instance, verdict
from provision.draw.figures import write_figure
from provision.draw.output import Rows, at_least, number
from provision.draw.progress import progress, telling
from provision.draw.verdict import money
from provision.formulations.master.rationing import Level
from provision.instances.files.files import check_writable
from provision.models.base.arguments import local, operand, option, written
from provision.models.base.clock import Deadline
from provision.models.base.fields import Count, Flag, Name, Positive
from provision.models.base.objects import known
from provision.models.problem.search import Incumbent
from provision.rationing import ration as rationing
from provision.rationing.ration import Portion, WayBack, ration


class Buy(Writing):
    instance: str = operand("INSTANCE", "a shipped instance or a file; buying in it states demand and offers")
    demand: str | None = local(None, "F", "CSV of time,workload,rate_rps, or a column per workload: the demand")
    zone: Name | None = local(None, "Z", "the time zone of the times in --demand that name none, as Europe/Berlin")
    growth: tuple[Annotated[Positive, Field(le=1000)], ...] = option(GROWTH, "P,P", "percent more traffic to price",
                                                                     most=10)
    few_changes: Flag = option(False, None, "replan each period from the one before, with the GPUs that are bought")
    time_limit_s: Seconds = option(120.0, "S", "seconds for everything")
    gap: Annotated[float, Field(ge=0, lt=1)] = option(GAP, "G", "the search may end at this relative gap")
    seed: Count = option(0, "N", "for methods that draw numbers")
    out: str | None = local(None, "DIR", "write each plan, and the instance that it was verified for, into this folder")
    png: str | None = written("draw GPUs and cost over time here (.png or .svg)", what="picture")

    def job(self, given: Given) -> dict[str, Any]:
        found = buy(given.instance, self.time_limit_s, self.gap, self.growth, self.few_changes, self.seed,
                    lambda cost, bound: given.incumbent(Incumbent(cost, bound)))
        return found.summary() | {"answers": purchase.told(found)}

    def run(self) -> int:
        instance = read_instance(self.instance)
        if self.zone and not self.demand:
            raise InputError(f"--zone {self.zone}: is for the times in --demand; state buying.zone in the instance")
        if self.demand:
            instance = with_demand(instance, self.demand, self.zone)
        if self.out:
            check_writable(Path(self.out, _name(0, "json")), self.force)
        with progress(f"buying for {instance.name}") as report:
            found = buy(instance, self.time_limit_s, self.gap, self.growth, self.few_changes, self.seed,
                        lambda cost, bound: report(Incumbent(cost, bound)))
        if found.cost is not None and self.png:
            from provision.buying.figure import buying_figure  # matplotlib is an extra

            write_figure(buying_figure(found), self.png, self.force)
        for at, (period, plan) in enumerate(found.plans if self.out else ()):
            write(period, Path(self.out or "", _name(at, "yaml")), self.force)
            write(plan, Path(self.out or "", _name(at, "json")), self.force)
        text = purchase.told(found)
        if found.plans and self.out:
            text.append(f"{len(found.plans)} plans with their instances written to {self.out}")
        content = found.summary() | {"plot_file": self.png if found.cost is not None else None}
        return self.answer(content, text, verdict(found.cost is not None, found.status))


def _name(at: int, suffix: str) -> str:
    return f"plan-{at:03d}.{suffix}"


COLUMNS = ("workload", "priority", "weight", "asked, requests/s", "served", "share")


class Ration(Writing):
    instance: str = operand("INSTANCE", "a shipped instance or a file")
    budget_per_hour: Positive | None = option(
        None, "B", "$ per hour that all GPUs together may cost (default: what the fleet's counts allow)")
    time_limit_s: Seconds = option(60.0, "S", "seconds for all of it")
    seed: Count = option(0, "N", "for methods that draw numbers")
    out: str | None = written("write the plan here (.json, else YAML)")
    instance_out: str | None = written("write the instance of what is served here, to which the plan belongs")

    def job(self, given: Given) -> dict[str, Any]:
        found = ration(given.instance, self.budget_per_hour, self.time_limit_s, self.seed)
        served = found.instance.model_dump(mode="json", exclude_none=True)
        return found.summary() | {"lines": list(lines(found)), "served": served} | planned(
            found.result.plan, found.result.report)

    def run(self) -> int:
        end = Deadline(self.time_limit_s)
        with telling("ration") as tell:
            found = ration(self.instance, self.budget_per_hour, self.time_limit_s, self.seed, tell)
        if self.out:
            write(known(found.result.plan), self.out, self.force)
        if self.instance_out:
            write(found.instance, self.instance_out, self.force)
        table = Rows(COLUMNS, [(one.workload, one.priority, one.weight, one.asked_rps, round(one.served_rps, 3),
                                at_least(one.share)) for one in found.portions])
        code = verdict(found.result.status != "refuted", found.result.status)
        self.answer(found.summary() | {"plan_file": self.out, "instance_file": self.instance_out},
                    [table, *lines(found), ""], code)
        if not self.as_json:
            plan = found.result.plan if found.result.verified else None
            print_answer(found.instance, found.result, margins_of(found.instance, plan, end) if plan else None)
        return code


def lines(found: rationing.Ration) -> Iterator[str]:
    """Yield a sentence for every level of priority, and for every workload that goes without."""
    yield from map(_level, found.levels)
    if not found.short:
        yield "Nobody goes without."
    for one in sorted(found.short, key=lambda one: -one.priority):
        yield _portion(one, found.budget_per_hour)


def _level(one: Level) -> str:
    """What a level is served, and what is proven."""
    above = "" if one.bound is None or one.proven else f"; no plan serves more than {number(one.bound)}, proven"
    proven = ". Proven: no plan that keeps the floors serves more" if one.proven else above or "; nothing is proven"
    part = at_least(one.served / one.asked) if one.asked else "100%"
    return f"Priority {one.priority}: {number(one.served)} of {number(one.asked)} weighted requests/s ({part}){proven}."


def _portion(one: Portion, budget: float | None) -> str:
    """Why and how much a workload goes without, and what would bring it back."""
    weightless = " (its weight is 0, so nobody counts it)" if one.weight == 0 else ""
    what = f"{one.workload} is left out{weightless}" if one.share == 0 else (
        f"{one.workload} is cut by {number(one.asked_rps - one.served_rps)} requests/s ({1 - one.share:.1%})")
    if one.reason:
        return f"{what}: {one.reason}."
    ways = [] if one.back is None else list(_ways(one.back, budget))
    return f"{what}; {' or '.join(ways)} would bring it back." if ways else f"{what}; no way back was found in time."


def _ways(back: WayBack, budget: float | None) -> Iterator[str]:
    """Yield what would bring a workload back, in words."""
    some = "" if back.proven else "at most "
    if budget is not None and back.more_per_hour is not None:
        yield f"{some}{money(max(back.more_per_hour, 0.0))} more"
    elif back.gpus:
        gpus = " and ".join(f"{count} {gpu}" for gpu, count in back.gpus.items())
        yield f"{some}{gpus} more" + ("" if back.more_per_hour is None else f", {money(back.more_per_hour)}")
    if back.slo_ms is not None:
        yield f"an SLO of {number(back.slo_ms)} ms"
