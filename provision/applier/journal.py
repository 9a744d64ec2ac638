"""The journal of runs, and the lock that keeps a second applier away.

The journal is a file of JSON lines, only ever appended to; every line is on the disk before what it announces is done.
A crash can cut its last line; nothing that such a line announces was done, and the next line starts afresh.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from provision.applier.layout import MachineLayout
from provision.instances.files.files import reason
from provision.models.base.errors import InputError
from provision.models.base.fields import Name, Record, Text

if TYPE_CHECKING:
    from provision.instances.files.files import FilePath

APPLIED, RESTORED, UNRESTORED = "applied", "restored", "unrestored"


class Run(Record):
    """A run as the journal tells it: what it was asked for, the way back and the way forward.

    ``outcome`` is applied, restored, unrestored, or None when it was cut off.
    """

    verb: Name
    request: Text
    former: MachineLayout
    target: MachineLayout
    outcome: Text | None = None

    @property
    def unfinished(self) -> bool:
        """Whether the GPUs may stand between the former layout and the target."""
        return self.outcome in (None, UNRESTORED)

    @property
    def ways_on(self) -> str:
        """What an administrator can do about a run that is unfinished."""
        goes_on = f"provision {self.verb} goes on"
        return goes_on if self.verb == "rollback" else f"{goes_on}, provision rollback goes back"


class Journal:
    """The journal in a state directory."""

    def __init__(self, state: FilePath) -> None:
        self.path = Path(state) / "journal.jsonl"

    def write(self, event: str, **content: Any) -> None:
        """Append one line; it is on the disk on return."""
        line = json.dumps({"event": event, "time_s": round(time.time(), 3), "pid": os.getpid()} | content)
        try:
            with open(self.path, "ab+") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - 1, 0))
                cut = b"\n" if size and file.read() != b"\n" else b""
                file.write(cut + line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            if not size:
                _sync_folder(self.path.parent)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written: {reason(error)}; remedy that and apply again") from None

    def begin(self, run: Run) -> None:
        """Announce a run."""
        self.write("begin", run=run.model_dump(mode="json"))

    def last(self) -> Run | None:
        """The last run; None when there was none."""
        run: Run | None = None
        try:
            for entry in self.entries():
                if entry["event"] == "begin":
                    run = Run.model_validate(entry["run"])
                elif entry["event"] == "end":
                    run = run.model_copy(update={"outcome": entry["outcome"]})  # type: ignore[union-attr]  # None is told below
        except (LookupError, TypeError, AttributeError, ValidationError):
            strange = "has lines that this version of the applier did not write"
            raise InputError(f"{self.path}: {strange}; see that the GPUs stand as they should, move it away") from None
        return run

    def entries(self) -> Iterator[Any]:
        """All lines, less those that a crash cut."""
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {reason(error)}; run as its owner") from None
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            yield entry


def _sync_folder(path: Path) -> None:
    """Put a new file's name on the disk."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def locked(state: FilePath, wait: bool = False) -> Iterator[None]:
    """Hold a state directory, which is made when it is not there.

    Raises
    ------
    InputError
        When another applier holds it and ``wait`` is not set, or it cannot be used.
    """
    path = Path(state) / "lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = open(path, "a+")  # noqa: SIM115 - closed below, after use
    except OSError as error:
        raise InputError(f"{state}: cannot be used: {reason(error)}; name another directory with --state") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise InputError(f"{state}: another applier is at work; wait for it with --wait") from None
        yield
