"""Measures how long work takes, and tells when it must end.

Code that plans asks its Search for the time left (`provision.models.problem.search`); code that waits has a Deadline.
Neither counts the time in which kernels were compiled. A Stop ends both early: no time is left once it was asked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from math import inf
from pathlib import Path
from time import perf_counter


def now_s() -> float:
    """The present moment in seconds: ``time.perf_counter()`` minus the time that has been spent on compiling kernels.
    """
    return perf_counter() - COMPILING.spent_s


def started_s() -> float:
    """The present moment in seconds by ``time.perf_counter()``, from which a later Stopwatch can count."""
    return perf_counter()


def process_started_s() -> float:
    """The moment at which this process began, by ``time.perf_counter()``; now where the system does not tell it."""
    with suppress(OSError, AttributeError):
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return perf_counter() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    return perf_counter()


class Stop:
    """A request to end work early. Ctrl-C, a signal, a caller or a failed callback asks for it; the work looks at it
    between steps of bounded length and ends with what it has. Nothing is raised, because an exception that a signal
    raises inside compiled code or a solver kills the process.

    Parameters
    ----------
    whole
        The Stop of the larger work of which this work is a part. If it is asked for, this work ends too. None if this
        work is no part of another.

    Attributes
    ----------
    signal
        The number of the signal that asked first; None if none did.
    """

    def __init__(self, whole: Stop | None = None) -> None:
        self._asked, self.whole = False, whole
        self.signal: int | None = None if whole is None else whole.signal

    @property
    def asked(self) -> bool:
        """Whether the work should end."""
        return self._asked or (self.whole is not None and self.whole.asked)

    def ask(self, signal: int | None = None) -> None:
        """Ask for the end of the work."""
        self._asked, self.signal = True, self.signal or signal


_stop: ContextVar[Stop | None] = ContextVar("_stop", default=None)


def present_stop() -> Stop:
    """The Stop of the work that this code is a part of; a new one outside of such work."""
    return _stop.get() or Stop()


def end_if_asked() -> None:
    """Between two steps: raise KeyboardInterrupt if the Stop of this work was asked for."""
    if present_stop().asked:
        raise KeyboardInterrupt


@contextmanager
def stopping(stop: Stop | None = None) -> Iterator[Stop]:
    """Make ``stop`` the Stop of the block: once it is asked for, all Deadlines and Searches made in the block end. By
    default it is a new Stop, a part of the one around the block.
    """
    stop = Stop(_stop.get()) if stop is None else stop
    token = _stop.set(stop)
    try:
        yield stop
    finally:
        _stop.reset(token)


class Deadline:
    """A moment at which work must end. It comes at once when the Stop of the work is asked for.

    Parameters
    ----------
    seconds
        The time from now until the deadline. The attribute ``at`` is the deadline as a moment of ``now_s``.
    """

    def __init__(self, seconds: float) -> None:
        self.at, self.stop = now_s() + seconds, present_stop()

    @property
    def left_s(self) -> float:
        """The seconds until the deadline, at least 0."""
        return 0.0 if self.stop.asked else max(0.0, self.at - now_s())

    @property
    def over(self) -> bool:
        """Whether the deadline has come."""
        return self.left_s <= 0

    def check(self) -> None:
        """Raise TimeIsUpError if the deadline has come."""
        if self.over:
            raise TimeIsUpError


class TimeIsUpError(Exception):
    """The deadline of long work came between two of its steps, and what is there so far is of no use."""


class Stopwatch:
    """Counts the seconds since it was made.

    Parameters
    ----------
    started
        The moment from which to count, by ``time.perf_counter()``; by default now.
    """

    def __init__(self, started: float | None = None) -> None:
        self._started = now_s() - (0.0 if started is None else perf_counter() - started)

    @property
    def elapsed_s(self) -> float:
        """The seconds counted so far."""
        return now_s() - self._started


class CompileClock:
    """Counts the seconds in which kernels are compiled; nested compilations are counted once.

    ``spent_s`` counts a compilation only after its end. ``heard`` is called with True when one begins, with False when
    it ends.
    """

    def __init__(self) -> None:
        self._depth, self._since, self.spent_s = 0, 0.0, 0.0
        self.heard: Callable[[bool], None] = lambda begins: None

    def begin(self) -> None:
        """Record that the compilation of a kernel begins."""
        if self._depth == 0:
            self._since = perf_counter()
            self.heard(True)
        self._depth += 1

    def end(self) -> None:
        """Record that the compilation begun last has ended."""
        self._depth -= 1
        if self._depth == 0:
            self.spent_s += perf_counter() - self._since
            self.heard(False)

    @property
    def running(self) -> bool:
        """Whether a kernel is being compiled."""
        return self._depth > 0


COMPILING = CompileClock()
"""The time that this process has spent on compiling kernels; time limits do not include it."""
NEVER = Deadline(inf)
"""A deadline that never comes."""
