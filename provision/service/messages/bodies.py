"""Reads bodies of requests, as strictly as files."""

import json
from typing import Any

from starlette.requests import Request

from provision import InputError
from provision.instances.files.parse import parse
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


def content_of(kind: str, body: bytes) -> dict[str, Any]:
    """The mapping that a body of a content type holds. It may take seconds, so it must not run on the event loop.

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
