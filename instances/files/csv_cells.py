"""Reads CSV files cell by cell; every problem is reported in one line that names file, row and column.

Cells may be separated by commas, semicolons or tabs, whichever occurs most in the header. If commas are not separators,
a number may have a decimal comma, as many spreadsheets write it.
"""

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from provision.instances.files.files import FilePath, read_text
from provision.models.base.errors import InputError

CsvRow = dict[str, str]
"""The cells of a row by column. A cell that a short row lacks is None, which all readers of cells refuse."""

SEPARATORS = ",;\t"
DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
MOST_LINES = 10
"""The most unusable rows that are listed; further ones are counted."""


def refuse_rows(path: FilePath, wrong: Sequence[str]) -> None:
    """Refuse a file if ``wrong``, the lines on rows that cannot be used, is not empty. Raises InputError if ``wrong``
    is not empty.
    """
    more = len(wrong) - MOST_LINES
    if wrong:
        raise InputError(*wrong[:MOST_LINES], *([f"{path}: and {more} more rows"] if more > 0 else []))


def numbered_rows(path: FilePath, columns: Sequence[str], remedy: str = "") -> Iterator[tuple[int, CsvRow]]:
    """Yield the line number and the cells of every row of a CSV file, which must have the given columns.

    ``remedy`` is appended to the message about a missing column. Raises InputError if the file cannot be read, lacks a
    column or has no rows.
    """
    content, row = read_text(path), None
    separator = _separator(content)
    reader = csv.DictReader(io.StringIO(content, newline=""), delimiter=separator, strict=True)
    try:
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        for missing in (column for column in columns if column not in reader.fieldnames):
            has = ", ".join(reader.fieldnames) or "none"
            there = f"it has {has}; expected {', '.join(columns)}{remedy}"
            raise InputError(f"{path}: column {missing!r} is missing; {there}")
        for row in reader:
            if any(map(str.strip, row.pop(None, ()))):
                raise InputError(f"{path}:{reader.line_num}: has more cells than the header; remove some (with decimal "
                                 "commas, put semicolons between cells)")
            yield reader.line_num, row if separator == "," else {name: _pointed(cell) for name, cell in row.items()}
    except csv.Error as error:
        raise InputError(f"{path}:{reader.reader.line_num}: not well-formed CSV: {error}; export it again") from None
    if row is None:
        raise InputError(f"{path}: has no rows below its header; add some")


def header(path: FilePath) -> list[str]:
    """The names of a CSV file's columns. Raises InputError if the file cannot be read."""
    content = read_text(path)
    rows = csv.reader(io.StringIO(content, newline=""), delimiter=_separator(content))
    return [name.strip() for name in next(rows, ())]


def _separator(content: str) -> str:
    """The character that separates the cells of a file."""
    first = next((line for line in content.splitlines() if line.strip()), "")
    return max(SEPARATORS, key=first.count)


def _pointed(cell: Any) -> Any:
    """A cell with a decimal point in place of a decimal comma."""
    return cell.replace(",", ".") if isinstance(cell, str) and DECIMAL_COMMA.fullmatch(cell) else cell


def csv_text(columns: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """The text of a CSV file with these columns and rows; None becomes an empty cell."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows((columns, *rows))
    return file.getvalue()


def text(path: FilePath, line: int, row: CsvRow, column: str) -> str:
    """The text of a cell, without spaces around it; an empty cell is refused."""
    found = (row[column] or "").strip()
    if not found:
        raise InputError(f"{path}:{line}: {column} is empty; write a name")
    return found


def number(path: FilePath, line: int, row: CsvRow, column: str) -> float:
    """The number in a cell, which must be finite and not negative."""
    return parsed(path, line, column, row[column])


def whole(path: FilePath, line: int, row: CsvRow, column: str) -> int:
    """The whole number in a cell, which must not be negative."""
    value = number(path, line, row, column)
    if value != int(value):
        raise InputError(f"{path}:{line}: {column} {row[column]!r} is not a whole number; correct it")
    return int(value)


def parsed(path: FilePath, line: int, column: str, cell: str | None) -> float:
    """The number in the text of a cell, which must be finite and not negative."""
    try:
        value = float(cell or "")
    except (TypeError, ValueError):
        raise InputError(f"{path}:{line}: {column} {cell!r} is not a number; correct it") from None
    if not 0 <= value < math.inf:
        raise InputError(f"{path}:{line}: {column} {cell!r} must be finite and not negative; correct it")
    return value
