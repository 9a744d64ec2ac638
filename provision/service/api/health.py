"""Operations that tell whether the service works, and its metrics for Prometheus."""

from starlette.requests import Request
from starlette.responses import Response

from provision import __version__
from provision.service.api.operation import Operation, Service
from provision.service.messages.answers import Health


async def health(service: Service, request: Request) -> Health:
    """Return the state of the service: working or stopping, and the numbers of its workers and jobs."""
    jobs = service.jobs
    return Health(
        status="stopping" if jobs.stopping else "ok",
        version=__version__,
        workers=jobs.pool.alive,
        queued=len(jobs.waiting),
        running=len(jobs.running),
    )


async def metrics(service: Service, request: Request) -> Response:
    """Return the metrics in Prometheus' text format."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


OPERATIONS = (
    Operation("GET", "/healthz", "Whether the service works", health, Health),
    Operation("GET", "/metrics", "Metrics in Prometheus' text format", metrics, media="text/plain"),
)
