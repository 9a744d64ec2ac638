"""Lets a search end in its own time when it is interrupted, so that the work of its best plan is not lost.

A large plan takes seconds to build. Ctrl-C, or the time limit, would otherwise break off its building, and nothing
would be left of the search.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from provision.models.base.clock import Deadline, Stopwatch


@dataclass
class Interrupted:
    """Whether a block was asked to end early."""

    asked: bool = False


@contextmanager
def ending_early(until: Deadline) -> Iterator[Interrupted]:
    """In the block, an interruption does not raise KeyboardInterrupt: it makes the deadline ``until`` come at once.

    The block looks at the deadline, and ends with what it has. A second Ctrl-C is raised. Only the main thread gets
    signals; elsewhere nothing changes.
    """
    found, since = Interrupted(), Stopwatch()
    if threading.current_thread() is not threading.main_thread():
        yield found
        return
    before = {one: handler for one in (signal.SIGINT, signal.SIGALRM) if callable(handler := signal.getsignal(one))}

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal since
        try:
            before[signal.Signals(number)](number, frame)
        except KeyboardInterrupt:
            if found.asked and number == signal.SIGINT:
                raise
            if not found.asked:
                found.asked, since = True, Stopwatch()
                until.end()

    for one in before:
        signal.signal(one, note)
    try:
        yield found
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        left_s, again_s = signal.getitimer(signal.ITIMER_REAL)
        if found.asked and left_s:  # to hand on a large plan takes time, too: as long as the block took to end
            signal.setitimer(signal.ITIMER_REAL, max(again_s, since.elapsed_s), again_s)
