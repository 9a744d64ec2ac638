"""The settings of a server (address, store, token and limits), its log, and its metrics."""

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Annotated

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import Field

from provision import InputError
from provision.cluster.journal import Journal
from provision.models.base.arguments import local
from provision.models.base.fields import Flag, Positive, PositiveCount, Record

TOKEN = "PROVISION_TOKEN"
"""The variable of the environment with the token."""
MIB = 2**20
GIB = 1024 * MIB


class Settings(Record):
    """The settings of ``provision serve``. The limits are MiB of a request's body and of the bodies of all requests at
    work, workloads of an instance, seconds of a job, GiB of a job's process. ``token`` is what clients have to send;
    None asks for none and is allowed only on a loopback address and without ``allow_apply``.
    """

    host: str = local("127.0.0.1", "H", "address (default: 127.0.0.1, this machine)")
    port: Annotated[int, Field(ge=0, le=65_535)] = local(8765, "N", "")
    db: str = local("sqlite:///provision.db", "URL",
                    "sqlite:///FILE (default: provision.db here) or postgresql://USER@HOST/NAME")
    token: str | None = None
    names: tuple[str, ...] = local((), "H", "a further host name to answer to", "--name", action="append")
    tls_cert: str | None = local(None, "F", "certificate, for HTTPS")
    tls_key: str | None = local(None, "F", "its key")
    workers: PositiveCount = local(1, "N", "jobs that run at once")
    queue: PositiveCount = local(1000, "N", "jobs that may wait")
    body_mib: PositiveCount = local(16, "N", "largest request")
    bodies_mib: PositiveCount = local(64, "N", "all requests at work")
    workloads: PositiveCount = local(20_000, "N", "of an instance")
    job_s: Positive = local(3600.0, "S", "seconds of a job", "--job-s")
    memory_gib: Positive = local(16.0, "G", "of a worker")
    keep_days: float | None = local(None, "D", "delete ended jobs that are older (default: keep)")
    allow_apply: Flag = local(False, None, "let clients put plans on this machine's GPUs")
    journal: str | None = local(None, "F", "show the decisions in this journal of provision watch")

    def check(self) -> None:
        """Raise InputError, which names the remedy, if settings are unsafe, or the journal cannot be read."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InputError("--tls-cert and --tls-key belong together; give both")
        if self.token is not None and len(self.token) < LEAST_TOKEN:
            raise InputError(f"the token has {len(self.token)} characters; take at least {LEAST_TOKEN}")
        if self.token is None and self.allow_apply:
            raise InputError("--allow-apply: every user of this machine could change its GPUs; give a token with "
                             "--token-file F or in PROVISION_TOKEN")
        if self.token is None and not is_loopback(self.host):
            raise InputError(
                f"--host {self.host}: others reach this address; give a token with --token-file F or in "
                "PROVISION_TOKEN, or listen on 127.0.0.1"
            )
        if self.journal is not None:
            Journal(self.journal)

    @property
    def body_bytes(self) -> int:
        """The most bytes that a request's body may have."""
        return self.body_mib * MIB

    @property
    def bodies_bytes(self) -> int:
        """The most bytes of the bodies of all requests at work; one body is always taken."""
        return max(self.bodies_mib, self.body_mib) * MIB


LEAST_TOKEN = 16
"""The fewest characters that a token may have."""


def is_loopback(host: str) -> bool:
    """Whether an address can be reached only from this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


LOGGER = logging.getLogger("provision.service")


class Lines(logging.Formatter):
    """Formats a log record as one line of JSON, with the fields that were passed as ``extra={"fields": {...}}``."""

    def format(self, record: logging.LogRecord) -> str:
        """The line for a log record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        } | getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up() -> None:
    """Send the logs of the service and of uvicorn to stderr, as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    for name in ("provision.service", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)


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

    def watch(self, waiting: Callable[[], float], running: Callable[[], float], workers: Callable[[], float]) -> None:
        """Set what Prometheus is told: jobs that wait, jobs that run, and how many may run at once."""
        watched = {
            "provision_jobs_queued": ("Jobs that wait", waiting),
            "provision_jobs_running": ("Jobs that run", running),
            "provision_workers": ("Jobs that may run at once", workers),
        }
        for name, (what, read) in watched.items():
            Gauge(name, what, registry=self.registry).set_function(read)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
