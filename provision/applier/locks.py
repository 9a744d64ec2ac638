"""Locks that keep two appliers apart: one on the state directory, one on every GPU that may be changed.

The locks of GPUs are in one folder, whatever the state directory. There is a file per UUID. It is held with flock(2),
and the kernel releases it when the holder ends. PROVISION_LOCKS names another folder, such as the host's folder inside
a container. Appliers that must respect each other have to share the folder, and so have to run as the same user.

The folders are used only if they belong to this user and nobody else can write in them. Otherwise another user could
hold a lock for ever, or put a link there that leads this process to overwrite a file elsewhere.
"""

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from provision.instances.files.files import FilePath, opened, reason, taken
from provision.models.base.clock import end_if_asked
from provision.models.base.errors import InputError
from provision.models.base.fields import Count, NonNegative, Record, Text

ROOTS_FOLDER = "/run/provision"
"""The folder of locks of root. Only root can make it, since only root can write in /run."""
VARIABLE = "PROVISION_LOCKS"
POLL_S = 0.05
SETTLE_S, KILLED = 1.0, 5
"""The seconds after which a driver certainly shows what another process has changed; KILLED times as many if that
process was killed, since it did not see its changes itself.
"""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
MOST_READ = 4096


class _Holder(Record):
    """What a lock file says about its last holder; ``released_s`` is None if the holder did not release it."""

    pid: Count
    state: Text
    released_s: NonNegative | None = None


@contextlib.contextmanager
def locked_state(state: FilePath, wait: bool = False) -> Iterator[None]:
    """Lock a state directory, which is created if necessary. Raises InputError if another applier holds it and ``wait``
    is not set, or if the directory cannot be used.
    """
    with contextlib.ExitStack() as held:
        try:
            file = _opened(Path(state), "lock")
        except OSError as error:
            raise InputError(f"{state}: cannot be used: {reason(error)}; name another directory with --state") from None
        held.callback(os.close, file)
        _hold(file, str(state), wait)
        yield


@contextlib.contextmanager
def locked_gpus(uuids: Iterable[str], state: FilePath, wait: bool = False) -> Iterator[None]:
    """Lock GPUs against appliers of all state directories of this machine.

    GPUs are locked in the order of their UUIDs, so that appliers which wait for each other's GPUs cannot deadlock. Once
    the locks are held, the changes of the last holder are visible. Raises InputError if another applier holds one of
    the GPUs and ``wait`` is not set, or if the folder of locks cannot be used.
    """
    with contextlib.ExitStack() as held:
        files = []
        for uuid in sorted(set(uuids)):
            try:
                file = _opened(folder(), f"{uuid}.lock")
            except OSError as error:
                remedy = f"install -d -m 700 {folder()}; or name another folder with {VARIABLE}"
                raise InputError(f"{folder()}: GPU {uuid} cannot be locked: {reason(error)}; {remedy}") from None
            held.callback(os.close, file)
            _hold(file, f"GPU {uuid}", wait)
            files.append(file)
        _settle(files)
        for file in files:
            _write(file, _Holder(pid=os.getpid(), state=str(state)))
        try:
            yield
        finally:
            for file in files:
                _write(file, _Holder(pid=os.getpid(), state=str(state), released_s=time.time()))


def folder() -> Path:
    """The folder of the locks of GPUs."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    if os.geteuid() == 0:
        return Path(ROOTS_FOLDER)
    return Path(os.environ.get("XDG_RUNTIME_DIR") or os.path.expanduser("~/.local/state")) / "provision/locks"


def own_folder(path: Path) -> int:
    """Open a folder in which only this user can write; make it if it is missing.

    Returns
    -------
    int
        Its file descriptor. Names are to be opened relative to it, so that no other folder can take its place.

    Raises
    ------
    OSError
        If it belongs to another user, if others can write in it, or if it cannot be made or opened.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    inside = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    about = os.fstat(inside)
    if about.st_uid == os.geteuid() and not about.st_mode & OTHERS_WRITE:
        return inside
    os.close(inside)
    if about.st_uid != os.geteuid():
        raise PermissionError(0, f"it belongs to another user, whose id is {about.st_uid}")
    raise PermissionError(0, f"other users can write there (chmod go-w {path})")


def _opened(path: Path, name: str) -> int:
    """The descriptor of a lock file in a folder of this user. Raises OSError if the folder is not this user's alone, if
    the file is a link or no regular file, or if it cannot be opened.
    """
    inside = own_folder(path)
    try:
        return opened(name, inside)
    finally:
        os.close(inside)


def _hold(file: int, what: str, wait: bool) -> None:
    """Take a lock. It is polled, so that a signal can end the wait."""
    while not taken(file):
        if not wait:
            holder = _read(file)
            who = f" (process {holder.pid}, --state {holder.state})" if holder else ""
            raise InputError(f"{what}: another applier is at work{who}; wait for it with --wait")
        pause(POLL_S)


def pause(seconds: float) -> None:
    """Wait for some seconds; raise KeyboardInterrupt if a Stop was asked for."""
    time.sleep(seconds)
    end_if_asked()


def _settle(files: Iterable[int]) -> None:
    """Wait until the driver shows what the last holders of the locks changed; one of them may have been killed just
    now.
    """
    now = time.time()
    others = [holder for file in files if (holder := _read(file)) and holder.pid != os.getpid()]
    waits = [
        KILLED * SETTLE_S if one.released_s is None else SETTLE_S - max(0.0, now - one.released_s) for one in others
    ]
    if (left := max(waits, default=0.0)) > 0:
        pause(left)


def _read(file: int) -> _Holder | None:
    """What a lock file says; None if it says nothing that can be read."""
    try:
        return _Holder.model_validate_json(os.pread(file, MOST_READ, 0))
    except ValidationError:
        return None


def _write(file: int, holder: _Holder) -> None:
    """Replace what a lock file says. A full disk does not end a run that holds the lock, for the lock is the kernel's.
    """
    with contextlib.suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, holder.model_dump_json().encode(), 0)
