"""Keeps the table of a sweep on disk: a journal of finished chunks while the sweep runs, a CSV or Parquet file at the
end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.instances.files.csv_cells import csv_text
from provision.instances.files.files import FilePath, check_writable, reason, write_bytes
from provision.models.base.errors import InputError
from provision.models.base.shown import Shown, frame

if TYPE_CHECKING:
    from pandas import DataFrame

TableRow = dict[str, Any]
"""A row of a table, by column."""

SUFFIXES = (".csv", ".parquet")


class Rows(Shown, list[TableRow]):
    """The rows of a sweep; notebooks show this list as a table."""

    def to_frame(self) -> DataFrame:
        """A pandas frame with a row per point."""
        return frame(aligned(self))


class Table:
    """The file of a sweep, and the journal ``FILE.part`` beside it, from which an interrupted sweep is resumed.

    A line of the journal has the digest of the sweep, the number of a chunk, and the rows of the chunk.

    Parameters
    ----------
    path
        The file of the table, ``.csv`` or ``.parquet``.
    digest
        The digest of everything on which the sweep depends; a journal with another digest belongs to another sweep.
    force
        Whether a table, and a journal of another sweep, may be overwritten.

    Raises
    ------
    InputError
        If the path has another suffix, the file exists, or the journal belongs to another sweep, unless ``force`` is
        set in the last two cases.
    """

    def __init__(self, path: FilePath, digest: str, force: bool = False) -> None:
        self.path, self.part, self.digest, self.force = Path(path), Path(f"{path}.part"), digest, force
        if self.path.suffix not in SUFFIXES:
            raise InputError(f"{path}: a table ends in {' or '.join(SUFFIXES)}; name it so")
        if self.path.suffix == ".parquet" and not find_spec("pyarrow"):
            raise InputError(f"{path}: needs pyarrow; pip install 'gpu-provision[parquet]', or write .csv")
        check_writable(path, force)
        self.done = self._resumed() if self.part.exists() else {}

    def _resumed(self) -> dict[int, list[TableRow]]:
        """The rows in the journal by chunk; incomplete lines are left out."""
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
        """Add the rows of a chunk to the journal; they are on the disk when this returns."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.part, "a", encoding="utf-8") as file:
                # # the line break first, since a crash may have left the last line incomplete
                file.write(f"\n{self.digest} {json.dumps([number, rows])}\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"{self.part}: cannot be written: {reason(error)}; choose another --out") from None

    def finish(self, rows: Sequence[TableRow]) -> None:
        """Write the whole table to the file and remove the journal."""
        content = as_csv(rows).encode() if self.path.suffix == ".csv" else _as_parquet(aligned(rows))
        write_bytes(self.path, content, self.force)
        self.part.unlink(missing_ok=True)


def aligned(rows: Sequence[TableRow]) -> list[TableRow]:
    """The rows with the same columns in every row: first the columns that some rows lack, then the others; missing
    values are None.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    common = set(names).intersection(*rows)
    ordered = [name for name in names if name not in common] + [name for name in names if name in common]
    return [{name: row.get(name) for name in ordered} for row in rows]


def as_csv(rows: Sequence[TableRow]) -> str:
    """Rows as CSV text; an empty cell for None."""
    rows = aligned(rows)
    return csv_text(rows[0], [row.values() for row in rows])


def _whole(line: str) -> tuple[int, list[TableRow]] | None:
    """The pair (chunk number, rows) in a line of the journal; None if the line is incomplete."""
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
