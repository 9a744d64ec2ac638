"""The clock: what measures how long something takes, and until when something may take.

Whatever plans asks its Search for these (`provision.models.problem.search`); whatever waits has a Deadline.
"""

from time import perf_counter


def now_s() -> float:
    """The present moment, by ``time.perf_counter()``."""
    return perf_counter()


class Deadline:
    """A moment at which work must end.

    Parameters
    ----------
    seconds
        From now until then; ``at`` is the moment by ``now_s``.
    """

    def __init__(self, seconds: float) -> None:
        self.at = now_s() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until then, at least 0."""
        return max(0.0, self.at - now_s())

    @property
    def over(self) -> bool:
        """Whether the moment has come."""
        return now_s() >= self.at


class Stopwatch:
    """Counts the seconds since it was made.

    Parameters
    ----------
    started
        When to count from, by ``now_s``; by default now.
    """

    def __init__(self, started: float | None = None) -> None:
        self._started = now_s() if started is None else started

    @property
    def elapsed_s(self) -> float:
        """The seconds counted so far."""
        return now_s() - self._started

    def skip(self, seconds: float) -> None:
        """Do not count so many of the seconds."""
        self._started += seconds


class CompileClock:
    """Runs while a kernel is compiled, or a rehearsal has kernels compiled; what is nested in it is counted once."""

    def __init__(self) -> None:
        self._depth, self._since, self._spent_s = 0, 0.0, 0.0

    def begin(self) -> None:
        """A kernel begins to be compiled."""
        if self._depth == 0:
            self._since = now_s()
        self._depth += 1

    def end(self) -> None:
        """The kernel begun last is compiled."""
        self._depth -= 1
        if self._depth == 0:
            self._spent_s += now_s() - self._since

    @property
    def running(self) -> bool:
        """Whether a kernel is being compiled."""
        return self._depth > 0

    @property
    def seconds(self) -> float:
        """Seconds spent so far."""
        return self._spent_s + (now_s() - self._since if self.running else 0.0)


COMPILING = CompileClock()
"""How long this process has been compiling kernels, which no time limit counts."""
