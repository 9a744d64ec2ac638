"""Writes files atomically, and keeps arrays that take long to compute on disk, for other processes.

The files of arrays are in ``$XDG_CACHE_HOME/provision``, by default ``~/.cache/provision``; the name of a file is a
digest of everything on which the array depends. If the folder cannot be read or written, arrays are computed again.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO

import numpy as np

from provision.models.base.arrays import Floats


def kept(depends_on: bytes, compute: Callable[[], Floats]) -> Floats:
    """Read an array from the disk; if it is not there, compute it and write it.

    Parameters
    ----------
    depends_on
        The bytes that determine the array: its inputs and the version of the code that computes it.
    compute
        The function that computes the array.
    """
    found = on_disk(depends_on)
    if found is None:
        found = compute()
        _write(_path(depends_on), found)
    return found


def on_disk(depends_on: bytes) -> Floats | None:
    """The array that ``kept`` has written to the disk; None if there is none."""
    try:
        found: Floats = np.load(_path(depends_on))
        return found
    except (OSError, ValueError, EOFError):
        return None


def _path(depends_on: bytes) -> Path:
    return user_folder() / f"{sha256(depends_on).hexdigest()}.npy"


def user_folder() -> Path:
    """The user's cache folder of this package: arrays, and compiled kernels in a subfolder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "provision"


def _write(path: Path, array: Floats) -> None:
    """Write an array atomically; do nothing if the folder cannot be written."""
    try:
        with replacing(path) as file:
            np.save(file, array)
    except OSError:
        return


@contextmanager
def replacing(path: Path, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """Give a new empty file to write to; it takes the place of ``path`` if the block ends without an error. ``mode``
    says who may read it. Raises OSError if the folder cannot be made or written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
        temporary = Path(file.name)
        try:
            yield file
            file.close()
            temporary.chmod(mode)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
