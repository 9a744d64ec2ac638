"""Operations on jobs: submit, list, get, stream, cancel."""

import json
from collections.abc import Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from provision import InputError
from provision.cluster.state import State
from provision.commands.verb import REMOTE
from provision.models.plans.result import relative_gap
from provision.service.api.operation import Givens, Operation, Service
from provision.service.messages.answers import ENDED, Incumbent, Job, JobHead, JobId, Jobs, moment
from provision.service.messages.bodies import query_number
from provision.service.messages.problems import refused, unusable, validated
from provision.service.messages.requests import JobRequest
from provision.service.store.store import Store
from provision.service.watch.settings import Settings
from provision.service.work.jobs import stream
from provision.solving.methods import method

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
)
