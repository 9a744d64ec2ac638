"""Reads and writes files: every problem is reported in one line, and a failed write leaves the old file intact. One
process at a time has the lock on a file; the kernel releases it when its holder ends.
"""

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, overload

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from provision.instances.files.complaints import complaints
from provision.instances.files.parse import parse
from provision.models.base import kept
from provision.models.base.errors import InputError

MOST_BYTES = 256 * 2**20

FilePath = str | os.PathLike[str]
T = TypeVar("T")


def opened(path: str, inside: int | None = None) -> int:
    """The descriptor of a lock file, which is made if it does not exist. A relative path is one in the folder with the
    descriptor ``inside``. Raises OSError if it cannot be opened for writing, is a link or no regular file, or has other
    names too.
    """
    # Without O_NONBLOCK the opening of a named pipe could wait for ever.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(path, flags, 0o600, dir_fd=inside)
    about = os.fstat(file)
    if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
        return file
    os.close(file)
    raise PermissionError(0, f"{path} is no regular file, or has other names too (remove it)")


def taken(file: int) -> bool:
    """Take the lock on an open file; returns whether no other process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_file(path: str, option: str, value: object) -> int | None:
    """Lock a file, which is made if it does not exist; None if another has the lock. It ends with the process, or when
    the descriptor that is returned is closed. Errors name the option that led to the file, and its value. Raises
    InputError if the file cannot be opened as ``opened`` does.
    """
    try:
        file = opened(path)
    except OSError as error:
        raise InputError(f"{option} {value}: {path} should be a file that this user may write ({reason(error)}); "
                         f"remove it, or give another {option}") from None
    if taken(file):
        return file
    os.close(file)
    return None


def path_of(given: object, expected: str) -> str:
    """A path as text. Raises InputError if something else is given; the message says what is expected."""
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    raise InputError(f"{expected} or a path, not {type(given).__name__}")


def load(path: FilePath, rows: bool = False) -> Any:
    """Return the content of a YAML file, or of a JSON file if its suffix is ``.json``, as plain objects: a mapping, or
    with ``rows`` a list. Raises InputError if the file is missing, unreadable, too large, or not well-formed.
    """
    return parse(path, read_text(path), rows)


def read_text(path: FilePath) -> str:
    """The text of a file, without a byte order mark. Raises InputError if the file is missing, unreadable, too large or
    not text.
    """
    try:
        with open(path, "rb") as file:
            # The size of a pipe or a device is not known beforehand.
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
    """Make an object of a pydantic class, or of any type that pydantic knows, from plain content. Raises InputError if
    something is wrong; the error has a line per problem, with file, field, value and problem.
    """
    with refused(where, kind):
        return TypeAdapter(kind).validate_python(content)


@contextmanager
def refused(where: object, kind: Any = None) -> Iterator[None]:
    """Turn a ValidationError of pydantic inside the block into an InputError that names the place.

    ``kind`` is the expected type, as in ``complaints``.
    """
    try:
        yield
    except ValidationError as error:
        raise InputError(*(f"{where}: {line}" for line in complaints(error, kind))) from None


def check_writable(path: FilePath, force: bool = False) -> None:
    """Refuse a path that cannot be written, before the work whose result the file is to hold. Raises InputError if the
    file exists and ``force`` is not set, or if its folder cannot be written to.
    """
    try:
        if os.path.isdir(path) or os.fspath(path).endswith(os.sep):
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
    """Write a text file in UTF-8, as ``write_bytes`` does."""
    write_bytes(path, text.encode(), force)


def write_bytes(path: FilePath, content: bytes, force: bool = False) -> None:
    """Write a file atomically: as a whole or not at all. Raises InputError if the file exists and ``force`` is not set,
    or if it cannot be written.
    """
    with replacing(path, force) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing(path: FilePath, force: bool = False) -> Iterator[Path]:
    """Give a new empty file to write to; it takes the place of ``path`` if the block ends without an error. Raises
    InputError if the file exists and ``force`` is not set, or if it cannot be written.
    """
    check_writable(path, force)
    try:
        with kept.replacing(Path(path)) as file:
            yield Path(file.name)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {reason(error)}; choose another name") from None


def dump(record: BaseModel, path: FilePath) -> str:
    """The text of a record for a file of this name: JSON if the suffix is ``.json``, else YAML."""
    content = record.model_dump(mode="json", exclude_none=True)
    if str(path).endswith(".json"):
        return json.dumps(content, indent=1) + "\n"
    return yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, default_flow_style=None, width=115)


def reason(error: BaseException) -> str:
    """The message of an operating system error, without its number and path."""
    return getattr(error, "strerror", None) or str(error)
