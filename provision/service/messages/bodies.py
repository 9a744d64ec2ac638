"""Reads bodies of requests, as strictly as files; also an instance that is sent together with its performance data."""

import json
from pathlib import PurePath
from typing import Any

from pydantic import Field
from starlette.requests import Request

from provision import InputError
from provision.instances.files.kinds import MARKS, refuse_other_kinds
from provision.instances.files.parse import parse
from provision.models.base.fields import Record
from provision.models.performance.catalogue import shipped_performance
from provision.service.messages.problems import refused, unusable

KINDS = {
    "application/json": "body.json",
    "application/yaml": "body.yaml",
    "application/x-yaml": "body.yaml",
    "text/yaml": "body.yaml",
}
"""The accepted content types, each with a file name whose suffix makes the strict parser choose the format.

Browsers ask the server before a page of another site may send any of these types; the server refuses that.
"""


async def body_of(request: Request) -> tuple[str, bytes]:
    """A request's content type and body.

    Raises
    ------
    RefusedError
        If the content type is none of KINDS.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in KINDS:
        raise refused(415, f"content type {kind[:60]!r}: send one of {', '.join(KINDS)}")
    return kind, await request.body()


def mapping_of(kind: str, body: bytes) -> dict[str, Any]:
    """Parse the body of a request whose content type is ``kind``, one of KINDS; returns the mapping in it.

    This may take seconds, so it must not run on the event loop.

    Raises
    ------
    RefusedError
        If the text is not well-formed.
    """
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


def query_number(request: Request, name: str, default: int, most: int) -> int:
    """The whole number that the query gives under ``name``, from 1 to ``most``; ``default`` if it gives none."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise unusable(InputError(f"{name}: {text[:40]!r} should be a whole number from 1 to {most}"))
    return int(text)


MOST_FILES = 50


class Files(Record):
    """The texts of files by name: one instance, and performance data."""

    files: dict[str, str] = Field(min_length=1, max_length=MOST_FILES)


def joined(files: dict[str, str]) -> dict[str, Any]:
    """The content of the instance among the files, with the names of performance files replaced by their content.

    Folders in these names are ignored.

    Raises
    ------
    RefusedError
        If a file is not well-formed, there is not exactly one instance, or a file that the instance names is missing.
    """
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
    """The content of performance data that a file name gives; names of shipped data and inline data are returned
    unchanged.
    """
    if not isinstance(performance, str) or performance in shipped_performance():
        return performance
    name = PurePath(performance).name
    if name not in contents:
        there = ", ".join(contents) or "no other file"
        raise InputError(f"{instance}: performance: {performance!r} is neither shipped data nor among the files; "
                         f"there is {there}")
    refuse_other_kinds(contents[name], "performance data", name)
    return contents[name]
