"""Views of a job's plan: the drawing on the web page, and a report as a single file."""

from html import escape

import yaml

from provision import Instance, Plan, verify
from provision.draw.convergence import Moment, convergence_figure
from provision.draw.html import figure, lines, section, table
from provision.draw.layout.drawing import Drawing
from provision.draw.page import plan_parts, render_page
from provision.draw.standing import Standing, standing_of
from provision.models.plans.result import Result
from provision.service.messages import Job


def drawn(job: Job, instance: Instance, plan: Plan) -> str:
    """A plan with its proof and its workloads as HTML. No GPU is left out: the page shows so many rows at a time."""
    report = verify(instance, plan)
    drawing = Drawing(plan, instance, _standing(job, instance, plan), most=len(plan.gpus))
    return "".join([lines([drawing.summary]), *plan_parts(drawing, report)])


def report_of(job: Job, instance: Instance, plan: Plan) -> str:
    """The HTML page of a job with a plan; the page loads nothing from elsewhere."""
    parts = [_proof(job)]
    if len(job.incumbents) > 1:
        moments = [Moment(one.seconds, one.objective, one.bound) for one in job.incumbents]
        title = f"{instance.name}, {job.verb}: {job.status}"
        parts.append(section("How the search went", figure(convergence_figure(instance, title, moments))))
    more = "".join([*parts, _input(instance)])
    return render_page(plan, instance, verify(instance, plan), more, _standing(job, instance, plan))


def _standing(job: Job, instance: Instance, plan: Plan) -> Standing | None:
    """What a solve proved about its plan; None for the plans of other verbs."""
    if job.verb != "solve" or job.result is None:
        return None
    return standing_of(instance, Result.of_summary(job.result, plan, verify(instance, plan)))


def _proof(job: Job) -> str:
    result = job.result or {}
    versions = ", ".join(f"{name} {number}" for name, number in result.get("versions", {}).items())
    gap = "–" if result.get("gap") is None else f"{result['gap']:.2%}"
    facts = {
        "status": result.get("status"), "objective": result.get("objective"), "proven bound": result.get("bound"),
        "gap": gap, "method": result.get("method"), "ended": result.get("termination"), "seed": result.get("seed"),
        "seconds": result.get("solve_seconds"), "instance digest": job.instance_digest, "job": job.id,
        "versions": versions,
    }
    return section("Proof", table(("", ""), [(name, value) for name, value in facts.items()
                                             if value not in (None, "")]))


def _input(instance: Instance) -> str:
    content = instance.model_dump(mode="json", exclude_none=True)
    text = yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, default_flow_style=None, width=115)
    return f"<details><summary>The instance, to solve again</summary><pre>{escape(text)}</pre></details>"
