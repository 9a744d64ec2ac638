"""A worker process: it takes jobs from its pipe, one after another, and sends messages about them.

Messages to the server are pairs of a kind and a content: any number of ``incumbent``, ``progress``, ``plan`` (to
begin with if this process dies) and ``keep`` (the result if the job is interrupted now), then one ``result``,
``cancelled`` (there is no other result) or ``problem``.
"""

import os
import queue
import resource
import signal
import threading
from multiprocessing import current_process, parent_process
from multiprocessing.connection import Connection
from typing import Any

from provision import InputError, MethodError
from provision.commands import JOBS
from provision.commands.verb import Given, Verb, asked, verb_class
from provision.models.base.clock import Stop, Stopwatch, stopping
from provision.service.settings import GIB
from provision.solving.methods import methods

PAUSE_S = 0.1
"""The seconds between messages; of several improvements within this time only the last is sent."""


def work(pipe: Connection, cancelled: Any, memory_gib: float, folder: str) -> None:
    """Work on jobs until the server closes the pipe, from which jobs ``(number, verb, request, instance, about)`` come,
    and to which messages are sent.

    SIGINT ends the job with the shared number ``cancelled`` and no other. The process has at most ``memory_gib`` GiB of
    address space, and works in an empty ``folder``, so that relative paths lead to no files.
    """
    os.setsid()
    os.chdir(folder)
    current_process().daemon = False  # so that it may have processes: a search runs in one
    turn = _Turn(cancelled)
    signal.signal(signal.SIGINT, turn.interrupt)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (int(memory_gib * GIB),) * 2)
    threading.Thread(target=end_with_server, daemon=True).start()
    methods()
    for verb in JOBS:
        verb_class(verb)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # not before: while methods load it ends the process
    pipe.send(("ready", {}))
    while True:
        try:
            number, *job = pipe.recv()
        except (EOFError, OSError):
            return
        messages = _Messages(pipe)
        last = _outcome(turn, number, messages, *job)
        messages.close()
        pipe.send(last)


def end_with_server() -> None:
    """Wait for the end of the server, then kill this process, which has a session of its own, and its solvers."""
    server = parent_process()
    if server is not None:
        server.join()
        os.killpg(os.getpgrp(), signal.SIGKILL)


class _Turn:
    """The number of the running job and its Stop, so that a signal which comes too late does not end the next job."""

    def __init__(self, cancelled: Any):
        self.cancelled, self.number, self.stop = cancelled, 0, Stop()

    def begin(self, number: int) -> Stop:
        """Begin a job; returns its Stop."""
        self.stop, self.number = Stop(), number
        self.interrupt(signal.SIGINT)
        return self.stop

    def interrupt(self, signum: int, frame: object = None) -> None:
        """Stop the running job if it is the cancelled one."""
        if self.number and self.number == self.cancelled.value:
            self.number = 0
            self.stop.ask(signum)


class _Messages:
    """Sends messages about a job from a separate thread, so that a signal never interrupts a message halfway."""

    def __init__(self, pipe: Connection):
        self.pipe, self.watch = pipe, Stopwatch()
        self.waiting: queue.SimpleQueue[tuple[str, dict[str, Any]] | None] = queue.SimpleQueue()
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self._send, daemon=True)
        self.thread.start()

    def tell(self, kind: str, content: dict[str, Any]) -> None:
        """Send a message; the seconds since the job began are added to its content."""
        self.waiting.put((kind, content | {"seconds": round(self.watch.elapsed_s, 3)}))

    def close(self) -> None:
        """Wait until all messages are sent."""
        self.closing.set()
        self.waiting.put(None)
        self.thread.join()

    def _send(self) -> None:
        """Send the last message of each kind, once per PAUSE_S, until ``close``."""
        told: dict[str, dict[str, Any]] = {}
        batch: list[tuple[str, dict[str, Any]] | None] = []
        while None not in batch:
            batch = [self.waiting.get()]
            self.closing.wait(PAUSE_S)
            while not self.waiting.empty():
                batch.append(self.waiting.get())
            for kind, content in dict(filter(None, batch)).items():
                if told.get(kind, {}) | {"seconds": 0} != content | {"seconds": 0}:
                    self.pipe.send((kind, content))
                told[kind] = content


def _outcome(turn: _Turn, number: int, messages: _Messages, verb: str, request: dict[str, Any], instance: Any,
             about: Any) -> tuple[str, dict[str, Any]]:
    """The last message of a job."""
    try:
        given = Given(instance, about, messages.tell)
        result = _performed(turn, number, asked(verb, request), given)
        return ("cancelled", {}) if result is None else ("result", result)
    except InputError as error:
        return "problem", {"status": 422, "detail": str(error)}
    except MethodError as error:
        return "problem", {"status": 500, "detail": f"{error}; try another method and report this"}
    except MemoryError:
        return "problem", {"status": 422, "detail": "not enough memory for this; make the instance smaller"}


def _performed(turn: _Turn, number: int, job: Verb, given: Given) -> dict[str, Any] | None:
    """The result of a job; if the job is cancelled, the result that can be kept, or None."""
    try:
        with stopping(turn.begin(number)):
            return job.job(given)
    except KeyboardInterrupt:
        turn.number = 0
        return job.kept(given)
    finally:
        turn.number = 0
