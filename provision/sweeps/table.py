"""The table of a sweep on disk: a journal of finished chunks while it runs, one CSV or Parquet file in the end."""

import csv
import io
import json
import os
from pathlib import Path

from provision.instances.files import check_writable, reason, write_text
from provision.models.errors import InputError

SUFFIXES = (".csv", ".parquet")


class Table:
    """The file of a sweep and its journal beside it, ``FILE.part``, from which an interrupted sweep resumes.

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

    def __init__(self, path, digest, force=False):
        self.path, self.part, self.digest = Path(path), Path(f"{path}.part"), digest
        if self.path.suffix not in SUFFIXES:
            raise InputError(f"{path}: a table ends in {' or '.join(SUFFIXES)}; name it so")
        check_writable(path, force)
        self.done = {} if not self.part.exists() else self._resumed(force)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def _resumed(self, force):
        """Rows by chunk of the journal; a last line that was cut off is left out."""
        try:
            head, *lines = self.part.read_text().splitlines() or [""]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self.part}: cannot be read: {reason(error)}; remove it") from None
        if head != self.digest:
            if not force:
                raise InputError(f"{self.part}: is left from another sweep; remove it or add --force")
            self.part.unlink()
            return {}
        return dict(filter(None, map(_whole, lines)))

    def add(self, number, rows):
        """Note the rows of a chunk, on disk before this returns."""
        new = not self.part.exists()
        with open(self.part, "a", encoding="utf-8") as file:
            # A line that a crash cut off must not swallow the next one.
            file.write(f"{self.digest}\n" if new else "\n")
            file.write(json.dumps([number, rows]) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def finish(self, rows):
        """Write the table as a whole and remove the journal."""
        if self.path.suffix == ".csv":
            write_text(self.path, as_csv(rows), force=True)
        else:
            _write_parquet(aligned(rows), self.path)
        self.part.unlink(missing_ok=True)


def aligned(rows):
    """Rows with the same columns, those that not every row has first; None where a row has no value."""
    names = dict.fromkeys(name for row in rows for name in row)
    common = set(names).intersection(*rows)
    ordered = [name for name in names if name not in common] + [name for name in names if name in common]
    return [{name: row.get(name) for name in ordered} for row in rows]


def as_csv(rows):
    """Rows as CSV text; an empty cell for None."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(aligned(rows)[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _whole(line):
    """(chunk number, rows) of a line; None for one that is empty or was cut off."""
    try:
        number, rows = json.loads(line)
    except ValueError:
        return None
    return number, rows


def _write_parquet(rows, path):
    """Rows as a Parquet file, under a temporary name first."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError("a .parquet table needs pyarrow; pip install 'provision[parquet]', or write .csv") from None
    temporary = Path(f"{path}.tmp")
    parquet.write_table(pyarrow.Table.from_pylist(rows), temporary)
    os.replace(temporary, path)
