"""The journal of ``provision watch``: an SQLite file with every decision and the rates of the past.

A decision is on the disk before it is acted upon. After a kill -9 the file holds all that was decided; the next watch
on the same file goes on from there.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field

from provision.instances.files.files import FilePath, lock_file, reason, refused
from provision.models.base.errors import InputError
from provision.models.base.fields import Count, Name, NonNegative, Record, Text
from provision.models.plans.plan import Plan
from provision.replanning.trace import MOST_HISTORY

BEGUN = "begun"
"""The outcome of a change of which nobody knows how it ended: the watch was killed meanwhile."""
STANDING = ("advised", "applied", "quarantined")
"""Outcomes, up to a colon, after which the plan of a decision counts as the one that runs; the first tells that nothing
was done, and after ``quarantined`` all of it runs but the slices that follow the colon.
"""
KEPT_DAYS, KEPT_DECISIONS = 90, 1000
"""Decisions are dropped that are older than so many days, but for the newest, so many of them, and for what stands. The
number protects the journal from a clock that jumps ahead.
"""
SCHEMA = """
CREATE TABLE IF NOT EXISTS decisions (number INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rates (number INTEGER PRIMARY KEY, body TEXT NOT NULL);
"""


class Decision(Record):
    """What a watch decided.

    Attributes
    ----------
    number, at
        Its number in the journal and the time of day, in UTC.
    action
        ``change`` the plan; ``stuck``: no plan on these GPUs carries the rates; ``blind``: no rates can be read;
        ``sees``: they can again; ``unforecast``: no rates can be forecast.
    why
        The reason in words.
    outcome
        ``advised``, ``begun``, ``applied``, or in the words of the applier what became of it instead.
    rates_rps
        The rates that the plan is for, by workload: headroom and growth included.
    gpus, gpus_then
        The number of GPUs before and after it.
    changes
        The numbers of changes, as replanning counts them.
    seconds
        The time that it took.
    plan
        The new plan; None if nothing changes.
    """

    number: Count = 0
    at: Text = ""
    action: Literal["change", "stuck", "blind", "sees", "unforecast"]
    why: Text
    outcome: Text = "advised"
    rates_rps: dict[Name, NonNegative] = Field(default={})
    gpus: Count = 0
    gpus_then: Count = 0
    changes: dict[Name, int] = Field(default={})
    seconds: NonNegative = 0.0
    plan: Plan | None = None

    @property
    def stands(self) -> bool:
        """Whether its plan counts as the one that runs."""
        return self.outcome.partition(":")[0] in STANDING


class Journal:
    """An open journal.

    Parameters
    ----------
    path
        The file. It is made if it does not exist, unless it is only read.
    instance
        The name of the instance that is watched; a journal of another one is refused. Empty to only read.
    keep_days
        The days for which decisions are kept.

    Raises
    ------
    InputError
        If the file cannot be used; later calls raise it too, as when the disk is full.
    """

    def __init__(self, path: FilePath, instance: str = "", keep_days: float = KEPT_DAYS) -> None:
        self.path, self.keep_days = Path(path), keep_days
        if not 0 < keep_days <= 36500:
            raise InputError(f"keep_days {keep_days}: should be above 0 and at most 36500")
        if not instance and not self.path.exists():
            raise InputError(f"{path}: there is no such journal; provision watch --journal {path} makes one")
        with self._open() as base:
            if instance:
                base.executescript(SCHEMA)
        for one in self._read("WHERE json_extract(body, '$.plan') IS NOT NULL", 1):
            if instance and one.plan and one.plan.instance != instance:
                raise InputError(f"{path}: is the journal of {one.plan.instance}, not of {instance}; name another file")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other watches from this journal until the block, or the process, ends."""
        lock = lock_file(f"{self.path}-lock", "--journal", self.path)
        if lock is None:
            raise InputError(f"--journal {self.path}: another watch writes it; stop that one, or name another file")
        try:
            yield
        finally:
            os.close(lock)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """One transaction on the file."""
        try:
            base = sqlite3.connect(self.path, timeout=10)
            try:
                with base:
                    yield base
            finally:
                base.close()
        except sqlite3.Error as error:
            raise InputError(f"{self.path}: cannot be used as a journal: {reason(error)}; make room, or name another "
                             "file with --journal") from None

    def add(self, decision: Decision) -> Decision:
        """Write a decision; returns it with its number and the time of day."""
        with self._open() as base:
            number = base.execute("SELECT coalesce(max(number), 0) + 1 FROM decisions").fetchone()[0]
            made = decision.model_copy(update={"number": number, "at": datetime.now(UTC).isoformat(timespec="seconds")})
            base.execute("INSERT INTO decisions VALUES (?, ?)", (number, made.model_dump_json(exclude_none=True)))
        self._drop_old()
        return made

    def _drop_old(self) -> None:
        """Drop old decisions, unless they stand."""
        stand = [one.number for advised in (True, False) if (one := self.standing(advised)) is not None]
        since = (datetime.now(UTC) - timedelta(days=self.keep_days)).isoformat(timespec="seconds")
        with self._open() as base:
            base.execute("DELETE FROM decisions WHERE number <= (SELECT max(number) FROM decisions) - ? AND "
                         "json_extract(body, '$.at') < ? AND number NOT IN (SELECT value FROM json_each(?))",
                         (KEPT_DECISIONS, since, json.dumps(stand)))

    def ended(self, decision: Decision, outcome: str) -> Decision:
        """Write how a decision ended; returns it."""
        made = decision.model_copy(update={"outcome": outcome})
        with self._open() as base:
            base.execute("UPDATE decisions SET body = ? WHERE number = ?",
                         (made.model_dump_json(exclude_none=True), made.number))
        return made

    def decisions(self, most: int = 50, plans: bool = True) -> list[Decision]:
        """The latest decisions, the newest first; without their plans, which may be long, if ``plans`` is false."""
        return self._read("", most, body="body" if plans else "json_remove(body, '$.plan')")

    def standing(self, advised: bool = True) -> Decision | None:
        """The last change that was applied, wholly or in part, as far as is known; None if there is none. With
        ``advised``, changes that were only advised count too.
        """
        outcomes, told = STANDING if advised else STANDING[1:], "json_extract(body, '$.outcome')"
        where = (f"WHERE json_extract(body, '$.action') = 'change' AND substr({told}, 1, instr({told} || ':', ':') - 1)"
                 f" IN ({', '.join('?' * len(outcomes))})")
        return next(iter(self._read(where, *outcomes, 1)), None)

    def _read(self, where: str, *values: str | int, body: str = "body") -> list[Decision]:
        """The decisions of a WHERE clause with these values, the newest first; the last value is the most of them."""
        with self._open() as base, refused(self.path):
            rows = base.execute(f"SELECT {body} FROM decisions {where} ORDER BY number DESC LIMIT ?", values)
            return [Decision.model_validate_json(told) for told, in rows]

    def add_rates(self, rates_rps: Mapping[str, float]) -> None:
        """Keep the rates of one interval for forecasts; the oldest are dropped."""
        with self._open() as base:
            base.execute("INSERT INTO rates (body) VALUES (?)", (json.dumps(dict(rates_rps)),))
            base.execute("DELETE FROM rates WHERE number <= (SELECT max(number) FROM rates) - ?", (MOST_HISTORY,))

    def rates(self) -> list[dict[str, float]]:
        """The rates of the past intervals, the oldest first."""
        with self._open() as base:
            return [json.loads(body) for body, in base.execute("SELECT body FROM rates ORDER BY number")]
