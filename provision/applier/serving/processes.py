"""Processes of this machine, as /proc has them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from provision.models.base.errors import InputError

PROC = Path("/proc")


class Running(NamedTuple):
    """A process that may be looked at: its id, its session, its environment's lines, its name."""

    pid: int
    session: int
    lines: tuple[bytes, ...]

    @property
    def name(self) -> str:
        """Its name; empty when it has ended."""
        return name(self.pid)


def processes() -> Iterator[Running]:
    """All that runs and may be looked at."""
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            content = (entry / "environ").read_bytes()
            session = os.getsid(int(entry.name))
        except (PermissionError, ProcessLookupError, FileNotFoundError):
            continue
        # What has ended but was not waited for has no environment any more.
        if content:
            yield Running(int(entry.name), session, tuple(content.split(b"\0")))


def name(pid: int) -> str:
    """A process's name; empty when it is not to be seen."""
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def session_of(pid: int) -> int | None:
    """The session of a process; None when it is not to be seen."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def signalled(number: int, which: signal.Signals, send: Callable[[int, int], None] = os.kill) -> None:
    """Send a signal to a process, or to a group with ``os.killpg``; one that has ended is none.

    Raises
    ------
    InputError
        When this user may not.
    """
    try:
        send(number, which)
    except ProcessLookupError:
        return
    except PermissionError:
        raise InputError(f"process {number}: may not be ended by this user; end it yourself or run as root") from None
