"""The processes that work on jobs: each has a thread here that feeds it, listens to it and replaces it when it dies."""

import itertools
import os
import queue
import signal
import tempfile
import threading
from multiprocessing import get_context, resource_tracker
from typing import Any, NamedTuple, Protocol

from provision.models.base.clock import Deadline
from provision.service.work.worker import work

TICK_S = 0.2
"""How often a slot looks whether its job is to end."""
GRACE_S = 20.0
"""How long a job that was interrupted may take to hand over what it has."""
PROCESS_JOBS = 500
"""After so many jobs a process makes room for a fresh one."""
_numbers = itertools.count(1)


class Work(NamedTuple):
    """What a worker is given: verb, settings, instance and plan as plain content."""

    verb: str
    request: dict[str, Any]
    instance: Any
    plan: Any


class Desk(Protocol):
    """Whom the slots serve."""

    def begin(self, id: str) -> Work | None:
        """A job begins; None when there is nothing to do."""

    def tell(self, id: str, kind: str, content: dict[str, Any]) -> None:
        """A job goes on."""

    def end(self, id: str, kind: str, content: dict[str, Any]) -> None:
        """A job ends: ``result``, ``cancelled``, ``problem`` or ``died``."""


class Pool:
    """Worker processes and the queue before them."""

    def __init__(self, desk: Desk, workers: int, job_s: float, memory_gib: float):
        self.queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.folder = tempfile.TemporaryDirectory(prefix="provision-")
        self.slots = [_Slot(desk, self.queue, job_s, memory_gib, self.folder.name) for _ in range(workers)]

    def start(self) -> None:
        """Start the processes."""
        for slot in self.slots:
            slot.start()

    @property
    def alive(self) -> int:
        """How many processes live."""
        return sum(slot.process is not None and slot.process.is_alive() for slot in self.slots)

    def interrupt(self, id: str) -> None:
        """Let a job that runs hand over what it has."""
        for slot in self.slots:
            slot.interrupt(id)

    def stop(self) -> None:
        """Interrupt what runs and end the processes."""
        for slot in self.slots:
            slot.stopping.set()
            self.queue.put(None)
        for slot in self.slots:
            slot.join()
        self.folder.cleanup()


class _Slot(threading.Thread):
    """One process at a time, and the job that it works on."""

    def __init__(self, desk: Desk, jobs: "queue.SimpleQueue[str | None]", job_s: float, memory_gib: float, folder: str):
        super().__init__(daemon=True)
        self.desk, self.jobs, self.job_s, self.memory_gib, self.folder = desk, jobs, job_s, memory_gib, folder
        self.context = get_context("spawn")
        self.cancelled = self.context.Value("q", 0, lock=False)
        self.stopping = threading.Event()
        self.process: Any = None
        self.pipe: Any = None
        self.current: tuple[str, int] | None = None
        self.done = 0
        self.lock = threading.Lock()

    def run(self) -> None:
        """Feed the process until the pool stops."""
        self._ensure()
        while (id := self.jobs.get()) is not None and not self.stopping.is_set():
            given = self.desk.begin(id)
            if given is not None:
                self._carry_out(id, given)
        self._kill()

    def interrupt(self, id: str) -> None:
        """Interrupt the process if it works on this job."""
        with self.lock:
            if self.current and self.current[0] == id:
                self.cancelled.value = self.current[1]
                _signal(self.process, signal.SIGINT)

    def _carry_out(self, id: str, given: Work) -> None:
        number = next(_numbers)
        try:
            self._ensure()
            with self.lock:
                self.current = id, number
            self.pipe.send((number, *given))
            kind, content = self._listen(id)
        except (EOFError, OSError):
            kind, content = "died", {}
        with self.lock:
            self.current = None
        self.done += 1
        if kind == "died" or self.done >= PROCESS_JOBS:
            self._kill()
        self.desk.end(id, kind, content)

    def _listen(self, id: str) -> tuple[str, dict[str, Any]]:
        """Pass on messages until the last one; interrupt a job that takes too long, and kill one that does not heed."""
        deadline, told = Deadline(self.job_s), False
        while True:
            if self.pipe.poll(TICK_S):
                kind, content = self.pipe.recv()
                if kind in ("result", "cancelled", "problem"):
                    return kind, content
                if kind != "ready":
                    self.desk.tell(id, kind, content)
                elif not told:  # the process had to start first, which takes nothing of the job's time
                    deadline = Deadline(self.job_s)
            late = self.stopping.is_set() or self._interrupted or deadline.over
            if late and not told:
                told, deadline = True, Deadline(GRACE_S)
                self.interrupt(id)
            elif late and deadline.over:
                return "died", {}

    @property
    def _interrupted(self) -> bool:
        return self.current is not None and self.cancelled.value == self.current[1]

    def _ensure(self) -> None:
        """See to it that there is a process."""
        if self.process is None or not self.process.is_alive():
            self.pipe, theirs = self.context.Pipe()
            arguments = theirs, self.cancelled, self.memory_gib, self.folder
            # The process inherits that SIGINT is blocked, until it is ready to listen. The tracker of multiprocessing
            # lifts the block when it starts, so it starts before.
            resource_tracker.ensure_running()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            self.process = self.context.Process(target=work, args=arguments, daemon=True)
            self.process.start()
            theirs.close()
            self.done = 0

    def _kill(self) -> None:
        if self.process is not None:
            self.pipe.close()
            _signal(self.process, signal.SIGKILL)
            self.process.join()
            self.process = None


def _signal(process: Any, number: int) -> None:
    """Signal a worker and the solvers that it has started; before it has a session of its own, it alone."""
    if process is None or not process.is_alive():
        return
    try:
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
    except ProcessLookupError:
        return
