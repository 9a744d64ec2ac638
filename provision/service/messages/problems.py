"""Makes problem documents (RFC 9457) for wrong requests; the documents name the wrong fields."""

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionError
from starlette.responses import JSONResponse

from provision import InputError
from provision.instances.files.complaints import REMEDIES, WORDS, telling
from provision.service.messages.answers import FieldProblem, Problem

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


def refused(status: int, detail: str, errors: Sequence[FieldProblem] = ()) -> RefusedError:
    """The error for a refused request with this HTTP status."""
    title = HTTPStatus(status).phrase
    return RefusedError(Problem(title=title, status=status, detail=detail, errors=tuple(errors[:MOST_ERRORS])))


def unusable(error: InputError, field: str = "") -> RefusedError:
    """The error for a request that raised an InputError; the field is taken from the error's message if the message
    names one.
    """
    named = NAMED.match(str(error))
    inner = named[1] if named else ""
    path = ".".join(filter(None, (field, inner)))
    errors = [FieldProblem(pointer=_pointer(_parts(path)), field=path, detail=str(error))] if path else []
    return refused(422, str(error), errors)


def problem_of(error: Exception) -> Problem | None:
    """The problem that an error means for a client; None if the error is a defect of the server."""
    if isinstance(error, RefusedError):
        return error.problem
    if isinstance(error, InputError):
        return unusable(error).problem
    if isinstance(error, AWAY):
        return refused(503, "the store does not answer; try again in a few seconds").problem
    if isinstance(error, MemoryError):
        return refused(422, "not enough memory for this; make it smaller").problem
    return None


def validated(kind: Any, content: Any, field: str = "") -> Any:
    """The object of the given type that plain content describes.

    Parameters
    ----------
    kind
        The type, which pydantic knows how to validate.
    content
        Lists, mappings, texts and numbers.
    field
        The place of the content in the request; empty if the content is the whole request.

    Raises
    ------
    RefusedError
        If a field is wrong; the problem lists every wrong field.
    """
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        found = _merged(_field_problem(one, content, field) for one in telling(error.errors(include_url=False)))
    detail = f"{found[0].field}: {found[0].detail}" if found[0].field else found[0].detail
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    raise refused(422, str(InputError(detail + more)), found)


def response(problem: Problem) -> JSONResponse:
    """A problem as an HTTP response."""
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else None
    content = problem.model_dump(mode="json")
    return JSONResponse(content, problem.status, headers, media_type="application/problem+json")


def _merged(problems: Iterable[FieldProblem]) -> list[FieldProblem]:
    """Problems with at most one per field; for a union of types, the one problem joins what each type asks for."""
    found: dict[str, FieldProblem] = {}
    for one in problems:
        known = found.get(one.pointer)
        detail = f"{known.detail}, or: {one.detail}" if known else one.detail
        found[one.pointer] = one.model_copy(update={"detail": detail})
    return list(found.values())


def _field_problem(error: Any, content: Any, field: str) -> FieldProblem:
    message = error["msg"].removeprefix("Value error, ").replace("Input should", "should")
    message = WORDS.get(error["type"], message)
    remedy = f"; {REMEDIES[error['type']]}" if error["type"] in REMEDIES else ""
    parts = _present(error["loc"], content, error["type"])
    if not parts and (named := NAMED.match(message)):
        parts, message = _parts(named[1]), message[named.end() :]
    parts = [*_parts(field), *parts]
    return FieldProblem(pointer=_pointer(parts), field=_path(parts), detail=str(InputError(message + remedy)))


def _present(location: Sequence[str | int], content: Any, kind: str) -> list[str | int]:
    """The parts of a location that exist in the content, without the names of union members that pydantic adds."""
    parts: list[str | int] = []
    for at, part in enumerate(location):
        here = isinstance(content, dict) and part in content
        here = here or (isinstance(content, (list, tuple)) and isinstance(part, int) and part < len(content))
        if here:
            content = content[part]
        if here or (kind == "missing" and at == len(location) - 1):
            parts.append(part)
    return parts


def _path(parts: Sequence[str | int]) -> str:
    """The path that these parts form, such as ``workloads[3].slo_ms``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")


def _parts(path: str) -> list[str | int]:
    """The names and indices of which a path consists."""
    return [int(part) if part.isdigit() else part for part in re.split(r"[.\[\]]+", path) if part]


def _pointer(parts: Sequence[str | int]) -> str:
    """The JSON pointer (RFC 6901) to these parts, as the fragment of an address: ``#/workloads/3/slo_ms``."""
    return "#" + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
