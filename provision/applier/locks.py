"""Locks that keep two appliers apart: one on the state directory, one on every GPU that may be changed.

The locks of GPUs are in one folder of the machine, whatever the state directory. There is a file per UUID. It is held
with flock(2), and the kernel releases it when the holder ends. PROVISION_LOCKS names another folder, such as the host's
folder inside a container. Appliers that must respect each other have to share the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from provision.instances.files.files import reason
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from provision.instances.files.files import FilePath

FOLDER = "/run/lock/provision"
VARIABLE = "PROVISION_LOCKS"
POLL_S = 0.05
SETTLE_S = 1.0
"""The seconds after which a driver certainly shows what another process has changed."""


@contextlib.contextmanager
def locked_state(state: FilePath, wait: bool = False) -> Iterator[None]:
    """Lock a state directory, which is created if necessary.

    Raises
    ------
    InputError
        If another applier holds it and ``wait`` is not set, or if the directory cannot be used.
    """
    path = Path(state) / "lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = open(path, "a+")  # noqa: SIM115 - closed below, after use
    except OSError as error:
        raise InputError(f"{state}: cannot be used: {reason(error)}; name another directory with --state") from None
    with file:
        _hold(file, str(state), wait)
        yield


@contextlib.contextmanager
def locked_gpus(uuids: Iterable[str], state: FilePath, wait: bool = False) -> Iterator[None]:
    """Lock GPUs against appliers of all state directories of this machine.

    GPUs are locked in the order of their UUIDs, so that appliers which wait for each other's GPUs cannot deadlock. Once
    the locks are held, the changes of the last holder are visible.

    Raises
    ------
    InputError
        If another applier holds one of the GPUs and ``wait`` is not set, or if the folder of locks cannot be used.
    """
    with contextlib.ExitStack() as held:
        files = []
        for uuid in sorted(set(uuids)):
            file = held.enter_context(_opened(uuid))
            _hold(file, f"GPU {uuid}", wait)
            files.append(file)
        _settle(files)
        for file in files:
            _write(file, {"pid": os.getpid(), "state": str(state)})
        try:
            yield
        finally:
            for file in files:
                _write(file, {"pid": os.getpid(), "state": str(state), "released_s": time.time()})


def folder() -> Path:
    """The machine's folder of locks."""
    return Path(os.environ.get(VARIABLE) or FOLDER)


def _opened(uuid: str) -> IO[str]:
    """Open the lock file of a GPU. If the file is missing, it is created so that every user can lock it."""
    path = folder() / f"{uuid}.lock"
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.parent.chmod(0o1777)
        # If the file exists, it is opened without O_CREAT: in such a folder, Linux refuses that flag for another user's
        # file.
        if not path.exists():
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o666))
                path.chmod(0o666)
        return open(path, "r+")
    except OSError as error:
        remedy = f"as root: install -d -m 1777 {path.parent}; or name another folder with {VARIABLE}"
        raise InputError(f"{path}: the GPU cannot be locked: {reason(error)}; {remedy}") from None


def _hold(file: IO[str], what: str, wait: bool) -> None:
    """Take a lock. It is polled, so that a signal can end the wait."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not wait:
                at_work = f"another applier is at work{_holder(file)}"
                raise InputError(f"{what}: {at_work}; wait for it with --wait") from None
        pause(POLL_S)


def pause(seconds: float) -> None:
    """Wait for some seconds."""
    time.sleep(seconds)


def _holder(file: IO[str]) -> str:
    held = _read(file)
    return f" (process {held['pid']}, --state {held['state']})" if "state" in held else ""


def _settle(files: Iterable[IO[str]]) -> None:
    """Wait until the driver shows what the last holders of the locks changed; one of them may have been killed just
    now.
    """
    others = [held for file in files if (held := _read(file)) and held.get("pid") != os.getpid()]
    ends = [held.get("released_s", time.time()) + SETTLE_S for held in others]
    if (left := max(ends, default=0.0) - time.time()) > 0:
        pause(min(left, SETTLE_S))


def _read(file: IO[str]) -> dict[str, Any]:
    file.seek(0)
    try:
        content = json.loads(file.read() or "{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _write(file: IO[str], content: dict[str, Any]) -> None:
    file.seek(0)
    file.truncate()
    json.dump(content, file)
    file.flush()
