"""Metrics for Prometheus: jobs, queue, workers, requests and their durations."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 7200)
REQUEST_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)


class Metrics:
    """The counters, histograms and gauges of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        to = self.registry
        self.submitted = Counter("provision_jobs_submitted", "Jobs taken on", ["verb"], registry=to)
        self.ended = Counter("provision_jobs_ended", "Jobs that ended", ["verb", "status"], registry=to)
        self.job_seconds = Histogram(
            "provision_job_seconds", "Seconds of a job", ["verb"], buckets=SECONDS, registry=to
        )
        self.requests = Counter("provision_http_requests", "Requests", ["method", "route", "status"], registry=to)
        self.request_seconds = Histogram(
            "provision_http_request_seconds", "Seconds of a request", ["route"], buckets=REQUEST_SECONDS, registry=to
        )

    def watch(self, waiting: Callable[[], float], running: Callable[[], float], alive: Callable[[], float]) -> None:
        """Set the functions that are called whenever Prometheus asks for the numbers of waiting jobs, running jobs and
        live workers.
        """
        watched = {
            "provision_jobs_queued": ("Jobs that wait", waiting),
            "provision_jobs_running": ("Jobs that run", running),
            "provision_workers": ("Worker processes that live", alive),
        }
        for name, (what, read) in watched.items():
            Gauge(name, what, registry=self.registry).set_function(read)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
