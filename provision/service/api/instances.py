"""Operations on instances: list, store, get, and list the jobs on an instance."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import yaml
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from provision import __version__
from provision.answers.lists import gpu_rows, instance_row, method_rows
from provision.cluster.journal import Decision, Journal
from provision.exporters.export import TARGETS
from provision.instances.files.instance_file import shipped, shipped_instances
from provision.instances.schemas.write import KINDS, schema
from provision.models.performance.catalogue import load_performance, shipped_performance
from provision.models.problem.instance import Instance
from provision.service.api.jobs import heads
from provision.service.api.operation import Givens, Handler, Operation, Service
from provision.service.messages import (
    Files,
    Health,
    Jobs,
    Saved,
    StoredInstance,
    joined,
    moment,
    query_number,
    refused,
    validated,
)
from provision.service.settings import Settings
from provision.service.store import Store
from provision.sweeps.parameters import PARAMETERS

MOST_LISTED = 200


async def list_instances(service: Service, request: Request) -> list[StoredInstance]:
    """Return the shipped instances, then the stored instances, latest first."""
    return await run_in_threadpool(_listed, service)


def _listed(service: Service) -> list[StoredInstance]:
    known = {one.digest for one in _shipped()}
    rows = [row for row in service.store.documents("instance", None, MOST_LISTED) if row.digest not in known]
    return [*_shipped(), *(_stored(row) for row in rows)]


@cache
def _shipped() -> tuple[StoredInstance, ...]:
    found = map(shipped, shipped_instances())
    return tuple(
        StoredInstance(**instance_row(one), digest=one.digest, shipped=True, created_at=None) for one in found
    )


def _stored(row: Any) -> StoredInstance:
    content = json.loads(row.content)
    return StoredInstance(
        name=row.name, digest=row.digest, shipped=False, workloads=len(content["workloads"]),
        fleet=", ".join(entry["gpu"] for entry in content["fleet"]), objective=content["objective"],
        source=content["source"], created_at=moment(row.created_s),
    )


async def save_instance(service: Service, request: Request) -> Saved:
    """Store the instance in the request's body, which is JSON or YAML."""
    return await service.reader.read(request, _saved)


def _saved(settings: Settings, store: Store, content: Any) -> Saved:
    instance = validated(Instance, content)
    return Saved(name=instance.name, digest=Givens(store, settings).instance(content)[1])


async def save_files(service: Service, request: Request) -> Saved:
    """Store an instance that comes with the files of performance data that it names; the body has texts by file name.
    """
    return await service.reader.read(request, _saved_files)


def _saved_files(settings: Settings, store: Store, content: Any) -> Saved:
    return _saved(settings, store, joined(validated(Files, content).files))


async def get_instance(service: Service, request: Request) -> Any:
    """Return a whole instance by name or digest, as JSON; with ``?format=yaml`` as YAML."""
    name, as_yaml = request.path_params["name"], request.query_params.get("format") == "yaml"
    if as_yaml:
        return Response(await run_in_threadpool(_as_yaml, service, name), media_type="application/yaml")
    return await run_in_threadpool(_as_stored, service, name)


def _as_yaml(service: Service, name: str) -> str:
    content = _as_stored(service, name)
    return yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, default_flow_style=None, width=115)


def _as_stored(service: Service, name: str) -> Any:
    instance = Givens(service.store, service.settings).find(name)
    if instance is None:
        raise refused(404, f"{name[:80]!r}: neither a shipped nor a stored instance")
    return instance.model_dump(mode="json", exclude_none=True)


async def get_history(service: Service, request: Request) -> Jobs:
    """Return the jobs on instances of a name, latest first."""
    most = query_number(request, "limit", 100, MOST_LISTED)
    name = request.path_params["name"]
    rows = await run_in_threadpool(service.store.jobs, most, None, name)
    return Jobs(jobs=tuple(await run_in_threadpool(heads, service, rows)), next=None)


OPERATIONS = (
    Operation("GET", "/api/v1/instances", "Instances that ship and that were stored", list_instances,
              list[StoredInstance]),
    Operation("POST", "/api/v1/instances", "Store an instance (JSON or YAML)", save_instance, Saved, 201, Instance,
              problems=(400, 413, 415, 422)),
    Operation("POST", "/api/v1/instances/files", "Store an instance with its files of performance data", save_files,
              Saved, 201, Files, problems=(400, 413, 415, 422)),
    Operation("GET", "/api/v1/instances/{name}", "An instance by name or digest", get_instance, Any,
              query=(("format", "yaml for YAML, else JSON"),), problems=(404,)),
    Operation("GET", "/api/v1/instances/{name}/jobs", "The jobs on instances of a name", get_history, Jobs,
              query=(("limit", "jobs at most"),), problems=(422,)),
)


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


def listing(name: str, rows: Callable[[], Any]) -> Handler:
    """The handler that returns what ``rows`` makes once, under this name."""
    once = cache(rows)

    async def handler(service: Service, request: Request) -> Any:
        return await run_in_threadpool(once)

    handler.__name__ = name
    return handler


def _performance() -> Rows:
    """The shipped performance data, with the models that each data set describes."""
    found = [(name, load_performance(name)) for name in shipped_performance()]
    return [{"name": name, "gpu": one.gpu, "kind": one.kind, "models": sorted(one.models)} for name, one in found]


def _parameters() -> Rows:
    """The parameters that a what-if job can vary."""
    return [{"name": name, "what": one.what, "target": one.target or None, "numeric": one.numeric}
            for name, one in PARAMETERS.items()]


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


LISTS = (
    Operation("GET", "/healthz", "Whether the service works", health, Health),
    Operation("GET", "/metrics", "Metrics in Prometheus' text format", metrics, media="text/plain"),
    Operation("GET", "/api/v1/methods", "Methods and what they can do", listing("list_methods", method_rows), Rows),
    Operation("GET", "/api/v1/gpus", "GPU types with their MIG profiles", listing("list_gpus", gpu_rows), Rows),
    Operation("GET", "/api/v1/performance", "Shipped performance data",
              listing("list_performance", _performance), Rows),
    Operation("GET", "/api/v1/targets", "What plans can be exported to",
              listing("list_targets", lambda: list(TARGETS)), list[str]),
    Operation("GET", "/api/v1/parameters", "What a what-if job can vary",
              listing("list_parameters", _parameters), Rows),
    Operation("GET", "/api/v1/decisions", "What provision watch decided", list_decisions, list[Decision]),
    Operation("GET", "/api/v1/schemas/{kind}", "JSON Schema of instances, plans or performance data", get_schema,
              dict[str, Any], problems=(404,)),
)
