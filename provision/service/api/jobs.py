"""Operations on jobs (submit, list, get, stream, cancel) and on their results: plans, drawings, comparisons of plans,
reports, exported files.
"""

import io
import json
import zipfile
from collections.abc import Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from provision import InputError, Instance, Plan, verify
from provision.cluster.state import State
from provision.commands import JOBS
from provision.commands.verb import REMOTE, request
from provision.models.plans.result import relative_gap
from provision.service.api.operation import Givens, Operation, Service
from provision.service.api.views import changes, drawn, report_of
from provision.service.jobs import stream
from provision.service.messages import (
    ENDED,
    Incumbent,
    Job,
    JobHead,
    JobId,
    Jobs,
    moment,
    query_number,
    refused,
    unusable,
    validated,
)
from provision.service.settings import Settings
from provision.service.store import Store
from provision.solving.methods import method

requests: Any = reduce(or_, map(request, JOBS))
JobRequest: Any = Annotated[requests, Field(discriminator="verb")]
"""The request for any job."""


MOST_LISTED = 1000


async def submit_job(service: Service, request: Request) -> JobId:
    """Submit the job in the request's body, and return its id."""
    verb, instance, asked, used = await service.reader.read(request, _checked)
    return JobId(id=await run_in_threadpool(service.jobs.submit, verb, instance, asked, used))


def _checked(settings: Settings, store: Store, content: Any) -> tuple[str, str, dict[str, Any], dict[str, str]]:
    """The verb of a requested job, the name of its instance (empty if the verb has none), its other settings, and the
    digests of what it uses.
    """
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
    if "plan" in fields:
        used["given"] = givens.plan(asked.plan)[1]
    if state:
        used["given"] = store.keep("state", state.name, state.model_dump(mode="json", exclude_none=True))
    for field, names in _methods(asked):
        for name in names:
            _check_method(field, name, instance)
    return asked.verb, instance.name, rest, used


def _check_method(field: str, name: str, instance: Any) -> None:
    """Refuse an unknown method; if the job has one method only, also refuse a method that cannot plan the instance."""
    try:
        found = method(name)
        if field == "method":
            found.check(instance)
    except InputError as error:
        raise unusable(error, field) from None


def _methods(asked: Any) -> list[tuple[str, Sequence[str]]]:
    """The pairs (field of the request, methods that the field names)."""
    found: list[tuple[str, Sequence[str]]] = []
    if hasattr(asked, "method"):
        found.append(("method", [asked.method]))
    if hasattr(asked, "methods"):
        found.append(("methods", asked.methods))
    return found


async def list_jobs(service: Service, request: Request) -> Jobs:
    """Return jobs, latest first."""
    most, before = query_number(request, "limit", 50, MOST_LISTED), request.query_params.get("before")
    rows = await run_in_threadpool(service.store.jobs, most + 1, before and before[:32])
    shown = await run_in_threadpool(heads, service, rows[:most])
    return Jobs(jobs=tuple(shown), next=shown[-1].id if len(rows) > most else None)


def heads(service: Service, rows: Sequence[Any]) -> list[JobHead]:
    """The short descriptions of jobs for a list."""
    digests = service.store.used([row.id for row in rows], "instance")
    return [JobHead(**_head(row, digests.get(row.id, ""))) for row in rows]


def _head(row: Any, digest: str) -> dict[str, Any]:
    return {
        "id": row.id, "verb": row.verb, "status": row.status, "instance": row.instance, "instance_digest": digest,
        "created_at": moment(row.created_s), "started_at": moment(row.started_s), "ended_at": moment(row.ended_s),
        "restarts": max(0, row.begun - 1),
    }


async def get_job(service: Service, request: Request) -> Job:
    """Return a job with its incumbents and, if it has ended, its result."""
    return await run_in_threadpool(job_of, service, request.path_params["id"])


def job_of(service: Service, id: str) -> Job:
    """The job with this id.

    Raises
    ------
    RefusedError
        If there is no such job.
    """
    store, row = service.store, service.store.job(id)
    if row is None:
        raise refused(404, f"{id[:40]!r}: no such job; see /api/v1/jobs")
    used = {role: store.used([id], role).get(id) for role in ("instance", "result", "plan")}
    result = store.document(used["result"]) if used["result"] else None
    plan = store.document(used["plan"]) if used["plan"] else None
    content = None if result is None else result.content | ({"plan": plan.content} if plan else {})
    if content is not None and row.verb in ("solve", "replan"):
        content.setdefault("plan", None)
    incumbents = tuple(_incumbent(event.content) for event in store.events(id, kind="incumbent"))
    problem = json.loads(row.problem) if row.problem else None
    request = json.loads(row.request)
    return Job(**_head(row, used["instance"] or ""), request=request, incumbents=incumbents, result=content,
               problem=problem)


def _incumbent(content: dict[str, Any]) -> Incumbent:
    return Incumbent(**content, gap=relative_gap(content["objective"], content["bound"]))


async def get_events(service: Service, request: Request) -> StreamingResponse:
    """Stream a job's events as server-sent events, from the beginning or after ``Last-Event-ID``, until the job ends.
    """
    id = request.path_params["id"]
    if await run_in_threadpool(service.store.job, id) is None:
        raise refused(404, f"{id[:40]!r}: no such job; see /api/v1/jobs")
    last = request.headers.get("last-event-id", "0")
    after = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else 0
    return StreamingResponse(stream(service.jobs, id, after), media_type="text/event-stream")


