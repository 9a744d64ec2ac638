"""Prints texts and tables on stdout."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text


class Output(Console):
    """A console whose reader may stop reading, as ``head`` does. Rich's own console would then exit with code 1."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise the error, so that the caller can handle it."""
        raise BrokenPipeError


GUTTER, LONG_TEXT, LONG_TABLE = 3, 36, 1000
"""Widths in characters: the gap between two columns, the longest text that is not folded, and the width above which a
table counts as not printed on a terminal.
"""

class Rows(NamedTuple):
    """A table to print: the names of its columns, and its rows; whether long texts are folded off terminals too."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    folded: bool = False


def rows_of(several: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None,
            cell: Callable[[Any], Any] = lambda value: value, folded: bool = False) -> Rows:
    """The table of some rows by column; of all columns unless some are named."""
    columns = columns or list(several[0])
    return Rows(columns, [[cell(one[name]) for name in columns] for one in several], folded)


Shown = str | Iterable[str | Rows]
"""What people read: a text, or texts and tables, one below the other."""


def show(text: Shown) -> None:
    """Print a text, or several and tables, on stdout."""
    for part in [text] if isinstance(text, str) else text:
        if isinstance(part, str):
            print(part)
        else:
            print_table(*part)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], folded: bool = False) -> None:
    """Print a table on stdout; columns of numbers are aligned to the right.

    On a terminal, columns that do not fit into its width are printed in further tables below, each of which repeats the
    first column, and texts longer than LONG_TEXT are folded. Elsewhere the table is as wide as needed; with ``folded``
    long texts are folded there too.
    """
    console = Output(highlight=False, width=None if sys.stdout.isatty() else 10_000)
    texts = [[shown(cell) for cell in row] for row in rows]
    widths = [max(cell_len(text) for text in (name, *cells)) for name, *cells in zip(columns, *texts, strict=True)]
    numeric = [all(isinstance(row[at], (int, float, type(None))) for row in rows) for at in range(len(columns))]
    for group in _beside(widths, console.width):
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for at in group:
            table.add_column(
                Text(columns[at]), justify="right" if numeric[at] else "left", overflow="fold",
                no_wrap=at == 0 or widths[at] <= LONG_TEXT, max_width=LONG_TEXT if folded and at else None,
            )
        for row in texts:
            table.add_row(*(Text(row[at]) for at in group))
        console.print(table)


def _beside(widths: Sequence[int], most: int) -> list[list[int]]:
    """Groups of column indices; the columns of a group fit side by side into ``most`` characters, and every group
    begins with the first column.
    """
    groups, taken = [[0]], widths[0]
    for at, width in enumerate(widths[1:], start=1):
        needed = GUTTER + (width if most > LONG_TABLE else min(width, LONG_TEXT))
        if len(groups[-1]) > 1 and taken + needed + GUTTER > most:
            groups.append([0])
            taken = widths[0]
        groups[-1].append(at)
        taken += needed
    return groups


def shown(value: object) -> str:
    """A value as the text of a table cell; None is a dash."""
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
