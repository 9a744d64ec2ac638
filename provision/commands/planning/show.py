"""``provision show`` and ``export``: draw a plan, or write it as the files of the tool that is to run it."""

import sys
from typing import Any

import provision  # its solver and simulator are loaded when first used
from provision import InputError, Instance, Plan, draw, read_plan, verify
from provision.commands.verb import Given, OnPlan, Writing, given_plan, instance_of
from provision.draw.page import render_page
from provision.draw.progress import progress
from provision.draw.terminal import draw_terminal
from provision.draw.verdict import Standing, replayed
from provision.exporters.common import TARGETS, export, render
from provision.instances.files.files import write_text
from provision.models.base.arguments import local, option, written
from provision.models.base.fields import Name, PositiveCount
from provision.models.problem.objective import objective_of


class Show(OnPlan, Writing):
    png: str | None = written("write a picture (.png or .svg)", what="picture")
    html: str | None = written("write a self-contained page")
    prove: float | None = option(None, "S", "prove a bound for so many seconds, and draw it")
    replay: float | None = option(None, "S", "replay so many seconds of arrivals; draw every P99")

    def run(self) -> int:
        plan, instance = given_plan(self.plan, self.instance)
        if instance is not None and (other := plan.made_for_another(instance.name, instance.digest)):
            if plan.instance != instance.name:
                raise InputError(f"{self.plan}: made for {other}, not for {instance.name}; name the instance that it "
                                 "was made for")
            print(f"note: the plan was made for {other}; it is drawn on {instance.name} as it is", file=sys.stderr)
        standing = self._standing(plan, instance)
        report = verify(instance, plan) if instance and (self.html or self.as_json) else None
        if self.png:
            draw.picture.draw_picture(plan, self.png, instance, self.force, standing)
            print(f"picture written to {self.png}", file=sys.stderr)
        if self.html:
            write_text(self.html, render_page(plan, instance, report, standing=standing), self.force)
            print(f"page written to {self.html}", file=sys.stderr)
        if not self.as_json:
            draw_terminal(plan, instance, standing=standing)
        told = {name: standing and getattr(standing, name) for name in
                ("objective", "unit", "bound", "proved", "replayed_s")} | {
            "p99_over_slo": dict(standing.p99_over_slo) if standing else {}, "late": standing.late if standing else []}
        content = {"plan": plan.model_dump(mode="json", exclude_none=True),
                   "report": report and report.model_dump(mode="json")}
        return self.answer(content | told, standing.lines if standing else ())

    def _standing(self, plan: Plan, instance: Instance | None) -> Standing | None:
        """The Standing with the bound and the replay that are asked for; None if neither is."""
        if self.prove is None and self.replay is None:
            return None
        if instance is None:
            raise InputError(f"{self.plan}: --prove and --replay need its instance; name its file before the plan")
        over_slo, seconds = replayed(None if self.replay is None else provision.simulate(instance, plan, self.replay))
        objective = objective_of(instance)
        standing = Standing(plan.method, objective.unit, objective.value(plan), p99_over_slo=over_slo,
                            replayed_s=seconds)
        if self.prove is None:
            return standing
        with progress(f"a bound on {instance.name}") as report:
            bound = provision.solve(instance, "auto", self.prove, report=report, replay=False).bound
        proved = verify(instance, plan).ok and objective.proved(standing.objective, bound)
        return standing._replace(bound=bound, proved=proved)


class Export(OnPlan, Writing):
    """``provision export``: the files come as texts by name."""

    to: Name = option(..., "T", f"one of {', '.join(TARGETS)}", choices=tuple(TARGETS))
    out: str = local(..., "DIR", "folder to write, new or empty")
    gpus_per_node: PositiveCount = option(8, "N", "GPUs that a machine has", most=1024)

    def run(self) -> int:
        plan = read_plan(self.plan)
        instance = instance_of(self.plan, self.instance, plan)
        files = export(plan, self.to, self.out, instance, self.force, self.gpus_per_node)
        return self.answer({"to": self.to, "folder": self.out, "files": list(files)},
                           f"{len(files)} files written to {self.out}; its README.md says what to do with them")

    def job(self, given: Given) -> dict[str, Any]:
        return {"files": render(given.plan, self.to, given.instance, self.gpus_per_node)}
