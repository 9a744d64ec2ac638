"""The journal of runs: the request, every step before it is done, and the MIG instances that the applier made.

The journal is an append-only file of JSON lines. Every line is on the disk before the change that it announces is made.
A crash may leave the last line incomplete. Then the change was not made, and the next entry begins on a new line.

Space for a run is kept in a second file before its first step. If a line cannot be written all the same, the run goes
back from what this process knows. Its lines are then written to a third file, beside the journal or in the folder of
locks, and the next run reads them as the end of the journal.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from provision.applier.layout import MachineLayout, Made, Place
from provision.applier.locks import folder, own_folder
from provision.applier.outcome import UNRESTORED
from provision.instances.files.files import FilePath, reason
from provision.models.base.errors import InputError
from provision.models.base.fields import Name, Record, Text

BEGIN = b'{"event": "begin"'
CHANGES = ("create_instance", "destroy_instance", "create_compute", "destroy_compute")
"""The actions that change the MIG instance at a place."""
RESERVE, RESERVE_PER_STEP = 1 << 16, 1 << 12
"""The bytes that are kept for a run, and for every step of it and its way back."""


class JournalError(InputError):
    """Raised when a line cannot be written to the journal."""


class Run(Record):
    """A run as the journal records it: its request, the layout before it, and the layout to reach.

    ``outcome`` is applied, quarantined, restored or unrestored; it is None if the run was interrupted. ``owned`` are
    the MIG instances that the applier made, in this run or an earlier one. The other fields tell what this run did or,
    since it was announced, may have done: ``touched`` are the places of instances that it made, changed or destroyed,
    ``taken`` the places of instances that it destroyed, ``adopted`` those of instances that it took over, and
    ``switched`` the GPUs whose MIG mode it changed. ``unsure`` are the places where a change was announced whose end is
    not recorded.
    """

    verb: Name
    request: Text
    former: MachineLayout
    target: MachineLayout
    outcome: Text | None = None
    owned: tuple[Made, ...] = ()
    touched: tuple[Place, ...] = ()
    taken: tuple[Place, ...] = ()
    adopted: tuple[Place, ...] = ()
    unsure: tuple[Place, ...] = ()
    switched: tuple[Name, ...] = ()
    epoch: Text = ""

    @property
    def unfinished(self) -> bool:
        """Whether the GPUs may be between the former layout and the target."""
        return self.outcome in (None, UNRESTORED)

    @property
    def ways_on(self) -> str:
        """A sentence: what an administrator can do about an unfinished run."""
        goes_on = f"provision {self.verb} goes on"
        return goes_on if self.verb == "rollback" else f"{goes_on}, provision rollback goes back"

    def made_at(self, place: Place, epoch: str) -> Made | None:
        """The instance that the applier made at a place since the driver's start ``epoch``; None if there is none."""
        return next((one for one in self.owned if one.place == place and one.epoch == epoch), None)


