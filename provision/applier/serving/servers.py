"""Server processes that the applier starts. It finds them again by their environment variables.

Process ids are never written to files. Running servers are found in /proc, so that no crash can lose a server.
"""

import os
import re
import shlex
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from subprocess import Popen
from typing import cast

from provision.applier.serving.mps import inherited
from provision.applier.serving.processes import processes, signalled
from provision.instances.files.files import FilePath, reason
from provision.models.base.clock import Deadline
from provision.models.base.errors import InputError

STATE, SLOT = "PROVISION_STATE", "PROVISION_SLOT"
DEVICE = "CUDA_VISIBLE_DEVICES"
SETTLE_S = 1.0
"""The seconds for which a new server is watched."""
END_S = 30.0
"""The seconds that a process may take to end after SIGTERM."""
POLL_S = 0.02

Sessions = Mapping[int, Mapping[int, int]]
"""The sessions of a device's servers: by replica, and then by the number of the server."""
Running = Mapping[str, Sessions]
"""The Sessions by device."""


def running(state: FilePath) -> Running:
    """The running servers of a state directory as {device: {replica: {number: session}}}. A server leads its session.
    """
    found: defaultdict[str, defaultdict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    mark = f"{STATE}={state}".encode()
    for pid, session, lines in processes():
        if pid != session or mark not in lines:
            continue
        environment = dict(line.decode(errors="replace").split("=", 1) for line in lines if b"=" in line)
        # Other processes may have the variable too, for example a shell in which it is set.
        if DEVICE in environment and (slot := re.fullmatch(r"(\d+)/(\d+)", environment.get(SLOT, ""))):
            replica, number = map(int, slot.groups())
            found[environment[DEVICE]][replica][number] = session
    return found


def start(state: FilePath, command: str, environment: dict[str, str], replica: int, number: int,
          log: Path) -> Popen[bytes]:
    """Start a server; return its process, for ``watch``. Raises InputError if it cannot be started."""
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
    """Watch new servers for SETTLE_S. Raises InputError if one of them ends. The message has the last line of their
    log.
    """
    until = Deadline(SETTLE_S)
    for server in started:
        try:
            code = server.wait(until.left_s)
        except subprocess.TimeoutExpired:
            continue
        last = (log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]
        command = shlex.join(cast("list[str]", server.args))
        raise InputError(f"server {command}: ended with exit code {code}: {last}; see {log}")


def stop(sessions: Iterable[int]) -> None:
    """Send SIGTERM to servers and their child processes, and wait until they have ended."""
    for session in sessions:
        signalled(session, signal.SIGTERM, os.killpg)
    _wait(lambda: {one.session for one in processes()} & set(sessions), "server")


def evict(pids: Collection[int]) -> None:
    """Send SIGTERM to processes, and wait until they have ended."""
    there = {one.pid for one in processes()}
    hidden = sorted(set(pids) - there)
    if hidden:
        raise InputError(f"process {hidden[0]} uses the slice but is not to be seen from here; end it where it runs")
    for pid in pids:
        signalled(pid, signal.SIGTERM)
    _wait(lambda: {one.pid for one in processes()} & set(pids), "process")


def _wait(left: Callable[[], set[int]], what: str) -> None:
    until = Deadline(END_S)
    while remaining := left():
        if until.over:
            pids = ", ".join(map(str, sorted(remaining)))
            raise InputError(f"{what} {pids}: still there {END_S:g} s after SIGTERM; end it yourself and apply again")
        time.sleep(POLL_S)

