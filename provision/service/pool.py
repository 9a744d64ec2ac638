"""The processes of the server: workers, which carry out jobs, and the reader of large bodies.

For each worker a thread sends it jobs, receives its messages, and replaces it when it dies. Small bodies are read in
threads. A large body is read in a process of its own, one at a time: parsing holds the interpreter's lock for seconds,
and the memory for all of them at once would be too much.
"""

import itertools
import os
import queue
import resource
import signal
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, NamedTuple, Protocol, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from provision.models.base.clock import Deadline
from provision.service.messages import DEFECT, Problem, RefusedError, body_of, mapping_of, problem_of, refused
from provision.service.settings import GIB, LOGGER, Settings, set_up
from provision.service.store import Store
from provision.service.worker import end_with_server, work


def started(context: SpawnContext, target: Callable[..., None], *arguments: Any, name: str | None = None
            ) -> tuple[SpawnProcess, Connection]:
    """Start a daemon process; returns it and this end of its pipe. ``target`` gets the other end and ``arguments``.
    Raises OSError if the system starts no further process; nothing is left open then.
    """
    pipe, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments), name=name, daemon=True)
    try:
        process.start()
    except OSError:
        pipe.close()
        raise
    finally:
        theirs.close()
    return process, pipe


SMALL_BYTES = 2**16
"""The most bytes of a body that is read in a thread; this takes less than 0.1 s."""
NAME = "provision-reader"
READ_S = 60.0
"""The most seconds for reading a large body."""
T = TypeVar("T")
Handle = Callable[[Settings, Store, dict[str, Any]], T]
"""What is done with the mapping in a body where it is read: it is checked and stored. A function at module level."""


class Reader:
    """Reads bodies for the handlers of requests."""

    def __init__(self, settings: Settings, store: Store):
        self.settings, self.store = settings, store
        self.turns = CapacityLimiter(1)
        self.process: Any = None
        self.pipe: Any = None

    async def read(self, request: Request, handle: Handle[T]) -> T:
        """What ``handle`` makes of the mapping in a request's body. Raises RefusedError if the body cannot be read, or
        ``handle`` refuses it.
        """
        kind, body = await body_of(request)
        if len(body) <= SMALL_BYTES:
            return await run_in_threadpool(lambda: handle(self.settings, self.store, mapping_of(kind, body)))
        answer = await to_thread.run_sync(self._elsewhere, handle, kind, body, limiter=self.turns)
        if isinstance(answer, Problem):
            raise RefusedError(answer)
        return answer

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
            self.process = None

    def _elsewhere(self, handle: Handle[T], kind: str, body: bytes) -> T | Problem:
        """What ``handle`` makes of a body in the process, or the problem that it has with it."""
        try:
            if self.process is None or not self.process.is_alive():
                self._start()
            self.pipe.send((handle, kind, body))
            if self.pipe.poll(READ_S):
                return self.pipe.recv()
        except (EOFError, OSError):
            pass  # the process died, probably of memory
        self.stop()
        return refused(422, "body: reading it takes too much time or memory; make it smaller").problem

    def _start(self) -> None:
        self.stop()
        self.process, self.pipe = started(get_context("spawn"), _serve, self.settings, name=NAME)


def _serve(pipe: Connection, settings: Settings) -> None:
    """Read bodies that come from the pipe, and answer each with a result or a Problem, until the server ends."""
    os.setsid()
    set_up()
    resource.setrlimit(resource.RLIMIT_AS, (int(settings.memory_gib * GIB),) * 2)
    threading.Thread(target=end_with_server, daemon=True).start()
    opened = cache(lambda: Store(settings.db))
    while True:
        try:
            handle, kind, body = pipe.recv()
        except EOFError:
            return
        try:
            answer = handle(settings, opened(), mapping_of(kind, body))
        except Exception as error:
            answer = problem_of(error) or refused(500, DEFECT).problem
            if answer.status == 500:
                LOGGER.error("failure", exc_info=error)
        pipe.send(answer)


TICK_S = 0.2
"""The seconds between two checks of whether a job has to end."""
GRACE_S = 60.0
"""The most seconds that an interrupted job may take to deliver its result; busy machines are slow."""
STARTS_S = 120.0
"""The most seconds that a process may take to start before an interrupted job is given up."""
PROCESS_JOBS = 500
"""The number of jobs after which a worker process is replaced by a new one."""
_numbers = itertools.count(1)


class Work(NamedTuple):
    """What a worker is given for a job: verb, settings (``request``), instance and plan, as plain content."""

    verb: str
    request: dict[str, Any]
    instance: Any
    plan: Any


class Desk(Protocol):
    """The interface that the pool calls when jobs begin, report progress, and end; ``Jobs`` implements it."""

    def begin(self, id: str) -> Work | None:
        """Called when a job begins; returns its Work, or None if there is nothing to do."""

    def tell(self, id: str, kind: str, content: dict[str, Any]) -> None:
        """Called when a job reports an event."""

    def end(self, id: str, kind: str, content: dict[str, Any]) -> None:
        """Called when a job has ended; ``kind`` is ``result``, ``cancelled``, ``problem`` or ``died``."""


