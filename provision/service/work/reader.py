"""Reads the bodies of requests beside the event loop, so that no body delays the answers to others.

Small bodies are read in threads. A large body is read in a process of its own, to which the server talks through a
pipe, one at a time: parsing holds the interpreter's lock for seconds, and the memory for all of them at once would be
too much.
"""

import os
import resource
import signal
import threading
from collections.abc import Callable
from functools import cache
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from provision.service.messages.answers import Problem
from provision.service.messages.bodies import body_of, mapping_of
from provision.service.messages.problems import DEFECT, RefusedError, problem_of, refused
from provision.service.store.store import Store
from provision.service.watch.settings import GIB, LOGGER, Settings, set_up


def started(context: SpawnContext, target: Callable[..., None], *arguments: Any, name: str | None = None
            ) -> tuple[SpawnProcess, Connection]:
    """Start a daemon process; returns it and this end of its pipe. ``target`` gets the other end and ``arguments``.

    Raises
    ------
    OSError
        If the system starts no further process; nothing is left open then.
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
        """What ``handle`` makes of the mapping in a request's body.

        Raises
        ------
        RefusedError
            If the body cannot be read, or ``handle`` refuses it.
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_up()
    resource.setrlimit(resource.RLIMIT_AS, (int(settings.memory_gib * GIB),) * 2)
    threading.Thread(target=_end_with_server, daemon=True).start()
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


def _end_with_server() -> None:
    server = parent_process()
    if server is not None:
        server.join()
        os._exit(1)
