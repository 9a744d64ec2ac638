"""Lists of methods, GPU types, performance data, export targets, parameters to vary, decisions, and schemas; whether
the service works, and its metrics.
"""

from functools import cache
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from provision import __version__
from provision.answers.lists import gpu_rows, method_rows
from provision.cluster.journal import Decision, Journal
from provision.exporters.export import TARGETS
from provision.instances.schemas.write import KINDS, schema
from provision.models.performance.catalogue import load_performance, shipped_performance
from provision.service.api.operation import Operation, Service
from provision.service.messages.answers import Health
from provision.service.messages.problems import refused
from provision.sweeps.parameters import PARAMETERS


async def health(service: Service, request: Request) -> Response:
    """Return the state of the service, and the numbers of its workers and jobs. The HTTP status is 503 if threads that
    carry jobs out are lost; a restart mends that, but not a store that does not answer.
    """
    jobs = service.jobs
    lost = jobs.pool.lost and not jobs.stopping
    troubles = {"stopping": jobs.stopping, "workers lost": lost, "waits for the store": jobs.away}
    state = Health(
        status=next((trouble for trouble, there in troubles.items() if there), "ok"),
        version=__version__,
        workers=jobs.pool.alive,
        queued=len(jobs.waiting),
        running=len(jobs.running),
    )
    return Response(state.model_dump_json(), 503 if lost else 200, media_type="application/json")


async def metrics(service: Service, request: Request) -> Response:
    """Return the metrics in Prometheus' text format."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


Rows = list[dict[str, Any]]


async def list_methods(service: Service, request: Request) -> Rows:
    """Return the methods, as ``provision methods --json`` does."""
    return await run_in_threadpool(cache(method_rows))


async def list_gpus(service: Service, request: Request) -> Rows:
    """Return the GPU types, as ``provision gpus --json`` does."""
    return await run_in_threadpool(cache(gpu_rows))


async def list_performance(service: Service, request: Request) -> Rows:
    """Return the shipped performance data, with the models that each data set describes."""
    return await run_in_threadpool(_performance)


@cache
def _performance() -> Rows:
    found = [(name, load_performance(name)) for name in shipped_performance()]
    return [{"name": name, "gpu": one.gpu, "kind": one.kind, "models": sorted(one.models)} for name, one in found]


async def list_targets(service: Service, request: Request) -> list[str]:
    """Return the targets to which plans can be exported."""
    return list(TARGETS)


async def list_parameters(service: Service, request: Request) -> Rows:
    """Return the parameters that a what-if job can vary."""
    return [
        {"name": name, "what": one.what, "target": one.target or None, "numeric": one.numeric}
        for name, one in PARAMETERS.items()
    ]


async def get_schema(service: Service, request: Request) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file."""
    kind = request.path_params["kind"]
    if kind not in KINDS:
        raise refused(404, f"no schema of this name; there are {', '.join(KINDS)}")
    return schema(kind)


async def list_decisions(service: Service, request: Request) -> list[Decision]:
    """Return the latest decisions of ``provision watch``, the newest first, without their plans."""
    path = service.settings.journal
    return [] if path is None else await run_in_threadpool(lambda: Journal(path).decisions(plans=False))


OPERATIONS = (
    Operation("GET", "/healthz", "Whether the service works", health, Health),
    Operation("GET", "/metrics", "Metrics in Prometheus' text format", metrics, media="text/plain"),
    Operation("GET", "/api/v1/methods", "Methods and what they can do", list_methods, Rows),
    Operation("GET", "/api/v1/gpus", "GPU types with their MIG profiles", list_gpus, Rows),
    Operation("GET", "/api/v1/performance", "Shipped performance data", list_performance, Rows),
    Operation("GET", "/api/v1/targets", "What plans can be exported to", list_targets, list[str]),
    Operation("GET", "/api/v1/parameters", "What a what-if job can vary", list_parameters, Rows),
    Operation("GET", "/api/v1/decisions", "What provision watch decided", list_decisions, list[Decision]),
    Operation("GET", "/api/v1/schemas/{kind}", "JSON Schema of instances, plans or performance data", get_schema,
              dict[str, Any], problems=(404,)),
)