class Pool:
    """The worker processes, and the queue from which they take jobs."""

    def __init__(self, desk: Desk, workers: int, job_s: float, memory_gib: float):
        self.queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.folder = tempfile.TemporaryDirectory(prefix="provision-")
        self.slots = [_Slot(desk, self.queue, job_s, memory_gib, self.folder.name) for _ in range(workers)]

    def start(self) -> None:
        """Start the worker processes."""
        for slot in self.slots:
            slot.start()

    @property
    def alive(self) -> int:
        """The number of workers: processes that live, with threads that live."""
        return sum(slot.is_alive() and slot.process is not None and slot.process.is_alive() for slot in self.slots)

    @property
    def lost(self) -> int:
        """The number of threads that work no more, so that jobs wait in vain."""
        return sum(not slot.is_alive() for slot in self.slots)

    def interrupt(self, id: str) -> None:
        """Interrupt a running job, so that it delivers its best result so far."""
        for slot in self.slots:
            slot.interrupt(id)

    def stop(self) -> None:
        """Interrupt running jobs and end the worker processes."""
        for slot in self.slots:
            slot.stopping.set()
            self.queue.put(None)
        for slot in self.slots:
            slot.join()
        self.folder.cleanup()


class _Slot(threading.Thread):
    """A thread that owns one worker process at a time and knows the job on which the process works."""

    def __init__(self, desk: Desk, jobs: "queue.SimpleQueue[str | None]", job_s: float, memory_gib: float, folder: str):
        super().__init__(daemon=True)
        self.desk, self.jobs, self.job_s, self.memory_gib, self.folder = desk, jobs, job_s, memory_gib, folder
        self.context = get_context("spawn")
        self.cancelled = self.context.Value("q", 0, lock=False)
        self.stopping = threading.Event()
        self.process: Any = None
        self.pipe: Any = None
        self.current: tuple[str, int] | None = None
        self.plan: Any = None
        self.kept: dict[str, Any] | None = None
        self.ready = False
        self.done = 0
        self.lock = threading.Lock()

    def run(self) -> None:
        """Take jobs from the queue and have the process carry them out, until the pool stops. No job ends the thread,
        whatever goes wrong with it.
        """
        with suppress(OSError):  # the first job tries again
            self._ensure()
        while (id := self.jobs.get()) is not None and not self.stopping.is_set():
            try:
                given = self.desk.begin(id)
                if given is not None:
                    self._carry_out(id, given)
            except Exception as error:
                LOGGER.error("failure", exc_info=error, extra={"fields": {"job": id}})
                self._kill()
                self.desk.end(id, "problem", {"status": 500, "detail": DEFECT})
        self._kill()

    def interrupt(self, id: str) -> None:
        """Interrupt the process if it works on this job."""
        with self.lock:
            if self.current and self.current[0] == id:
                self.cancelled.value = self.current[1]
                _signal(self.process, signal.SIGINT)

    def _carry_out(self, id: str, given: Work) -> None:
        number, self.plan, self.kept = next(_numbers), None, None
        kind, content = self._performed(id, number, given)
        if kind == "died" and self.kept is not None and (self._interrupted or self.stopping.is_set()):
            kind, content = "result", self.kept
        elif kind == "died" and self._interrupted and not self.stopping.is_set():
            kind, content = self._performed(id, number, given._replace(plan=self.plan or given.plan))
        with self.lock:
            self.current = None
        self.done += 1
        if self.done >= PROCESS_JOBS:
            self._kill()
        self.desk.end(id, kind, content)

    def _performed(self, id: str, number: int, given: Work) -> tuple[str, dict[str, Any]]:
        """The last message of a job that the process carries out; without one the process has ended."""
        try:
            self._ensure()
            with self.lock:
                self.current = id, number
            self.pipe.send((number, *given))
            return self._listen(id)
        except (EOFError, OSError):
            self._kill()
            return "died", {}

    def _listen(self, id: str) -> tuple[str, dict[str, Any]]:
        """Pass on a job's messages until the last message, which is returned. Interrupt a job that takes too long; if
        it does not react, end its process. The result of an interrupted job without one is what it told last to keep.
        """
        deadline, told = Deadline(self.job_s), False
        while True:
            if self.pipe.poll(TICK_S):
                kind, content = self.pipe.recv()
                if kind == "cancelled" and self.kept is not None:
                    return "result", self.kept
                if kind in ("result", "cancelled", "problem"):
                    return kind, content
                if kind == "keep":
                    self.kept = content["result"]
                elif kind == "plan":
                    self.plan = content["plan"]
                elif kind != "ready":
                    self.desk.tell(id, kind, content)
                else:  # starting the process counts neither as the job's time nor as the time in which it has to stop
                    self.ready, deadline = True, Deadline(GRACE_S if told else self.job_s)
            late = self.stopping.is_set() or self._interrupted or deadline.over
            if late and not told:
                told = True
                deadline = Deadline(GRACE_S if self.ready or self.stopping.is_set() else STARTS_S)
                self.interrupt(id)
            elif late and deadline.over:
                self._kill()
                return "died", {}

    @property
    def _interrupted(self) -> bool:
        return self.current is not None and self.cancelled.value == self.current[1]

    def _ensure(self) -> None:
        """Start a process unless there is a live one."""
        if self.process is None or not self.process.is_alive():
            # SIGINT is blocked in the new process until it is ready to handle it; it inherits the block from here. The
            # resource tracker of multiprocessing unblocks it when it starts, so the tracker is started before.
            resource_tracker.ensure_running()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            self.process, self.pipe = started(self.context, work, self.cancelled, self.memory_gib, self.folder)
            self.ready, self.done = False, 0

    def _kill(self) -> None:
        if self.process is not None:
            self.pipe.close()
            _signal(self.process, signal.SIGKILL)
            self.process.join()
            self.process = None


def _signal(process: Any, number: int) -> None:
    """Send a signal to a worker and to the solvers that it has started; to the worker alone until it has its own
    session.
    """
    if process is None or not process.is_alive():
        return
    try:
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
    except ProcessLookupError:
        return
