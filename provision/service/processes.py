"""The processes of the server: one for every job, and one for every large body of a request, as reading it holds the
interpreter's lock for seconds. They are forked from a process that has loaded what they need.
"""

import os
import resource
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import current_process, get_context, parent_process
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from provision import InputError, MethodError
from provision.commands.verb import Given, asked
from provision.models.base.clock import Stop, Stopwatch, stopping
from provision.service.messages import DEFECT, Problem, RefusedError, body_of, mapping_of, problem_of, refused
from provision.service.settings import GIB, LOGGER, Settings, set_up
from provision.service.store import Store

CONTEXT = get_context("forkserver")


def started(target: Callable[..., None], *arguments: Any, name: str | None = None) -> tuple[Any, Connection]:
    """Start a process; returns it and our end of its pipe. Raises OSError or EOFError if the system starts no more."""
    pipe, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=target, args=(theirs, *arguments), name=name, daemon=True)
    try:
        process.start()
    except (OSError, EOFError):
        pipe.close()
        raise
    finally:
        theirs.close()
    return process, pipe


def end(process: Any, pipe: Connection) -> None:
    """End a process and the solvers that it has started."""
    send_signal(process, signal.SIGKILL)
    process.join()
    pipe.close()


def send_signal(process: Any, number: int) -> None:
    """Send a signal to a process and its solvers; to it alone until it has a session of its own."""
    with suppress(ProcessLookupError):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            if process.is_alive():
                os.kill(process.pid, number)


class Work(NamedTuple):
    """What a job is given: verb, settings (``request``), instance and plan, as plain content."""

    verb: str
    request: dict[str, Any]
    instance: Any
    plan: Any


def work(pipe: Connection, job: Work, memory_gib: float, folder: str) -> None:
    """Carry out a job in an empty folder, so that relative paths lead to no files. SIGINT interrupts it.

    A message is a pair of a kind and a content: first ``ready``; then any number of ``incumbent``, ``progress``,
    ``plan`` (to begin with if this process dies) and ``keep`` (the result if the job is interrupted now); at last
    ``result``, ``cancelled`` (there is no other result) or ``problem``.
    """
    isolate(memory_gib)
    os.chdir(folder)
    current_process().daemon = False  # so that it may have processes: a search runs in one
    lock, watch = threading.Lock(), Stopwatch()

    def tell(kind: str, content: dict[str, Any]) -> None:
        with lock:  # solvers report from threads of their own
            pipe.send((kind, content | {"seconds": round(watch.elapsed_s, 3)}))

    with stopping() as stop:
        signal.signal(signal.SIGINT, lambda number, frame: stop.ask(number))
        tell("ready", {})
        last = outcome(job, tell)
        with lock:
            pipe.send(last)


def isolate(memory_gib: float) -> None:
    """Give this process a session of its own, which ends with the server, and at most so much memory."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (int(memory_gib * GIB),) * 2)
    server = parent_process()

    def end_with_server() -> None:
        """Wait for the end of the server, then kill this process and its solvers."""
        if server is not None:
            server.join()
            os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=end_with_server, daemon=True).start()


def outcome(job: Work, tell: Any) -> tuple[str, dict[str, Any]]:
    """The last message of a job."""
    try:
        verb, given = asked(job.verb, job.request), Given(job.instance, job.plan, tell)
        try:
            result: dict[str, Any] | None = verb.job(given)
        except KeyboardInterrupt:
            with stopping(Stop()):  # the Stop of the job was asked for
                result = verb.kept(given)
        return ("cancelled", {}) if result is None else ("result", result)
    except InputError as error:
        return "problem", {"status": 422, "detail": str(error)}
    except MethodError as error:
        return "problem", {"status": 500, "detail": f"{error}; try another method and report this"}
    except MemoryError:
        return "problem", {"status": 422, "detail": "not enough memory for this; make the instance smaller"}


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
        self.settings, self.store, self.turns = settings, store, CapacityLimiter(1)

    async def read(self, request: Request, handle: Handle[T]) -> T:
        """What ``handle`` makes of the mapping in a request's body. Raises RefusedError if either is no good."""
        kind, body = await body_of(request)
        if len(body) <= SMALL_BYTES:
            return await run_in_threadpool(lambda: handle(self.settings, self.store, mapping_of(kind, body)))
        answer = await to_thread.run_sync(self._elsewhere, handle, kind, body, limiter=self.turns)
        if isinstance(answer, Problem):
            raise RefusedError(answer)
        return answer

    def _elsewhere(self, handle: Handle[T], kind: str, body: bytes) -> T | Problem:
        """What ``handle`` makes of a body in a process, or the problem that it has with it."""
        with suppress(EOFError, OSError):  # the process died, probably of memory
            process, pipe = started(_read, self.settings, handle, kind, body, name=NAME)
            try:
                if pipe.poll(READ_S):
                    return pipe.recv()
            finally:
                end(process, pipe)
        return refused(422, "body: reading it takes too much time or memory; make it smaller").problem


def _read(pipe: Connection, settings: Settings, handle: Handle[Any], kind: str, body: bytes) -> None:
    """Read a body, and answer with a result or a Problem."""
    isolate(settings.memory_gib)
    try:
        answer = handle(settings, Store(settings.db, known=True), mapping_of(kind, body))
    except Exception as error:
        answer = problem_of(error) or refused(500, DEFECT).problem
        if answer.status == 500:
            set_up()
            LOGGER.error("failure", exc_info=error)
    pipe.send(answer)