class Journal:
    """The journal in a state directory."""

    def __init__(self, state: FilePath) -> None:
        self.path = Path(state) / "journal.jsonl"
        self.reserve = self.path.with_suffix(".reserve")
        mark = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:16]
        self.rests = self.path.with_suffix(".rest"), folder() / f"journal-{mark}.rest"
        self.lost: list[bytes] = []
        """The lines that could not be written to the journal."""
        self.going_back = False
        """Whether a run is being undone, which goes on although lines cannot be written."""

    def write(self, event: str, **content: Any) -> None:
        """Append one line. When the call returns, the line is on the disk.

        Raises
        ------
        JournalError
            If it cannot be written, except on the way back. In both cases this object knows the line.
        """
        line = json.dumps({"event": event, "time_s": round(time.time(), 3), "pid": os.getpid()} | content).encode()
        try:
            if self.lost:
                raise OSError(0, "an earlier line could not be written")
            try:
                self._append([*self._rest(), line])
            except OSError:
                if not self.reserve.exists():
                    raise
                self.reserve.unlink()
                self._append([*self._rest(), line])
            for path in self.rests:
                path.unlink(missing_ok=True)
        except OSError as error:
            self.lost.append(line)
            if not self.going_back:
                why = f"cannot be written: {reason(error)}; remedy that and apply again"
                raise JournalError(f"{self.path}: {why}") from None

    def _append(self, lines: Iterable[bytes]) -> None:
        with open(self.path, "ab+", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            cut = b"\n" if size and file.read() != b"\n" else b""
            file.write(cut + b"\n".join(lines) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if not size:
            _sync_folder(self.path.parent)

    def begin(self, run: Run, steps: int = 0) -> None:
        """Keep space for a run with a number of steps, and announce it."""
        try:
            with open(self.reserve, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE + steps * RESERVE_PER_STEP)
        except OSError as error:
            self.reserve.unlink(missing_ok=True)
            raise JournalError(f"{self.path}: has no room: {reason(error)}; free space and apply again") from None
        self.write("begin", run=run.model_dump(mode="json"))

    def end(self, outcome: str, owned: Iterable[Made]) -> None:
        """Record the end of the last run. ``owned`` are the MIG instances that the applier made and that still exist.
        """
        self.write("end", outcome=outcome, owned=[made.model_dump(mode="json") for made in owned])
        self.reserve.unlink(missing_ok=True)

    def saved(self) -> Path | None:
        """Write what the journal lacks where it can be written; return the file, or None if there is none.

        The next run takes the lines for the end of the journal, unless the journal was changed or moved away.
        """
        self.reserve.unlink(missing_ok=True)
        for path in self.rests:
            try:
                os.close(own_folder(path.parent))
                path.write_bytes(b"\n".join([self._head(), *self._rest(), *self.lost, b""]))
            except OSError:
                continue
            return path
        return None

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
        for line in _since_begin([*self._lines(), *self._rest(), *self.lost]):
            if (entry := _read(line)) is not None:
                yield entry[0]

    def _lines(self) -> list[bytes]:
        try:
            return self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {reason(error)}; run as its owner") from None

    def _rest(self) -> list[bytes]:
        """The lines that an earlier run could write only beside the journal; none if the journal is another now."""
        for path in filter(Path.exists, self.rests):
            try:
                os.close(own_folder(path.parent))
                head, *lines = path.read_bytes().split(b"\n")
            except OSError:
                continue
            if head == self._head():
                return [line for line in lines if line]
        return []

    def _head(self) -> bytes:
        """The first line of a file with the rest of this journal; it tells the line with which the last run begins."""
        return hashlib.sha256(b"".join(_since_begin(self._lines())[:1])).hexdigest().encode()


def _since_begin(lines: list[bytes]) -> list[bytes]:
    numbers = range(len(lines) - 1, 0, -1)
    begun = next((number for number in numbers if lines[number].startswith(BEGIN) and _read(lines[number])), 0)
    return lines[begun:]


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
        # Unless something could not be undone, a run that came to its end knows what it did.
        unsure = run.unsure if entry["outcome"] == UNRESTORED else ()
        return run.model_copy(update={"outcome": entry["outcome"], "owned": owned, "unsure": unsure})
    if event == "step":
        return _announced(run, entry)
    if event in ("made", "adopted"):
        made = Made.model_validate(entry["made"])
        others = tuple(one for one in run.owned if one.place != made.place)
        adopted = (made.place,) if event == "adopted" else ()
        return _known(run, made.place).model_copy(
            update={"owned": (*others, made), "adopted": (*run.adopted, *adopted)}
        )
    if event == "gone":
        place = _place(entry["place"])
        return _known(run, place).model_copy(update={"owned": tuple(one for one in run.owned if one.place != place)})
    return run


def _announced(run: Run, entry: dict[str, Any]) -> Run:
    """A run after a step was announced. Whether the step was done is unknown until another line tells."""
    action = entry["action"]
    if action == "set_mig_mode":
        return run.model_copy(update={"switched": tuple(dict.fromkeys((*run.switched, entry["gpu"])))})
    if action not in CHANGES or entry.get("place") is None:
        return run
    place = _place(entry["place"])
    fields = ("touched", "unsure", "taken") if action == "destroy_instance" else ("touched", "unsure")
    return run.model_copy(update={name: tuple(dict.fromkeys((*getattr(run, name), place))) for name in fields})


def _known(run: Run, place: Place) -> Run:
    """A run after it became known what stands at a place."""
    return run.model_copy(update={"unsure": tuple(one for one in run.unsure if one != place)})


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
