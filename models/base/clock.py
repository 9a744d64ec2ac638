"""Measures how long work takes, and tells when it must end.

Code that plans asks its Search for the time left (`provision.models.problem.search`); code that waits has a Deadline.
Neither counts the time in which kernels were compiled.
"""

from math import inf
from time import perf_counter


def now_s() -> float:
    """The present moment in seconds: ``time.perf_counter()`` minus the time that has been spent on compiling kernels.
    """
    return perf_counter() - COMPILING.spent_s


def started_s() -> float:
    """The present moment in seconds by ``time.perf_counter()``, from which a later Stopwatch can count."""
    return perf_counter()


class Deadline:
    """A moment at which work must end.

    Parameters
    ----------
    seconds
        The time from now until the deadline. The attribute ``at`` is the deadline as a moment of ``now_s``.
    """

    def __init__(self, seconds: float) -> None:
        self.at = now_s() + seconds

    @property
    def left_s(self) -> float:
        """The seconds until the deadline, at least 0."""
        return max(0.0, self.at - now_s())

    @property
    def over(self) -> bool:
        """Whether the deadline has come."""
        return now_s() >= self.at

    def end(self) -> None:
        """Let the deadline come at once."""
        self.at = -inf


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
    """Counts the seconds in which kernels are compiled or rehearsals run; nested compilations are counted once.

    ``spent_s`` counts a compilation or rehearsal only after its end. Until then its time counts for Searches, because
    rehearsals have time limits.
    """

    def __init__(self) -> None:
        self._depth, self._since, self.spent_s = 0, 0.0, 0.0

    def begin(self) -> None:
        """Record that the compilation of a kernel begins."""
        if self._depth == 0:
            self._since = perf_counter()
        self._depth += 1

    def end(self) -> None:
        """Record that the compilation begun last has ended."""
        self._depth -= 1
        if self._depth == 0:
            self.spent_s += perf_counter() - self._since

    @property
    def running(self) -> bool:
        """Whether a kernel is being compiled."""
        return self._depth > 0


COMPILING = CompileClock()
"""The time that this process has spent on compiling kernels; time limits do not include it."""
NEVER = Deadline(inf)
"""A deadline that never comes."""
