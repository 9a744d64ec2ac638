"""A time limit that holds: what has not ended by itself soon after it is broken off, as Ctrl-C does.

Searches look at their clocks between steps, and some steps are long where the machine is busy. A timer of the system
ends those. It cannot interrupt compiled code in the midst, such as a solver's; these have limits of their own.
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
"""Seconds, and the part of the limit, by which a search may overrun it before it is broken off."""
AGAIN_S = 1.0
"""What goes on after it was broken off, to write down its best plan, is broken off again after so many seconds."""


class TimeOver(KeyboardInterrupt):
    """The time limit was exceeded by more than the grace."""


@dataclass
class Cut:
    """Whether what a limit is set to was broken off."""

    made: bool = False


@contextmanager
def cut_off(limit_s: float | None) -> Iterator[Cut]:
    """Raise TimeOver where the block takes clearly longer than a limit, not counting the compilation of kernels.

    Parameters
    ----------
    limit_s
        Seconds; None for no limit. There is none in other threads than the main one, which alone hears signals.
    """
    cut = Cut()
    if limit_s is None or threading.current_thread() is not threading.main_thread():
        yield cut
        return
    end = now_s() + limit_s * (1 + GRACE) + GRACE_S - COMPILING.seconds

    def left_s() -> float:
        return end + COMPILING.seconds - now_s()

    def ring(number: int, frame: FrameType | None) -> None:
        if left_s() > 0 or COMPILING.running or _imports(frame):
            signal.setitimer(signal.ITIMER_REAL, max(left_s(), AGAIN_S), AGAIN_S)
            return
        cut.made = True
        raise TimeOver

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(left_s(), GRACE_S), AGAIN_S)
    try:
        yield cut
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported: out of compiled ones an interruption comes as an ImportError."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
