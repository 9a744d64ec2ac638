"""``provision explain`` and ``review``: why a plan is as it is, and what a change of its instance does."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from provision import InputError, read_plan, write
from provision.answers.explain import explain
from provision.answers.review import COLUMNS, review
from provision.commands.verb import Given, OnPlan, Seconds, Writing, given_plan, planned, read_instance
from provision.draw.output import Rows
from provision.draw.progress import progress
from provision.models.base.arguments import local, operand, option, written
from provision.models.base.fields import Count, Flag, Name, NonNegative


class Explain(OnPlan):
    """``provision explain``: for one workload or all, compared with a GPU type or all of the fleet."""

    workload: Name | None = option(None, "W", "tell of this workload alone")
    on: Name | None = option(None, "GPU", "compare with this GPU type, also one that the fleet lacks")
    before: str | None = local(None, "PLAN", "the plan that ran before: tell what changes")
    time_limit_s: Seconds = option(20.0, "S", "seconds")
    markdown: Flag = local(False, None, "as Markdown, such as for a pull request")

    def run(self) -> int:
        plan, instance = given_plan(self.plan, self.instance)
        if instance is None:
            raise InputError(f"{self.plan}: made for {plan.instance}, which does not ship; name its file before it")
        before = read_plan(self.before, instance) if self.before else None
        with progress(f"explaining {self.plan}"):
            found = explain(instance, plan, self.workload, self.on, before, self.time_limit_s)
        heading, item = ("### {}\n", "- {}") if self.markdown else ("{}:", "  {}")
        return self.answer(found.summary(), (line for title, lines in found.sections().items()
                                             for line in (heading.format(title), *map(item.format, lines))))

    def job(self, given: Given) -> dict[str, Any]:
        found = explain(given.instance, given.plan, self.workload, self.on, None, self.time_limit_s)
        return found.summary() | {"sections": found.sections()}


def _fraction(given: object) -> object:
    """A fraction from a text such as 0.05 or 5%. A text above 1 is refused, since percent may be meant."""
    try:
        part = float(given.rstrip("%")) if isinstance(given, str) else given
    except ValueError:
        return given
    if isinstance(given, str) and isinstance(part, float):
        if given.endswith("%"):
            return part / 100
        if part > 1:
            raise ValueError(f"write {part:g}% or {part / 100:g}")
    return part


Part = Annotated[NonNegative, BeforeValidator(_fraction)]
"""A fraction, which may also be written in percent."""


class Review(Writing):
    base: str = operand("BASE", "the instance before the change")
    instance: str = operand("CHANGED", "the instance after it")
    before: str | None = local(None, "PLAN", "the plan that runs (default: a plan for BASE)")
    after: str | None = local(None, "PLAN", "the plan that comes with the change (default: one that moves little)")
    max_cost_increase: Part | None = option(None, "PART", "the most that the cost may grow: 5% or 0.05")
    min_headroom: Part | None = option(None, "PART", "traffic that each workload must bear beyond its rate: 10% or 0.1")
    max_disturbance: Count | None = option(None, "N", "the most slices destroyed and replicas started")
    time_limit_s: Seconds = option(60.0, "S", "seconds for all of it")
    markdown: Flag = local(False, None, "as Markdown, such as for a pull request")
    out: str | None = written("write the plan after the change here (.json, else YAML)")

    def run(self) -> int:
        base, instance = read_instance(self.base), read_instance(self.instance)
        before = read_plan(self.before, base) if self.before else None
        after = read_plan(self.after, instance) if self.after else None
        with progress(f"reviewing {self.instance}"):
            found = review(base, instance, before, after, self.max_cost_increase, self.min_headroom,
                           self.max_disturbance, self.time_limit_s)
        if self.out and found.after is not None:
            write(found.after.plan, self.out, self.force)
        text: list[str | Rows] = [found.markdown()] if self.markdown else [
            found.verdict, *("\n  ".join([f"{title}:", *lines]) for title, lines in found.sections().items()),
            Rows(COLUMNS, found.table(), True)]
        return self.answer(found.summary() | {"plan_file": self.out if found.after else None}, text, found.exit_code)

    def job(self, given: Given) -> dict[str, Any]:
        found = review(given.base, given.instance, None, None, self.max_cost_increase, self.min_headroom,
                       self.max_disturbance, self.time_limit_s)
        new = found.after.result if found.after else None
        return found.summary() | (planned(new.plan, new.report) if new else planned(None, None))
