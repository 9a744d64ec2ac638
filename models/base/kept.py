"""Arrays that take long to compute, kept on disk for other processes.

They stand in ``$XDG_CACHE_HOME/provision``, by default ``~/.cache/provision``, each under the digest of all that it
depends on. Where that folder cannot be read or written, they are computed anew.
"""

import os
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np

from provision.models.base.arrays import Floats


def kept(depends_on: bytes, compute: Callable[[], Floats]) -> Floats:
    """An array from the disk, or else computed and written there.

    Parameters
    ----------
    depends_on
        Whatever decides the array, the version of the code that computes it included.
    compute
        Makes it.
    """
    path = user_folder() / f"{sha256(depends_on).hexdigest()}.npy"
    try:
        found: Floats = np.load(path)
        return found
    except (OSError, ValueError, EOFError):
        found = compute()
    _write(path, found)
    return found


def user_folder() -> Path:
    """The folder for what is kept on this machine: arrays and, in a folder of theirs, compiled kernels."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "provision"


def _write(path: Path, array: Floats) -> None:
    """Write an array as a whole; without a folder to write to, nothing is kept."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            np.save(file, array)
        os.replace(file.name, path)
    except OSError:
        return
