"""A time limit that holds: a search that exceeds it clearly is interrupted, as by Ctrl-C.

Searches look at their clocks between steps, and some steps are long on a busy machine. A timer of the operating system
interrupts these. It cannot interrupt compiled code, such as a solver's; solvers have time limits of their own.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from provision.models.base.clock import COMPILING, now_s

GRACE_S, GRACE = 0.5, 0.1
"""A search may exceed its limit by GRACE_S seconds plus the fraction GRACE of the limit before it is interrupted."""
AGAIN_S = 1.0
"""An interrupted search writes down its best plan. If that takes longer than this number of seconds, or than the
fraction GRACE of the limit, it is interrupted again.
"""


class TimeOver(KeyboardInterrupt):
    """Raised when a search exceeds its time limit by more than the grace."""


@dataclass
class Cut:
    """Whether the block under a time limit was interrupted."""

    made: bool = False


@contextmanager
def cut_off(limit_s: float | None) -> Iterator[Cut]:
    """Raise TimeOver in a block that takes clearly longer than a limit. Compiling kernels does not count.

    Parameters
    ----------
    limit_s
        The limit in seconds; None for no limit. In threads other than the main thread there is no limit, because only
        the main thread gets signals.
    """
    cut = Cut()
    if limit_s is None or threading.current_thread() is not threading.main_thread():
        yield cut
        return
    end, again_s = now_s() + limit_s * (1 + GRACE) + GRACE_S, max(AGAIN_S, limit_s * GRACE)

    def left_s() -> float:
        return end - now_s()

    def ring(number: int, frame: FrameType | None) -> None:
        if left_s() > 0 or COMPILING.running or _imports(frame):
            signal.setitimer(signal.ITIMER_REAL, max(left_s(), AGAIN_S), again_s)
            return
        cut.made = True
        raise TimeOver

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(left_s(), GRACE_S), again_s)
    try:
        yield cut
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported. An interruption of a compiled module's import would appear as an ImportError.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
