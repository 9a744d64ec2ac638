"""The clock: it measures how long something takes, and tells when something must end. Code that plans asks its Search
for the time left (`provision.models.problem.search`); code that waits has a Deadline.
"""

from time import perf_counter


def now_s() -> float:
    """The present moment in seconds, by ``time.perf_counter()``."""
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


class Stopwatch:
    """Counts the seconds since it was made.

    Parameters
    ----------
    started
        The moment of ``now_s`` from which to count; by default now.
    """

    def __init__(self, started: float | None = None) -> None:
        self._started = now_s() if started is None else started

    @property
    def elapsed_s(self) -> float:
        """The seconds counted so far."""
        return now_s() - self._started

    def skip(self, seconds: float) -> None:
        """Leave so many seconds out of the count."""
        self._started += seconds


class CompileClock:
    """Counts the seconds in which kernels are compiled; nested compilations are counted once."""

    def __init__(self) -> None:
        self._depth, self._since, self._spent_s = 0, 0.0, 0.0

    def begin(self) -> None:
        """Record that the compilation of a kernel begins."""
        if self._depth == 0:
            self._since = now_s()
        self._depth += 1

    def end(self) -> None:
        """Record that the compilation begun last has ended."""
        self._depth -= 1
        if self._depth == 0:
            self._spent_s += now_s() - self._since

    @property
    def running(self) -> bool:
        """Whether a kernel is being compiled."""
        return self._depth > 0

    @property
    def seconds(self) -> float:
        """The seconds spent on compilation so far."""
        return self._spent_s + (now_s() - self._since if self.running else 0.0)


COMPILING = CompileClock()
"""The time that this process has spent on compiling kernels; time limits do not include it."""
