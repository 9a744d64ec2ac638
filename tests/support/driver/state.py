"""The state of a node as rows of a text file, the way nvml/state.c reads and writes it, and calls made from Python."""

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

LARGEST_REAL_PID = 1 << 22


class HangError(Exception):
    """A call inside of the caller never returns."""


class Gpu(NamedTuple):
    """A GPU: its type, its UUID, whether it is in MIG mode, how it takes a change of that mode, and how it answers."""

    type: str
    uuid: str
    mig: int
    pending_mig: int
    compute_mode: int
    settles: str
    answers: str


class GpuInstance(NamedTuple):
    """A GPU instance; start and size count memory slices."""

    gpu: int
    id: int
    profile_id: int
    start: int
    size: int
    serial: int


class ComputeInstance(NamedTuple):
    """A compute instance, and the MIG device that it is for CUDA."""

    gpu: int
    gi: int
    id: int
    profile_id: int
    start: int
    size: int
    slot: int
    serial: int
    uuid: str


class Process(NamedTuple):
    """A process: "C" (CUDA), "M+C" (MPS client) or "D" (MPS daemon, on GPU -1); gi and ci are -1 on a whole GPU."""

    pid: int
    gpu: int
    gi: int
    ci: int
    kind: str
    memory_mib: int
    name: str


class Fault(NamedTuple):
    """What happens to the ``countdown``-th call that ``what`` matches."""

    what: str
    countdown: int
    kind: str
    code: int


WORDS = {"gpu": Gpu, "instance": GpuInstance, "compute": ComputeInstance, "process": Process, "fault": Fault}


class State:
    """Everything in a node's state file; change the lists inside `locked`."""

    def __init__(self, text):
        self.rows = {word: [] for word in WORDS}
        for line in text.splitlines():
            word, *fields = line.split()
            if word == "node":
                self.call_count, self.change_count, self.serial, self.privileged = map(int, fields)
            else:
                self.rows[word].append(_row(WORDS[word], fields))
        self.rows["process"] = [process for process in self.rows["process"] if not _has_ended(process.pid)]

    def __str__(self):
        node = f"node {self.call_count} {self.change_count} {self.serial} {self.privileged}"
        return "\n".join([node, *(" ".join(map(str, (word, *row))) for word in WORDS for row in self.rows[word]), ""])

    def remove(self, word, **fields):
        """Remove the rows whose fields have the given values."""
        self.rows[word] = [row for row in self.rows[word] if any(getattr(row, k) != v for k, v in fields.items())]

    def new_serial(self):
        self.serial += 1
        return self.serial

    def add_process(self, devices, kind, memory_mib, name, pid=None):
        """Start a process on CUDA devices, or one that uses none; its process id.

        Raises LookupError when there is no such device; a GPU in MIG mode is used through its MIG devices alone.
        """
        parts = [self.part(device) for device in devices] if kind != "D" else [(-1, -1, -1)]
        if not parts or None in parts:
            raise LookupError(f"no CUDA device {','.join(devices)}")
        pid = pid or LARGEST_REAL_PID + self.new_serial()
        self.rows["process"] += [Process(pid, *part, kind, memory_mib, name) for part in parts]
        return pid

    def part(self, uuid):
        """(GPU, GPU instance, compute instance) that a UUID or a GPU index names, as CUDA takes it; None for none."""
        for index, gpu in enumerate(self.rows["gpu"]):
            if uuid in (gpu.uuid, str(index)) and not gpu.mig:
                return index, -1, -1
        return next(((row.gpu, row.gi, row.id) for row in self.rows["compute"] if row.uuid == uuid), None)


@contextlib.contextmanager
def locked(folder):
    """The state, held by nobody else; what was changed is written at the end, also after an exception."""
    with open(Path(folder) / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = State((Path(folder) / "state").read_text())
        try:
            yield state
        finally:
            write(folder, state)


def write(folder, state):
    """Replace the state file in one step."""
    fresh = Path(folder) / "state.new"
    fresh.write_text(str(state))
    fresh.replace(Path(folder) / "state")


def call(folder, name, effect, *, change, gpu=-1, arguments="", kill=False):
    """One counted and logged call, with the faults that are due.

    Returns the (text, exit status) of ``effect(state)``. Kill faults hit the parent too: the program stands for its
    caller, like the library does in the caller's own process. A caller inside gives its own ``kill``, and is told of a
    call that hangs by HangError.
    """
    with locked(folder) as state:
        state.call_count += 1
        state.change_count += change
        fault = _due(state, name, change)
        text, status = ("", 0) if fault.kind in ("error", "hang", "kill_before") else effect(state)
        if fault.kind.startswith("error"):
            text, status = f"Failed with error {fault.code}", fault.code
        outcome = fault.kind if fault.kind in ("hang", "kill_before", "kill_after") else status
        _log(folder, state, name, gpu, change, arguments, outcome)
    if fault.kind.startswith("kill"):
        for pid in (os.getpid(),) if kill else (os.getppid(), os.getpid()):
            os.kill(pid, signal.SIGKILL)
    if fault.kind == "hang" and kill:
        raise HangError
    while fault.kind == "hang":
        time.sleep(60)
    return text, status


def _row(kind, fields):
    return kind(*(type_(field) for type_, field in zip(kind.__annotations__.values(), fields, strict=True)))


def _has_ended(pid):
    if pid > LARGEST_REAL_PID:
        return False
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return status.rpartition(") ")[2][0] in "ZX"


def _due(state, name, change):
    due, waiting = Fault(name, 0, "none", 0), []
    for fault in state.rows["fault"]:
        matches = fault.what in ("call", name) or (change and fault.what == "change")
        left = fault._replace(countdown=fault.countdown - matches)
        if left.countdown == 0:
            due = left
        else:
            waiting.append(left)
    state.rows["fault"] = waiting
    return due


def _log(folder, state, name, gpu, change, arguments, outcome):
    with open(Path(folder) / "calls", "a") as log:
        print(state.call_count, os.getpid(), name, gpu, int(change), arguments, outcome, sep="\t", file=log)
