"""How long this process has been compiling kernels: time that no limit counts."""

from time import perf_counter


class CompileClock:
    """Runs while a kernel is compiled, or a rehearsal has kernels compiled; what is nested in it is counted once."""

    def __init__(self) -> None:
        self._depth, self._since, self._spent_s = 0, 0.0, 0.0

    def begin(self) -> None:
        """A kernel begins to be compiled."""
        if self._depth == 0:
            self._since = perf_counter()
        self._depth += 1

    def end(self) -> None:
        """The kernel begun last is compiled."""
        self._depth -= 1
        if self._depth == 0:
            self._spent_s += perf_counter() - self._since

    @property
    def running(self) -> bool:
        """Whether a kernel is being compiled."""
        return self._depth > 0

    @property
    def seconds(self) -> float:
        """Seconds spent so far."""
        return self._spent_s + (perf_counter() - self._since if self.running else 0.0)


COMPILING = CompileClock()
"""That of this process."""
