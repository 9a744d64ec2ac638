"""``provision show`` and ``export``: draw a plan on the terminal, as a picture or as a page, or write it as the
files of the tool that is to run it.
"""

import sys
from typing import Any

import provision  # its solver and simulator are loaded when first used
from provision import draw
from provision.commands.verb import Given, OnPlan, Writing, given_plan, instance_of
from provision.draw.page import render_page
from provision.draw.progress import progress
from provision.draw.standing import Standing, replayed
from provision.draw.terminal import draw_terminal
from provision.exporters.export import TARGETS, export, render
from provision.instances.files.files import write_text
from provision.instances.read import read_plan
from provision.models.base.arguments import local, option, written
from provision.models.base.errors import InputError
from provision.models.base.fields import Name, PositiveCount
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.verification.verify import verify


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
        standing = _standing(plan, instance, self)
        if self.png:
            draw.picture.draw_picture(plan, self.png, instance, self.force, standing)
            print(f"picture written to {self.png}", file=sys.stderr)
        if self.html:
            report = verify(instance, plan) if instance else None
            write_text(self.html, render_page(plan, instance, report, standing=standing), self.force)
            print(f"page written to {self.html}", file=sys.stderr)
        if not self.as_json:
            draw_terminal(plan, instance, standing=standing)
        return self.answer(_json(plan, instance, standing), standing.lines if standing else ())


def _json(plan: Plan, instance: Instance | None, standing: Standing | None) -> dict[str, Any]:
    """The JSON object that ``--json`` prints: the plan, the verifier's report if the instance is known, what is proven,
    and the results of the replay.
    """
    return {
        "plan": plan.model_dump(mode="json", exclude_none=True),
        "report": verify(instance, plan).model_dump(mode="json") if instance else None,
        "objective": standing and standing.objective, "unit": standing and standing.unit,
        "bound": standing and standing.bound, "proved": standing and standing.proved,
        "replayed_s": standing and standing.replayed_s,
        "p99_over_slo": dict(standing.p99_over_slo) if standing else {}, "late": standing.late if standing else [],
    }


def _standing(plan: Plan, instance: Instance | None, options: Show) -> Standing | None:
    """The Standing with the bound and the replay for which the options ask; None if they ask for neither."""
    if options.prove is None and options.replay is None:
        return None
    if instance is None:
        raise InputError(f"{options.plan}: --prove and --replay need its instance; name its file before the plan")
    replay = None if options.replay is None else provision.simulate(instance, plan, options.replay)
    over_slo, seconds = replayed(replay)
    standing = Standing(
        plan.method,
        objective_of(instance).unit,
        objective_of(instance).value(plan),
        p99_over_slo=over_slo,
        replayed_s=seconds,
    )
    if options.prove is None:
        return standing
    with progress(f"a bound on {instance.name}") as report:
        bound = provision.solve(instance, "auto", options.prove, report=report, replay=False).bound
    proved = verify(instance, plan).ok and objective_of(instance).proved(standing.objective, bound)
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
