"""The answers of the service as pydantic models: jobs, incumbents, stored documents and problems."""

from datetime import UTC, datetime
from typing import Any, Literal

from provision.models.base.fields import Record

Status = Literal["queued", "running", "done", "cancelled", "failed"]
ENDED = ("done", "cancelled", "failed")
"""Statuses of jobs that have ended."""


class FieldProblem(Record):
    """One thing that is wrong with a request: a JSON pointer into it, the field as messages name it, and why."""

    pointer: str
    field: str
    detail: str


class Problem(Record):
    """A problem document (RFC 9457); ``errors`` names the fields that are wrong, if any."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: tuple[FieldProblem, ...] = ()


class Incumbent(Record):
    """What a search knew at some moment: seconds since it began, objective of its best plan, bound, and their gap."""

    seconds: float
    objective: float | None
    bound: float | None
    gap: float | None


class JobId(Record):
    """The id of a submitted job."""

    id: str


class JobHead(Record):
    """A job in a list."""

    id: str
    verb: str
    status: Status
    instance: str
    instance_digest: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    restarts: int


class Job(JobHead):
    """A job with everything about it; the ``result`` of a solve has the keys of ``solve --json`` and the plan."""

    request: dict[str, Any]
    incumbents: tuple[Incumbent, ...]
    result: dict[str, Any] | None
    problem: Problem | None


class Jobs(Record):
    """Jobs, latest first; ``next`` is the value of ``before`` that continues the list."""

    jobs: tuple[JobHead, ...]
    next: str | None


class StoredInstance(Record):
    """An instance of the store or one that ships, in a list."""

    name: str
    digest: str | None
    shipped: bool
    workloads: int
    fleet: str
    objective: str
    source: str
    created_at: datetime | None


class Saved(Record):
    """The name and digest of an instance that was stored."""

    name: str
    digest: str


class Health(Record):
    """Whether the service works; ``workers`` are processes that live, ``queued`` jobs that wait."""

    status: Literal["ok", "stopping", "waits for the store", "workers lost"]
    version: str
    workers: int
    queued: int
    running: int


def moment(seconds: float | None) -> datetime | None:
    """A time stamp, in seconds since 1970, as a date."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
