"""Runs a search in a process of its own, which can be left, so that a time limit holds and no plan is lost.

A search looks at its clock between steps, and some steps are long: a solver that cannot be asked to stop, a table that
has to be built. The process tells every better plan and bound. If it has not ended soon after the limit or a signal, or
if it dies, what it told last is the answer.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

from provision.models.base.clock import COMPILING, now_s, present_stop, stopping
from provision.models.base.errors import MethodError
from provision.models.plans.plan import Plan
from provision.models.plans.result import Result
from provision.models.problem.search import SIGNALS, Incumbent, Outcome, Termination
from provision.solving.schedule import SOLVE

Report = Callable[[Incumbent], None]
"""What a search calls with every better plan and bound."""
Tell = Callable[[str], None]
"""What a search calls with its current activity in words."""


def can_fork() -> bool:
    """Whether a running process can be forked here, which takes along all that it has imported: only on Linux."""
    return sys.platform == "linux"


def told_by(work: Callable[[Report, Tell], Result], limit_s: float, report: Report, tell: Tell) -> Result | Outcome:
    """Run a search in a copy of this process; return its Result. If it died or did not end in time, return an Outcome
    with the best plan and bound that it told, and why as the reason.

    Parameters
    ----------
    work
        The search; an exception that it raises is raised here.
    limit_s
        The seconds after which it should have ended. Compiling kernels does not count.
    report, tell
        Called here with what the search tells.
    """
    stop, context, best = present_stop(), get_context("fork"), Incumbent(None, None)
    if stop.asked:
        return Outcome("unknown", "stopped", reason="stopped before the search began")
    pipe, theirs = context.Pipe()
    process = context.Process(target=_search, args=(work, pipe, theirs))
    process.start()
    theirs.close()
    _own_group(process.pid or 0)
    grace_s = min(max(SOLVE.least_grace_s, limit_s * SOLVE.grace), SOLVE.most_grace_s)
    end_s, stopped_s = now_s() + limit_s, math.inf

    def left(termination: Termination, why: str) -> Outcome:
        return Outcome("unknown", termination, best.plan, best.bound, why)

    try:
        while True:
            try:
                message: tuple[str, Any] = pipe.recv() if pipe.poll(SOLVE.look_s) else ("", None)
            except (EOFError, OSError):
                process.join(grace_s)
                return left("died", f"the search died ({_cause(process.exitcode or 0)}); please report this")
            match message:
                case "incumbent", Incumbent() as news:
                    best = replace(news, plan=news.plan or best.plan)
                    report(news)
                case "tell", str(text):
                    tell(text)
                case "compiling", begins:
                    (COMPILING.begin if begins else COMPILING.end)()
                case "result", Result() as result:
                    return result
                case "error", BaseException() as error:
                    raise error
            if stop.asked and stopped_s == math.inf:
                os.kill(process.pid or 0, signal.SIGINT)
                stopped_s = perf_counter()
            if perf_counter() - stopped_s > grace_s:
                return left("stopped", "the search did not stop in time and was left")
            if now_s() - end_s > grace_s and not COMPILING.running:
                return left("time_limit", "the search did not end at its time limit and was left")
    finally:
        _end(process.pid or 0)
        process.join()
        pipe.close()
        while COMPILING.running:
            COMPILING.end()


def _search(work: Callable[[Report, Tell], Result], theirs: Connection, pipe: Connection) -> None:
    """Search, in the copied process; tell the Result or the exception, and exit."""
    theirs.close()
    os.register_at_fork(after_in_child=pipe.close)  # the caller sees the end of this process, not of its children
    _own_group(os.getpid())
    threading.Thread(target=_end_with_caller, args=(pipe,), daemon=True).start()
    lock, last = threading.Lock(), list[Plan | None]([None])

    def send(kind: str, content: Any) -> None:
        with lock:  # solvers report from threads of their own
            pipe.send((kind, content))

    def report(news: Incumbent) -> None:
        known, last[0] = news.plan is last[0], news.plan or last[0]
        send("incumbent", Incumbent(news.objective, news.bound, None if known else news.plan))

    with stopping() as stop:
        for number in SIGNALS:
            signal.signal(number, lambda number, frame: stop.ask(number))
        COMPILING.heard = lambda begins: send("compiling", begins)
        try:
            send("result", work(report, lambda text: send("tell", text)))
        except BaseException as error:
            error.add_note(traceback.format_exc())
            send("error", _portable(error))
    _end(os.getpid())


def _portable(error: BaseException) -> BaseException:
    """The exception, or one that names it, if it cannot be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception as reason:
        stand_in = MethodError(f"{type(error).__name__}: {error}")
        stand_in.add_note(f"(it cannot be sent between processes: {reason})")
        for note in getattr(error, "__notes__", ()):
            stand_in.add_note(note)
        return stand_in
    return error


def _own_group(pid: int) -> None:
    """Give a process a group of its own, so that Ctrl-C reaches it only by its caller, and solvers end with it. Both
    processes do so, since it is unknown which of them comes first.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.setpgid(pid, pid)


def _end_with_caller(pipe: Connection) -> None:
    """Wait for the end of the process that wants the answer, then end this process and its solvers."""
    pipe.poll(None)
    _end(os.getpid())


def _end(pid: int) -> None:
    """End a process that searches, and the solvers that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _cause(exit_code: int) -> str:
    return signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"
