"""Operations on the results of jobs: plans, drawings, comparisons of plans, reports, exported files."""

import io
import zipfile
from functools import lru_cache
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from provision import Instance, Plan, verify
from provision.service.api.jobs import job_of
from provision.service.api.operation import Operation, Service
from provision.service.api.views import changes, drawn, report_of
from provision.service.messages.answers import Job
from provision.service.messages.problems import refused, validated
from provision.service.store.store import Store

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