async def cancel_job(service: Service, request: Request) -> Response:
    """Cancel a job; it keeps the best plan that it has found. Nothing happens to a job that has ended."""
    id = request.path_params["id"]
    row = await run_in_threadpool(service.store.job, id)
    if row is None:
        raise refused(404, f"{id[:40]!r}: no such job; see /api/v1/jobs")
    if row.status not in ENDED:
        await run_in_threadpool(service.jobs.cancel, id)
    return Response(status_code=204)


REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""The content security policy of a report. A report contains its styles and loads nothing else."""


async def get_plan(service: Service, request: Request) -> Any:
    """Return a stored plan by its digest."""
    digest = request.path_params["digest"]
    found = await run_in_threadpool(service.store.document, digest[:64], "plan")
    if found is None:
        raise refused(404, "no plan of this digest")
    return found.content


async def get_drawing(service: Service, request: Request) -> dict[str, Any]:
    """Return the geometry of a job's plan, and how close its workloads are to their limits.

    With ``?plan=DIGEST`` another plan for the job's instance is drawn; jobs such as comparisons have several plans.
    """
    return await run_in_threadpool(_drawn, service, request.path_params["id"], request.query_params.get("plan"))


def _drawn(service: Service, id: str, digest: str | None) -> dict[str, Any]:
    used = {role: service.store.used([id], role).get(id, "") for role in ("instance", "plan")}
    return _drawing(service.store, used["instance"], digest or used["plan"])


@lru_cache(maxsize=16)
def _drawing(store: Store, instance_digest: str, plan_digest: str) -> dict[str, Any]:
    """The drawing of a plan. It is cached, since a drawing of thousands of GPUs takes seconds."""
    instance, plan = _loaded(store, instance_digest, plan_digest)
    return drawn(plan, instance, verify(instance, plan))


def _loaded(store: Store, instance_digest: str, plan_digest: str) -> tuple[Instance, Plan]:
    """The instance and the plan with these digests in the store.

    Raises
    ------
    RefusedError
        If the store lacks one of them.
    """
    instance, plan = store.document(instance_digest, "instance"), store.document(plan_digest[:64], "plan")
    if instance is None or plan is None:
        raise refused(404, "no such job, or it has no plan")
    return validated(Instance, instance.content, "instance"), validated(Plan, plan.content, "plan")


async def get_changes(service: Service, request: Request) -> dict[str, Any]:
    """Return what changes from the plan of the job ``before`` to a job's plan, and what each plan costs."""
    before = request.query_params.get("before", "")
    return await run_in_threadpool(_changes, service, before, request.path_params["id"])


def _changes(service: Service, before: str, after: str) -> dict[str, Any]:
    return changes(_parts(service, before)[1:], _parts(service, after)[1:])


async def get_report(service: Service, request: Request) -> Response:
    """Return a job's plan, proof and instance as one HTML file."""
    text = await run_in_threadpool(_report, service, request.path_params["id"])
    headers = {
        "Content-Security-Policy": REPORT_POLICY,
        "Content-Disposition": f'attachment; filename="report-{request.path_params["id"][:16]}.html"',
    }
    return Response(text, headers=headers, media_type="text/html")


def _report(service: Service, id: str) -> str:
    return report_of(*_parts(service, id))


def _parts(service: Service, id: str) -> tuple[Job, Instance, Plan]:
    """A job with its instance and its plan.

    Raises
    ------
    RefusedError
        If there is no such job, or the job has no plan.
    """
    job = job_of(service, id)
    return job, *_loaded(service.store, job.instance_digest, (job.result or {}).get("plan_digest", ""))


async def get_files(service: Service, request: Request) -> Response:
    """Return the files of an export job as a ZIP archive."""
    job = await run_in_threadpool(job_of, service, request.path_params["id"])
    files = (job.result or {}).get("files")
    if not files:
        raise refused(404, "the job has exported no files")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for name, text in files.items():
            out.writestr(name, text)
    headers = {"Content-Disposition": f'attachment; filename="export-{job.id}.zip"'}
    return Response(archive.getvalue(), headers=headers, media_type="application/zip")


OPERATIONS = (
    Operation("POST", "/api/v1/jobs", "Take on a job", submit_job, JobId, 201, JobRequest,
              problems=(400, 403, 413, 415, 422, 429, 503)),
    Operation("GET", "/api/v1/jobs", "Jobs, latest first", list_jobs, Jobs,
              query=(("limit", "jobs at most"), ("before", "the id after which the list goes on")), problems=(422,)),
    Operation("GET", "/api/v1/jobs/{id}", "A job with incumbents and result", get_job, Job, problems=(404,)),
    Operation("DELETE", "/api/v1/jobs/{id}", "Cancel a job, which keeps its best plan", cancel_job, status=204,
              media="", problems=(404, 409)),
    Operation("GET", "/api/v1/jobs/{id}/events", "A job's events, streamed until it ends", get_events,
              media="text/event-stream", problems=(404,)),
    Operation("GET", "/api/v1/jobs/{id}/drawing", "The geometry of a job's plan", get_drawing, dict[str, Any],
              query=(("plan", "the digest of another plan for the job's instance"),), problems=(404,)),
    Operation("GET", "/api/v1/jobs/{id}/changes", "What changes between the plans of two jobs", get_changes,
              dict[str, Any], query=(("before", "the id of the other job"),), problems=(404,)),
    Operation("GET", "/api/v1/jobs/{id}/report", "A job's plan and proof as one HTML file", get_report,
              media="text/html", problems=(404,)),
    Operation("GET", "/api/v1/jobs/{id}/files", "The files of an export job", get_files,
              media="application/zip", problems=(404,)),
    Operation("GET", "/api/v1/plans/{digest}", "A stored plan", get_plan, Plan, problems=(404,)),
)
