"""``provision buy``: what to reserve for demand over time, and a plan for every period."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from provision.buying import words
from provision.buying.buy import GAP, GROWTH, buy, with_demand
from provision.commands.verb import Given, Seconds, Writing, read_instance, verdict
from provision.draw.figures import write_figure
from provision.draw.progress import progress
from provision.instances.files.files import check_writable
from provision.instances.read import write
from provision.models.base.arguments import local, operand, option, written
from provision.models.base.errors import InputError
from provision.models.base.fields import Count, Flag, Name, Positive
from provision.models.problem.search import Incumbent


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
        return found.summary() | {"answers": words.told(found)}

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
        text = words.told(found)
        if found.plans and self.out:
            text.append(f"{len(found.plans)} plans with their instances written to {self.out}")
        content = found.summary() | {"plot_file": self.png if found.cost is not None else None}
        return self.answer(content, text, verdict(found.cost is not None, found.status))


def _name(at: int, suffix: str) -> str:
    return f"plan-{at:03d}.{suffix}"
