"""Operations on jobs (submit, list, get, stream, cancel) and on their results (drawings, changes, reports, files)."""

import io
import json
import zipfile
from functools import lru_cache, reduce
from html import escape
from operator import or_
from typing import Annotated, Any

from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from provision import InputError, Instance, Plan, Report, Result, verify
from provision.answers.difference import difference
from provision.cluster.state import State
from provision.commands import JOBS
from provision.commands.verb import REMOTE, request
from provision.draw.convergence import Moment, convergence_figure
from provision.draw.drawing import Drawing
from provision.draw.html import figure, lines, section, table
from provision.draw.page import plan_parts, render_page
from provision.draw.verdict import Standing, standing_of
from provision.instances.files.files import dump
from provision.models.plans.result import relative_gap
from provision.service.api.operation import Givens, Service, operation
from provision.service.jobs import stream
from provision.service.messages import ENDED, Incumbent, Job, JobHead, JobId, Jobs, refused, unusable, validated
from provision.service.settings import Settings
from provision.service.store import Store
from provision.solving.methods import method

requests: Any = reduce(or_, map(request, JOBS))
JobRequest: Any = Annotated[requests, Field(discriminator="verb")]
"""The request for any job."""


MOST_LISTED = 1000


@operation("POST", "/api/v1/jobs", status=201, body=JobRequest)
async def submit_job(service: Service, request: Request) -> JobId:
    """Take on a job."""
    verb, instance, asked, used = await service.reader.read(request, _checked)
    return JobId(id=await run_in_threadpool(service.jobs.submit, verb, instance, asked, used))


def _checked(settings: Settings, store: Store, content: Any) -> tuple[str, str, dict[str, Any], dict[str, str]]:
    """Verb, instance's name (empty if it has none), other settings, and digests of what a requested job uses."""
    asked = validated(JobRequest, content)
    if asked.verb == "apply" and not settings.allow_apply:
        raise refused(403, "plans are put on GPUs only by servers that were started with --allow-apply")
    givens, fields = Givens(store, settings), type(asked).model_fields
    rest = asked.model_dump(mode="json", exclude=set(REMOTE))
    if not {"instance", "state"} & set(fields):
        return asked.verb, "", rest, {}
    state = validated(State, asked.state, "state") if "state" in fields else None
    instance, digest = givens.instance(state.instance.model_dump(mode="json") if state else asked.instance)
    used = {"instance": digest}
    if "base" in fields:
        used["given"] = givens.instance(asked.base, "base")[1]
    if "plan" in fields:
        used["given"] = givens.plan(asked.plan)[1]
    if state:
        used["given"] = store.keep("state", state.name, state.model_dump(mode="json", exclude_none=True))
    _check_methods(asked, instance)
    return asked.verb, instance.name, rest, used


def _check_methods(asked: Any, instance: Instance) -> None:
    """Refuse unknown methods; if the job has one method only, also refuse a method that cannot plan the instance."""
    field = "method" if hasattr(asked, "method") else "methods"
    try:
        for name in [asked.method] if field == "method" else getattr(asked, "methods", ()):
            found = method(name)
            if field == "method":
                found.check(instance)
    except InputError as error:
        raise unusable(error, field) from None


@operation("GET", "/api/v1/jobs")
def list_jobs(service: Service, limit: Annotated[int, Field(ge=1, le=MOST_LISTED, description="jobs at most")] = 50,
              before: Annotated[str, Field(description="the id after which the list goes on")] = "") -> Jobs:
    """Jobs, latest first."""
    rows = service.store.jobs(limit + 1, before[:32] or None)
    digests = service.store.used([row.id for row in rows], "instance")
    shown = [JobHead(**_head(row, digests.get(row.id, ""))) for row in rows[:limit]]
    return Jobs(jobs=tuple(shown), next=shown[-1].id if len(rows) > limit else None)


def _head(row: Any, digest: str) -> dict[str, Any]:
    return {
        **{name: getattr(row, name) for name in ("id", "verb", "status", "instance")}, "instance_digest": digest,
        **{f"{name}_at": getattr(row, f"{name}_s") for name in ("created", "started", "ended")},
        "restarts": max(0, row.begun - 1),
    }


@operation("GET", "/api/v1/jobs/{id}")
def get_job(service: Service, id: str) -> Job:
    """A job with incumbents and result."""
    store, row = service.store, _row(service, id)
    used = {role: store.used([id], role).get(id) for role in ("instance", "result", "plan")}
    result = store.document(used["result"]) if used["result"] else None
    plan = store.document(used["plan"]) if used["plan"] else None
    content = None if result is None else result | ({"plan": plan} if plan else {})
    if content is not None and row.verb in ("solve", "replan"):
        content.setdefault("plan", None)
    told = [json.loads(event.content) for event in store.events(id, kind="incumbent")]
    incumbents = [Incumbent(**one, gap=relative_gap(one["objective"], one["bound"])) for one in told]
    return Job(**_head(row, used["instance"] or ""), request=json.loads(row.request), incumbents=tuple(incumbents),
               result=content, problem=json.loads(row.problem) if row.problem else None)


