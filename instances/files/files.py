"""Reading and writing files: every problem is told in one line, and a failed write leaves the old file intact."""

from __future__ import annotations

import json
import os
import reprlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import yaml
from pydantic import TypeAdapter, ValidationError

from provision.instances.files.parse import parse
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from pydantic import BaseModel

MOST_BYTES = 256 * 2**20

FilePath = str | os.PathLike[str]
T = TypeVar("T")


def load(path: FilePath) -> Any:
    """The content of a YAML or JSON file (by suffix ``.json``) as plain objects.

    Raises
    ------
    InputError
        When it is missing, unreadable, too large, or not well-formed.
    """
    return parse(path, read_text(path))


def read_text(path: FilePath) -> str:
    """The text of a file, a byte order mark left out.

    Raises
    ------
    InputError
        When it is missing, unreadable, too large or no text.
    """
    try:
        with open(path, "rb") as file:
            # A pipe or a device does not tell its size beforehand.
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file; expected text in UTF-8") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {reason(error)}; give the path of a file") from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{path}: larger than {MOST_BYTES // 2**20} MiB; this is hardly the file you meant")
    if "\x00" in text:
        raise InputError(f"{path}: not a text file; expected text in UTF-8")
    return text


@overload
def validate(kind: type[T], content: object, where: object) -> T: ...


@overload
def validate(kind: Any, content: object, where: object) -> Any: ...


def validate(kind: Any, content: object, where: object) -> Any:
    """An object of a pydantic class, or of any type that pydantic knows, from plain content.

    Raises
    ------
    InputError
        With the first thing that is wrong: file, field, value, problem.
    """
    with refused(where):
        return TypeAdapter(kind).validate_python(content)


@contextmanager
def refused(where: object) -> Iterator[None]:
    """Turn a ValidationError of pydantic into an InputError that names the place."""
    try:
        yield
    except ValidationError as error:
        raise InputError(f"{where}: {_first_problem(error)}") from None


def check_writable(path: FilePath, force: bool = False) -> None:
    """Refuse a file that cannot be written, before the work that it is for.

    Raises
    ------
    InputError
        When it exists and ``force`` is not set, or it has no folder that can be written to.
    """
    try:
        if os.path.isdir(path):
            raise InputError(f"{path}: is a folder; name a file in it")
        if os.path.lexists(path) and not force:
            raise InputError(f"{path}: exists already; choose another name or add --force")
        folder = next(parent for parent in Path(path).absolute().parents if os.path.lexists(parent))
        if not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise InputError(f"{path}: cannot be written: {folder} is no folder that you may write to")
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be written: {reason(error)}; choose another name") from None


def write_text(path: FilePath, text: str, force: bool = False) -> None:
    """Write a file of text as ``write_bytes`` does."""
    write_bytes(path, text.encode(), force)


def write_bytes(path: FilePath, content: bytes, force: bool = False) -> None:
    """Write a file as a whole or not at all.

    Raises
    ------
    InputError
        When it exists and ``force`` is not set, or cannot be written.
    """
    check_writable(path, force)
    path, temporary = Path(path), None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            temporary = file.name
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {reason(error)}; choose another name") from None


def dump(record: BaseModel, path: FilePath) -> str:
    """The text of a record for a file of this name: JSON for ``.json``, else YAML."""
    content = record.model_dump(mode="json", exclude_none=True)
    if str(path).endswith(".json"):
        return json.dumps(content, indent=1) + "\n"
    return yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, default_flow_style=None, width=115)


REMEDIES = {
    "extra_forbidden": "remove it or check its spelling",
    "missing": "add it",
    "float_type": "write a number, without quotes",
    "int_type": "write a whole number, without quotes",
    "string_type": "write text, in quotes if need be",
    "bool_type": "write true or false",
    "finite_number": "write the number that you mean",
}
WORDS = {"extra_forbidden": "unknown field", "missing": "is missing"}
OWN = ("value_error", "union_tag_invalid", "union_tag_not_found")
"""Types of errors whose message names the value already."""


def _first_problem(error: ValidationError) -> str:
    """One line for the first error that pydantic found, and how many more there are."""
    problems = error.errors(include_url=False)
    first, kind = problems[0], problems[0]["type"]
    message = first["msg"].removeprefix("Value error, ").replace("Input should", "should")
    text = f"{_field(first['loc'])}: {WORDS.get(kind, message)}".removeprefix(": ")
    if kind not in OWN and kind not in WORDS:
        text += f" (got {_shown(first['input'])})"
    if kind in REMEDIES:
        text += f"; {REMEDIES[kind]}"
    return text + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else "")


def _field(location: tuple[int | str, ...]) -> str:
    """A path such as ``workloads[3].slo_ms``; names of union members are left out."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part not in ("measured-segments", "closed-network", "igniter", "gpulets", "colocation"):
            path += f".{part}" if path else str(part)
    return path


def _shown(value: object) -> str:
    """A value as Python writes it, long ones cut."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 60
    return short.repr(value)


def reason(error: BaseException) -> str:
    """The message of an operating system error, without its number and path."""
    return getattr(error, "strerror", None) or str(error)
