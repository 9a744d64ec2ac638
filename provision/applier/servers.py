"""Server processes that the applier starts, found again by the environment that they carry.

No process id is ever written down: what runs is read from /proc, so that a crash cannot lose a server.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from provision.applier.mps import inherited
from provision.instances.files.files import reason
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from subprocess import Popen

    from provision.instances.files.files import FilePath

STATE, SLOT = "PROVISION_STATE", "PROVISION_SLOT"
DEVICE = "CUDA_VISIBLE_DEVICES"
SETTLE_S = 1.0
"""How long a server that was just started is watched."""
END_S = 30.0
"""How long a process may take to end after it was asked to."""
POLL_S = 0.02

Sessions = Mapping[int, Mapping[int, int]]
"""The sessions of a device's servers: by replica, then by number of the server."""
Running = Mapping[str, Sessions]
"""Sessions by device."""


def running(state: FilePath) -> Running:
    """Servers of a state directory as {device: {replica: {number: session}}}; a server leads its session."""
    found: defaultdict[str, defaultdict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    mark = f"{STATE}={state}".encode()
    for pid, session, content in _processes():
        lines = content.split(b"\0")
        if pid != session or mark not in lines:
            continue
        environment = dict(line.decode(errors="replace").split("=", 1) for line in lines if b"=" in line)
        # Others may carry the mark too: a shell with the variable set.
        if DEVICE in environment and (slot := re.fullmatch(r"(\d+)/(\d+)", environment.get(SLOT, ""))):
            replica, number = map(int, slot.groups())
            found[environment[DEVICE]][replica][number] = session
    return found


def start(
    state: FilePath, command: str, environment: dict[str, str], replica: int, number: int, log: Path
) -> Popen[bytes]:
    """Start a server; returns what ``watch`` needs.

    Raises
    ------
    InputError
        When it cannot be started.
    """
    slot = {STATE: str(state), SLOT: f"{replica}/{number}"}
    try:
        with open(log, "ab") as output:
            return subprocess.Popen(
                shlex.split(command),
                env=inherited() | environment | slot,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise InputError(f"server {command!r}: cannot be started: {reason(error)}; correct --server") from None


def watch(started: Iterable[Popen[bytes]], log: Path) -> None:
    """Watch servers that were just started for a moment.

    Raises
    ------
    InputError
        When one ends; the message has the last line of their log.
    """
    until = time.monotonic() + SETTLE_S
    for server in started:
        try:
            code = server.wait(max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            continue
        last = (log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]
        command = shlex.join(cast("list[str]", server.args))
        raise InputError(f"server {command}: ended with exit code {code}: {last}; see {log}")


def stop(sessions: Iterable[int]) -> None:
    """Ask servers to end, with all that they started, and wait for it."""
    for session in sessions:
        _signal(os.killpg, session)
    _wait(lambda: {session for _, session, _ in _processes()} & set(sessions), "server")


def evict(pids: Collection[int]) -> None:
    """Ask processes to end and wait for it."""
    there = {pid for pid, _, _ in _processes()}
    hidden = sorted(set(pids) - there)
    if hidden:
        raise InputError(f"process {hidden[0]} uses the slice but is not to be seen from here; end it where it runs")
    for pid in pids:
        _signal(os.kill, pid)
    _wait(lambda: {pid for pid, _, _ in _processes()} & set(pids), "process")


def name(pid: int) -> str:
    """A process's name; empty when it is not to be seen."""
    try:
        return (Path("/proc") / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def session(pid: int) -> int | None:
    """The session of a process; None when it is not to be seen."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _signal(send: Callable[[int, int], None], number: int) -> None:
    try:
        send(number, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise InputError(f"process {number}: may not be ended by this user; end it yourself or run as root") from None


def _wait(left: Callable[[], set[int]], what: str) -> None:
    until = time.monotonic() + END_S
    while remaining := left():
        if time.monotonic() > until:
            pids = ", ".join(map(str, sorted(remaining)))
            raise InputError(f"{what} {pids}: still there {END_S:g} s after SIGTERM; end it yourself and apply again")
        time.sleep(POLL_S)


def _processes() -> Iterator[tuple[int, int, bytes]]:
    """Process id, session and environment, as /proc has it, of all that runs and may be looked at."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            content = (entry / "environ").read_bytes()
            session = os.getsid(int(entry.name))
        except (PermissionError, ProcessLookupError, FileNotFoundError):
            continue
        # What has ended but was not waited for has no environment any more.
        if content:
            yield int(entry.name), session, content
