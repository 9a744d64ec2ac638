"""Operations that tell whether the service works, and its metrics for Prometheus."""

from starlette.requests import Request
from starlette.responses import Response

from provision import __version__
from provision.service.api.operation import Operation, Service
from provision.service.messages.answers import Health


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


OPERATIONS = (
    Operation("GET", "/healthz", "Whether the service works", health, Health),
    Operation("GET", "/metrics", "Metrics in Prometheus' text format", metrics, media="text/plain"),
)