def _row(service: Service, id: str) -> Any:
    row = service.store.job(id)
    if row is None:
        raise refused(404, f"{id[:40]!r}: no such job; see /api/v1/jobs")
    return row


@operation("GET", "/api/v1/jobs/{id}/events", media="text/event-stream")
def get_events(service: Service, request: Request, id: str) -> Response:
    """A job's events, from the beginning or after Last-Event-ID, streamed until it ends."""
    _row(service, id)
    last = request.headers.get("last-event-id", "0")
    after = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else 0
    return StreamingResponse(stream(service.jobs, id, after), media_type="text/event-stream")


@operation("DELETE", "/api/v1/jobs/{id}", status=204, media="")
def cancel_job(service: Service, id: str) -> Response:
    """Cancel a job, which keeps its best plan."""
    if _row(service, id).status not in ENDED:
        service.jobs.cancel(id)
    return Response(status_code=204)


def _planned(service: Service, id: str) -> tuple[Job, Instance, Plan]:
    """A job with its instance and its plan. Raises RefusedError if there is no such job, or the job has no plan."""
    job = get_job(service, id)
    instance = service.store.document(job.instance_digest, "instance")
    plan = service.store.document((job.result or {}).get("plan_digest", "")[:64], "plan")
    if instance is None or plan is None:
        raise refused(404, "no such job, or it has no plan")
    return job, validated(Instance, instance, "instance"), validated(Plan, plan, "plan")


def _standing(job: Job, instance: Instance, plan: Plan, report: Report) -> Standing | None:
    """What a solve proved about its plan; None for the plans of other verbs."""
    if job.verb != "solve" or job.result is None:
        return None
    return standing_of(instance, Result.of_summary(job.result, plan, report))


@operation("GET", "/api/v1/jobs/{id}/drawing", media="text/html")
def get_drawing(service: Service, id: str) -> Response:
    """A job's plan drawn, with its proof and its workloads, as a part of an HTML page."""
    return Response(_drawing(service, id), media_type="text/html")


@lru_cache(maxsize=16)
def _drawing(service: Service, id: str) -> str:
    """No GPU is left out: the page shows so many rows at a time. To draw thousands takes seconds."""
    job, instance, plan = _planned(service, id)
    report = verify(instance, plan)
    drawing = Drawing(plan, instance, _standing(job, instance, plan, report), most=len(plan.gpus))
    return "".join([lines([drawing.summary]), *plan_parts(drawing, report)])


@operation("GET", "/api/v1/jobs/{id}/changes")
def get_changes(service: Service, id: str,
                before: Annotated[str, Field(description="the id of the other job")] = "") -> list[str]:
    """What changes between the plans of two jobs, in sentences."""
    (_, base, old), (_, instance, new) = _planned(service, before), _planned(service, id)
    return difference(instance, old, new, base)


REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""The content security policy of a report. A report contains its styles and loads nothing else."""
FACTS = ("status", "objective", "bound", "gap", "method", "termination", "seed", "solve_seconds")
"""What a report tells of the result of a job."""


@operation("GET", "/api/v1/jobs/{id}/report", media="text/html")
def get_report(service: Service, id: str) -> Response:
    """A job's plan and proof as one HTML file."""
    job, instance, plan = _planned(service, id)
    report, result = verify(instance, plan), job.result or {}
    versions = ", ".join(f"{name} {number}" for name, number in result.get("versions", {}).items())
    facts = {name: result.get(name) for name in FACTS} | {
        "gap": "–" if result.get("gap") is None else f"{result['gap']:.2%}",
        "instance_digest": job.instance_digest, "job": job.id, "versions": versions}
    rows = [(name.replace("_", " "), value) for name, value in facts.items() if value not in (None, "")]
    parts = [section("Proof", table(("", ""), rows))]
    if len(job.incumbents) > 1:
        moments = [Moment(one.seconds, one.objective, one.bound) for one in job.incumbents]
        title = f"{instance.name}, {job.verb}: {job.status}"
        parts.append(section("How the search went", figure(convergence_figure(instance, title, moments))))
    text = escape(dump(instance, "instance.yaml"))
    parts.append(f"<details><summary>The instance, to solve again</summary><pre>{text}</pre></details>")
    page = render_page(plan, instance, report, "".join(parts), _standing(job, instance, plan, report))
    headers = {"Content-Security-Policy": REPORT_POLICY,
               "Content-Disposition": f'attachment; filename="report-{id[:16]}.html"'}
    return Response(page, headers=headers, media_type="text/html")


@operation("GET", "/api/v1/jobs/{id}/files", media="application/zip")
def get_files(service: Service, id: str) -> Response:
    """The files of an export job."""
    files = (get_job(service, id).result or {}).get("files")
    if not files:
        raise refused(404, "the job has exported no files")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for name, text in files.items():
            out.writestr(name, text)
    headers = {"Content-Disposition": f'attachment; filename="export-{id}.zip"'}
    return Response(archive.getvalue(), headers=headers, media_type="application/zip")
