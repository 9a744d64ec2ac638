"""Ends a verb that changes GPUs: handles signals, prints the outcome, and chooses the exit code.

A signal ends the verb with an exit code other than 0 and a line on the state in which it leaves the GPUs. The verb does
not end if the reader of its output goes away.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from provision.applier.cluster.roll import ClusterOutcome
from provision.applier.outcome import RunOutcome
from provision.commands import SIGNALLED, drop_output, interrupted, told
from provision.instances.files.files import reason

if TYPE_CHECKING:
    from types import FrameType

Outcome = TypeVar("Outcome", RunOutcome, ClusterOutcome)

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""The signals that end a verb as Ctrl-C does, except for the exit code."""


class _SignalledError(KeyboardInterrupt):
    """A signal asked the verb to end; ``number`` is the number of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def carried_out(
    act: Callable[[], Outcome], wanted: str, tell: Callable[[Outcome], None], left: Callable[[], str]
) -> int:
    """Carry out a verb, print its outcome, and return the exit code.

    Parameters
    ----------
    act
        The function that changes the GPUs and returns the outcome.
    wanted
        The outcome for which the exit code is 0; for any other outcome it is 1.
    tell
        The function that prints an outcome on stdout.
    left
        The function that returns a sentence on the state that an interrupted ``act`` leaves; it is printed on stderr.

    Returns
    -------
    int
        The exit code; 128 plus the number of the signal if a signal ended ``act``.
    """
    try:
        with _signals():
            outcome = act()
    except KeyboardInterrupt as interrupt:
        say(left())
        return SIGNALLED + interrupt.number if isinstance(interrupt, _SignalledError) else interrupted()
    try:
        told(lambda: tell(outcome))
    except OSError as error:
        # The exit code tells what happened to the GPUs, also when stdout takes nothing, as on a full disk.
        drop_output()
        say(f"{outcome.outcome}; more cannot be printed: stdout: {reason(error)}")
    return 0 if outcome.outcome == wanted else 1


def say(line: str) -> None:
    """Print a line on stderr; an error of stderr, for example if nobody reads it, is ignored."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


@contextmanager
def _signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise ``_SignalledError`` inside the block."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _SignalledError(number)

    try:
        former = {one: signal.signal(one, interrupt) for one in SIGNALS}
    except ValueError:
        # Python lets only the main thread handle signals; in another thread no signals arrive.
        former = {}
    try:
        yield
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)
