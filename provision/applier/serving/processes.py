"""Processes of this machine, read from /proc."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from provision.models.base.errors import InputError

PROC = Path("/proc")


class Running(NamedTuple):
    """A process that this user may inspect: its id, its session, and the lines of its environment."""

    pid: int
    session: int
    lines: tuple[bytes, ...]

    @property
    def name(self) -> str:
        """The name of the process; empty if it has ended."""
        return name(self.pid)


def processes() -> Iterator[Running]:
    """All running processes that this user may inspect."""
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            content = (entry / "environ").read_bytes()
            session = os.getsid(int(entry.name))
        except (PermissionError, ProcessLookupError, FileNotFoundError):
            continue
        # A process that has ended but was not waited for (a zombie) has no environment.
        if content:
            yield Running(int(entry.name), session, tuple(content.split(b"\0")))


def name(pid: int) -> str:
    """The name of a process; empty if the process is not visible."""
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def session_of(pid: int) -> int | None:
    """The session of a process; None if the process is not visible."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def signalled(number: int, which: signal.Signals, send: Callable[[int, int], None] = os.kill) -> None:
    """Send a signal to a process or, with ``os.killpg``, to a process group. If it has ended, nothing happens. Raises
    InputError if this user is not permitted to send it.
    """
    try:
        send(number, which)
    except ProcessLookupError:
        return
    except PermissionError:
        raise InputError(f"process {number}: may not be ended by this user; end it yourself or run as root") from None
