"""Signals ask a search to stop; they raise nothing, so that the best plan so far is not lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from provision.models.base.clock import Stop, stopping

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals that ask a search to stop: Ctrl-C, and what systems send first to end a process."""


@contextmanager
def stoppable(*signals: signal.Signals) -> Iterator[Stop]:
    """In the block, each of the ``signals`` asks for the Stop that is yielded; after it they do what they did before.

    Nothing changes where signals do not come (threads other than the main thread), where they are ignored (Ctrl-C in a
    process that a shell started in the background), and within a block that has a Stop, which is then asked for.
    """
    with stopping() as stop:
        deaf = threading.current_thread() is not threading.main_thread() or stop.whole is not None
        heard = [one for one in signals if not deaf and signal.getsignal(one) is not signal.SIG_IGN]
        before = {one: signal.signal(one, lambda number, frame: stop.ask(number)) for one in heard}
        try:
            yield stop
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
