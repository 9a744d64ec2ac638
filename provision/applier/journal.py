"""The journal of runs: the request, every step before it is done, and the MIG instances that the applier made.

The journal is an append-only file of JSON lines. Every line is on the disk before the change that it announces is made.
A crash may leave the last line incomplete. Then the change was not made, and the next entry begins on a new line.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from provision.applier.layout import MachineLayout, Made, Place
from provision.applier.outcome import UNRESTORED
from provision.instances.files.files import reason
from provision.models.base.errors import InputError
from provision.models.base.fields import Name, Record, Text

if TYPE_CHECKING:
    from provision.instances.files.files import FilePath

BEGIN = b'{"event": "begin"'
CHANGES = ("create_instance", "destroy_instance", "create_compute", "destroy_compute")
"""The actions that change the MIG instance at a place."""


class Run(Record):
    """A run as the journal records it: its request, the layout before it, and the layout to reach.

    ``outcome`` is applied, quarantined, restored or unrestored; it is None if the run was interrupted. ``owned`` are
    the MIG instances that the applier made, in this run or an earlier one. The other fields tell what this run did or,
    since it was announced, may have done: ``touched`` are the places of instances that it made, changed or destroyed,
    ``taken`` the places of instances that it destroyed, and ``switched`` the GPUs whose MIG mode it changed.
    """

    verb: Name
    request: Text
    former: MachineLayout
    target: MachineLayout
    outcome: Text | None = None
    owned: tuple[Made, ...] = ()
    touched: tuple[Place, ...] = ()
    taken: tuple[Place, ...] = ()
    switched: tuple[Name, ...] = ()

    @property
    def unfinished(self) -> bool:
        """Whether the GPUs may be between the former layout and the target."""
        return self.outcome in (None, UNRESTORED)

    @property
    def ways_on(self) -> str:
        """A sentence: what an administrator can do about an unfinished run."""
        goes_on = f"provision {self.verb} goes on"
        return goes_on if self.verb == "rollback" else f"{goes_on}, provision rollback goes back"


class Journal:
    """The journal in a state directory."""

    def __init__(self, state: FilePath) -> None:
        self.path = Path(state) / "journal.jsonl"

    def write(self, event: str, **content: Any) -> None:
        """Append one line. When the call returns, the line is on the disk."""
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

    def end(self, outcome: str, owned: Iterable[Made]) -> None:
        """Record the end of the last run. ``owned`` are the MIG instances that the applier made and that still exist.
        """
        self.write("end", outcome=outcome, owned=[made.model_dump(mode="json") for made in owned])

    def last(self) -> Run | None:
        """The last run; None if there was none."""
        run: Run | None = None
        try:
            for entry in self.entries():
                begins = entry["event"] == "begin"
                run = Run.model_validate(entry["run"]) if begins else _after(run, entry)  # type: ignore[arg-type]
        except (LookupError, TypeError, AttributeError, ValidationError, RecursionError):
            strange = "has lines that this version of the applier did not write"
            raise InputError(f"{self.path}: {strange}; see that the GPUs stand as they should, move it away") from None
        return run

    def entries(self) -> Iterator[Any]:
        """Yield the lines since the last run began, without incomplete ones; all lines if no run ever began."""
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {reason(error)}; run as its owner") from None
        numbers = range(len(lines) - 1, 0, -1)
        begun = next((number for number in numbers if lines[number].startswith(BEGIN) and _read(lines[number])), 0)
        for line in lines[begun:]:
            if (entry := _read(line)) is not None:
                yield entry[0]


def _read(line: bytes) -> tuple[Any] | None:
    """The content of a line, in a tuple; None if the line is incomplete."""
    try:
        return (json.loads(line),)
    except ValueError:
        return None


def _after(run: Run, entry: dict[str, Any]) -> Run:
    """A run after one more line of the journal has been taken into account."""
    event = entry["event"]
    if event == "end":
        listed = entry.get("owned")
        owned = run.owned if listed is None else tuple(Made.model_validate(one) for one in listed)
        return run.model_copy(update={"outcome": entry["outcome"], "owned": owned})
    if event == "step":
        return _announced(run, entry)
    if event == "made":
        return _owning(run, Made.model_validate(entry["made"]))
    if event == "gone":
        place = _place(entry["place"])
        return run.model_copy(update={"owned": tuple(one for one in run.owned if one.place != place)})
    return run


def _announced(run: Run, entry: dict[str, Any]) -> Run:
    """A run after a step was announced. Whether the step was done is unknown until another line tells."""
    action = entry["action"]
    if action == "set_mig_mode":
        return run.model_copy(update={"switched": tuple(dict.fromkeys((*run.switched, entry["gpu"])))})
    if action not in CHANGES or entry.get("place") is None:
        return run
    place = _place(entry["place"])
    run = run.model_copy(update={"touched": tuple(dict.fromkeys((*run.touched, place)))})
    if action == "create_instance":
        return _owning(run, Made(gpu=place[0], enumerator=place[1], start=place[2], devices=()))
    if action == "destroy_instance":
        return run.model_copy(update={"taken": tuple(dict.fromkeys((*run.taken, place)))})
    there = next((one for one in run.owned if one.place == place), None)
    unsure: dict[str, dict[str, object]] = {"create_compute": {"devices": None}, "destroy_compute": {"emptied": True}}
    if action in unsure and there:
        return _owning(run, there.model_copy(update=unsure[action]))
    return run


def _owning(run: Run, made: Made) -> Run:
    others = (one for one in run.owned if one.place != made.place)
    return run.model_copy(update={"owned": (*others, made)})


def _place(listed: Any) -> Place:
    gpu, enumerator, start = listed
    return gpu, enumerator, start


def _sync_folder(path: Path) -> None:
    """Write a folder's entries to the disk, so that a new file survives a crash."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
