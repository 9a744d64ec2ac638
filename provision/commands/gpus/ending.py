"""How a verb that changes GPUs ends: its signals, what it prints, its exit code.

A signal ends the verb with an exit code that is not 0 and a line on the state it leaves. A reader of its output that
goes away ends nothing.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from provision.applier.cluster.roll import ClusterOutcome
from provision.applier.outcome import RunOutcome
from provision.commands import INTERRUPTED, SIGNALLED, told

if TYPE_CHECKING:
    from types import FrameType

Outcome = TypeVar("Outcome", RunOutcome, ClusterOutcome)

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end a verb as Ctrl-C does, but for the exit code."""


class _SignalledError(KeyboardInterrupt):
    """A signal asked the verb to end; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def carried_out(
    act: Callable[[], Outcome], wanted: str, tell: Callable[[Outcome], None], left: Callable[[], str]
) -> int:
    """Carry out a verb and print how it ended.

    Parameters
    ----------
    act
        Changes the GPUs and returns the outcome.
    wanted
        The outcome for which the exit code is 0; for any other it is 1.
    tell
        Prints an outcome on stdout.
    left
        A sentence on the state that an interrupted ``act`` leaves, printed on stderr.

    Returns
    -------
    int
        The exit code; 128 and the signal's number when a signal ended ``act``.
    """
    try:
        with _signals():
            outcome = act()
    except KeyboardInterrupt as interrupt:
        say(left())
        return SIGNALLED + interrupt.number if isinstance(interrupt, _SignalledError) else INTERRUPTED
    told(lambda: tell(outcome))
    return 0 if outcome.outcome == wanted else 1


def say(line: str) -> None:
    """Print a line on stderr; a stderr that nobody reads ends nothing."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


@contextmanager
def _signals() -> Iterator[None]:
    """Inside the block SIGTERM and SIGHUP raise ``_SignalledError``."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _SignalledError(number)

    try:
        former = {one: signal.signal(one, interrupt) for one in SIGNALS}
    except ValueError:
        # Python lets only the main thread handle signals; in another thread none arrive.
        former = {}
    try:
        yield
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)
