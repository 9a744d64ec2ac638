"""What the service says, with problem documents (RFC 9457), and readers of bodies, as strict as of files."""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from http import HTTPStatus
from pathlib import PurePath
from typing import Any, Literal

from pydantic import Field, TypeAdapter, ValidationError
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from provision import InputError
from provision.instances.files.complaints import complaint, telling
from provision.instances.files.parse import parse
from provision.instances.read import MARKS, refuse_other_kinds
from provision.models.base.fields import Record
from provision.models.performance.catalogue import shipped_performance

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
    """Whether the service works; ``workers`` are the jobs that may run at once, ``queued`` those that wait."""

    status: Literal["ok", "stopping", "waits for the store"]
    version: str
    workers: int
    queued: int
    running: int


AWAY = (OperationalError, InterfaceError, NoConnectionError)
"""What SQLAlchemy raises while a database is locked, full or away; the same call may succeed later."""
MOST_ERRORS = 50
"""The most field problems in one document."""
DEFECT = "the server has a defect here; its log says more"
NAMED = re.compile(r"^((?:[a-z_]+(?:\[\d+\])?\.?)+): ")
"""Matches the name of the field with which an error message of the package begins."""


class RefusedError(Exception):
    """A request that cannot be carried out; ``problem`` says why."""

    def __init__(self, problem: Problem):
        super().__init__(problem.detail)
        self.problem = problem


EXPECTED = (RefusedError, HTTPException, ClientDisconnect, InputError, MemoryError, *AWAY)
"""The errors that are no defects of the server."""


def refused(status: int, detail: str, errors: Sequence[FieldProblem] = ()) -> RefusedError:
    """The error for a refused request with this HTTP status."""
    title = HTTPStatus(status).phrase
    return RefusedError(Problem(title=title, status=status, detail=detail, errors=tuple(errors[:MOST_ERRORS])))


def unusable(error: InputError, field: str = "") -> RefusedError:
    """The error for a request that raised an InputError, with the field that its message names, if any."""
    named = NAMED.match(str(error))
    parts = [*_parts(field), *(_parts(named[1]) if named else ())]
    return refused(422, str(error), [_field_problem(parts, str(error))] if parts else ())


def problem_of(error: Exception) -> Problem | None:
    """The problem that an error means for a client; None if the error is a defect of the server."""
    match error:
        case RefusedError():
            return error.problem
        case HTTPException():
            return refused(error.status_code, error.detail).problem
        case ClientDisconnect():
            return refused(400, "body: the client hung up before its end").problem
        case InputError():
            return unusable(error).problem
        case OperationalError() | InterfaceError() | NoConnectionError():
            return refused(503, "the store does not answer; try again in a few seconds").problem
        case MemoryError():
            return refused(422, "not enough memory for this; make it smaller").problem
    return None


def validated(kind: Any, content: Any, field: str = "") -> Any:
    """What plain content at a field describes, as ``kind``. Raises RefusedError with every wrong field."""
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        found = _problems(telling(error.errors(include_url=False)), kind, content, field)
    detail = f"{found[0].field}: {found[0].detail}" if found[0].field else found[0].detail
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    raise refused(422, str(InputError(detail + more)), found)


def response(problem: Problem) -> JSONResponse:
    """A problem as an HTTP response."""
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else None
    content = problem.model_dump(mode="json")
    return JSONResponse(content, problem.status, headers, media_type="application/problem+json")


def _problems(errors: Iterable[Any], kind: Any, content: Any, field: str) -> list[FieldProblem]:
    """What errors of pydantic say, at most one problem per field: for a union of types it joins what each asks for."""
    found: dict[tuple[str | int, ...], str] = {}
    for error in errors:
        message = complaint(error, kind)
        parts = _present(error["loc"], content, error["type"])
        if not parts and (named := NAMED.match(message)):
            parts, message = _parts(named[1]), message[named.end() :]
        where, told = (*_parts(field), *parts), str(InputError(message))
        found[where] = f"{found[where]}, or: {told}" if where in found else told
    return [_field_problem(where, told) for where, told in found.items()]


