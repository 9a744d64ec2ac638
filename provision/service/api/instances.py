"""Operations on instances: list, store and get; and lists of what there is."""

import json
from functools import cache
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from provision import Instance, __version__
from provision.answers.lists import gpu_rows, instance_row, method_rows
from provision.cluster.journal import Decision, Journal
from provision.exporters.common import TARGETS
from provision.instances.files.files import dump
from provision.instances.read import shipped, shipped_instances
from provision.models.performance.catalogue import load_performance, shipped_performance
from provision.service.api.operation import Givens, Service, operation
from provision.service.messages import Files, Health, Saved, StoredInstance, joined, refused, validated
from provision.service.settings import Settings
from provision.service.store import Store
from provision.sweeps.parameters import PARAMETERS

MOST_LISTED = 200
Rows = list[dict[str, Any]]


@operation("GET", "/healthz")
async def health(service: Service) -> Health:
    """Whether the service works."""
    jobs = service.jobs
    return Health(
        status="stopping" if jobs.stopping else "waits for the store" if jobs.away else "ok", version=__version__,
        workers=service.settings.workers, queued=len(jobs.waiting), running=len(jobs.running),
    )


@operation("GET", "/metrics", media="text/plain")
async def metrics(service: Service) -> Response:
    """Metrics in Prometheus' text format."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


@operation("GET", "/api/v1/methods")
@cache
def list_methods(service: Service) -> Rows:
    """Methods and what they can do."""
    return method_rows()


@operation("GET", "/api/v1/gpus")
@cache
def list_gpus(service: Service) -> Rows:
    """GPU types with their MIG profiles."""
    return gpu_rows()


@operation("GET", "/api/v1/performance")
@cache
def list_performance(service: Service) -> Rows:
    """Shipped performance data, with the models that each data set describes."""
    found = [(name, load_performance(name)) for name in shipped_performance()]
    return [{"name": name, "gpu": one.gpu, "kind": one.kind, "models": sorted(one.models)} for name, one in found]


@operation("GET", "/api/v1/targets")
def list_targets(service: Service) -> list[str]:
    """What plans can be exported to."""
    return list(TARGETS)


@operation("GET", "/api/v1/parameters")
def list_parameters(service: Service) -> Rows:
    """What a what-if job can vary."""
    return [{"name": name, "what": one.what, "target": one.target or None, "numeric": one.numeric}
            for name, one in PARAMETERS.items()]


@operation("GET", "/api/v1/decisions")
def list_decisions(service: Service) -> list[Decision]:
    """The latest decisions of provision watch, the newest first, without their plans."""
    path = service.settings.journal
    return [] if path is None else Journal(path).decisions(plans=False)


@operation("GET", "/api/v1/instances")
def list_instances(service: Service) -> list[StoredInstance]:
    """Instances that ship, then those that were stored, latest first."""
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
        source=content["source"], created_at=row.created_s,
    )


@operation("POST", "/api/v1/instances", status=201, body=Instance)
async def save_instance(service: Service, request: Request) -> Saved:
    """Store an instance (JSON or YAML)."""
    return await service.reader.read(request, _saved)


def _saved(settings: Settings, store: Store, content: Any) -> Saved:
    instance = validated(Instance, content)
    return Saved(name=instance.name, digest=Givens(store, settings).instance(content)[1])


@operation("POST", "/api/v1/instances/files", status=201, body=Files)
async def save_files(service: Service, request: Request) -> Saved:
    """Store an instance with the files of performance data that it names, as texts by file name."""
    return await service.reader.read(request, _saved_files)


def _saved_files(settings: Settings, store: Store, content: Any) -> Saved:
    return _saved(settings, store, joined(validated(Files, content).files))


@operation("GET", "/api/v1/instances/{name}")
def get_instance(service: Service, name: str,
                 format: Annotated[str, Field(description="yaml for YAML, else JSON")] = "") -> Any:
    """An instance by name or digest."""
    instance = Givens(service.store, service.settings).find(name)
    if instance is None:
        raise refused(404, f"{name[:80]!r}: neither a shipped nor a stored instance")
    if format == "yaml":
        return Response(dump(instance, "instance.yaml"), media_type="application/yaml")
    return instance.model_dump(mode="json", exclude_none=True)
