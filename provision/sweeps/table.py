"""The table of a sweep on disk: a journal of finished chunks while it runs, one CSV or Parquet file in the end."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.instances.files.csv_cells import csv_text
from provision.instances.files.files import check_writable, reason, write_bytes
from provision.models.base.errors import InputError
from provision.models.base.shown import Shown, frame

if TYPE_CHECKING:
    from pandas import DataFrame

    from provision.instances.files.files import FilePath

TableRow = dict[str, Any]
"""A row of a table, by column."""

SUFFIXES = (".csv", ".parquet")


class Rows(Shown, list[TableRow]):
    """The rows of a sweep: a list that notebooks show as a table."""

    def to_frame(self) -> DataFrame:
        """A pandas frame with a row per point."""
        return frame(aligned(self))


class Table:
    """The file of a sweep and its journal beside it, ``FILE.part``, from which an interrupted sweep resumes.

    A line of the journal holds the digest of its sweep, the number of a chunk and its rows.

    Parameters
    ----------
    path
        Where the table goes, ``.csv`` or ``.parquet``.
    digest
        What the sweep depends on; a journal of another sweep is not taken for this one's.
    force
        Overwrite a table, and a journal of another sweep.

    Raises
    ------
    InputError
        When the path has another suffix, exists, or its journal belongs to another sweep.
    """

    def __init__(self, path: FilePath, digest: str, force: bool = False) -> None:
        self.path, self.part, self.digest, self.force = Path(path), Path(f"{path}.part"), digest, force
        if self.path.suffix not in SUFFIXES:
            raise InputError(f"{path}: a table ends in {' or '.join(SUFFIXES)}; name it so")
        if self.path.suffix == ".parquet" and not find_spec("pyarrow"):
            raise InputError(f"{path}: needs pyarrow; pip install 'provision[parquet]', or write .csv")
        check_writable(path, force)
        self.done = self._resumed() if self.part.exists() else {}

    def _resumed(self) -> dict[int, list[TableRow]]:
        """Rows by chunk of the journal; a last line that was cut off is left out."""
        try:
            lines = self.part.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self.part}: cannot be read: {reason(error)}; remove it") from None
        mine = [line for line in lines if line.startswith(self.digest)]
        if len(mine) < len(list(filter(None, lines))):
            if not self.force:
                raise InputError(f"{self.part}: is left from another sweep; remove it or add --force")
            self.part.unlink()
            return {}
        return dict(filter(None, map(_whole, mine)))

    def add(self, number: int, rows: Sequence[TableRow]) -> None:
        """Note the rows of a chunk, on disk before this returns."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.part, "a", encoding="utf-8") as file:
                # A line that a crash cut off must not swallow the next one.
                file.write(f"\n{self.digest} {json.dumps([number, rows])}\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"{self.part}: cannot be written: {reason(error)}; choose another --out") from None

    def finish(self, rows: Sequence[TableRow]) -> None:
        """Write the table as a whole and remove the journal."""
        content = as_csv(rows).encode() if self.path.suffix == ".csv" else _as_parquet(aligned(rows))
        write_bytes(self.path, content, self.force)
        self.part.unlink(missing_ok=True)


def aligned(rows: Sequence[TableRow]) -> list[TableRow]:
    """Rows with the same columns, those that not every row has first; None where a row has no value."""
    names = dict.fromkeys(name for row in rows for name in row)
    common = set(names).intersection(*rows)
    ordered = [name for name in names if name not in common] + [name for name in names if name in common]
    return [{name: row.get(name) for name in ordered} for row in rows]


def as_csv(rows: Sequence[TableRow]) -> str:
    """Rows as CSV text; an empty cell for None."""
    rows = aligned(rows)
    return csv_text(rows[0], [row.values() for row in rows])


def _whole(line: str) -> tuple[int, list[TableRow]] | None:
    """(chunk number, rows) of a line; None for one that was cut off."""
    try:
        number, rows = json.loads(line.partition(" ")[2])
    except ValueError:
        return None
    return number, rows


def _as_parquet(rows: Sequence[TableRow]) -> bytes:
    """Rows as the bytes of a Parquet file."""
    import pyarrow
    from pyarrow import parquet

    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist(rows), sink)
    return sink.getvalue().to_pybytes()