def _field_problem(parts: Sequence[str | int], detail: str) -> FieldProblem:
    """A problem of a field: its JSON pointer (RFC 6901) and path, ``#/workloads/3`` and ``workloads[3]``."""
    pointer = "#" + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")
    return FieldProblem(pointer=pointer, field=path, detail=detail)


def _present(location: Sequence[str | int], content: Any, kind: str) -> list[str | int]:
    """The parts of a location that exist in the content, without the names of union members that pydantic adds."""
    parts: list[str | int] = []
    for at, part in enumerate(location):
        here = part in content if isinstance(content, dict) else (
            isinstance(content, (list, tuple)) and isinstance(part, int) and part < len(content))
        if here:
            content = content[part]
        if here or (kind == "missing" and at == len(location) - 1):
            parts.append(part)
    return parts


def _parts(path: str) -> list[str | int]:
    """The names and indices of which a path consists."""
    return [int(part) if part.isdigit() else part for part in re.split(r"[.\[\]]+", path) if part]


KINDS = {
    "application/json": "body.json",
    "application/yaml": "body.yaml",
    "application/x-yaml": "body.yaml",
    "text/yaml": "body.yaml",
}
"""The accepted content types, each with a file name for the parser; browsers ask before other pages may send these."""


async def body_of(request: Request) -> tuple[str, bytes]:
    """A request's content type and body. Raises RefusedError if the content type is none of KINDS."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in KINDS:
        raise refused(415, f"content type {kind[:60]!r}: send one of {', '.join(KINDS)}")
    return kind, await request.body()


def mapping_of(kind: str, body: bytes) -> dict[str, Any]:
    """The mapping in a body of a type in KINDS. This may take seconds. Raises RefusedError if it is not well-formed."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise refused(400, "body: not a text in UTF-8") from None
    if "\x00" in text:
        raise refused(400, "body: not a text; it holds NUL characters")
    try:
        content = parse(KINDS[kind], text)
        if "\\ud" in text.lower():  # an escape that may name half of a pair
            json.dumps(content, ensure_ascii=False, default=str).encode()
    except InputError as error:
        raise refused(400, str(error)) from None
    except UnicodeEncodeError:
        raise refused(400, "body: holds characters that are none (half of a surrogate pair)") from None
    return content


MOST_FILES = 50


class Files(Record):
    """The texts of files by name: one instance, and performance data."""

    files: dict[str, str] = Field(min_length=1, max_length=MOST_FILES)


def joined(files: dict[str, str]) -> dict[str, Any]:
    """The one instance among files, with the performance data that it names. Raises RefusedError without."""
    try:
        contents = {name: parse(name, text) for name, text in files.items()}
        instances = [name for name, content in contents.items() if MARKS["an instance"] <= set(content)]
        if len(instances) != 1:
            raise InputError(f"{len(instances)} of these files are an instance (with workloads and fleet); send one")
        [name] = instances
        instance = contents.pop(name)
        named = instance.get("performance")
        several = named if isinstance(named, list) else [named]
        instance["performance"] = [_found(one, name, contents) for one in several]
    except InputError as error:
        raise refused(400, str(error)) from None
    return instance


def _found(performance: Any, instance: str, contents: dict[str, dict[str, Any]]) -> Any:
    """The performance data that a file name gives; names of shipped data and inline data are returned unchanged."""
    if not isinstance(performance, str) or performance in shipped_performance():
        return performance
    name = PurePath(performance).name
    if name not in contents:
        there = ", ".join(contents) or "no other file"
        raise InputError(f"{instance}: performance: {performance!r} is neither shipped data nor among the files; "
                         f"there is {there}")
    refuse_other_kinds(contents[name], "performance data", name)
    return contents[name]
