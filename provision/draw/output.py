"""Text for people: formats quantities, counts and names, and prints texts and tables on stdout."""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, NoReturn

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text


def number(value: float) -> str:
    """A quantity as text with at least three significant digits; numbers of usual size have no exponent."""
    return f"{value:,.0f}" if 99.95 <= abs(value) < 1e9 else f"{value:.3g}"


def at_least(part: float, form: str = "d") -> str:
    """A part as a whole percentage that is not above it, for sentences that say how much is borne or carried."""
    return f"{math.floor(100 * part + 1e-9):{form}}%"


def part_of_slo(part: float) -> str:
    """A latency divided by its SLO as a percentage, rounded so that a latency above the SLO never shows 100 %."""
    return f"{part:.0%}" if part <= 1 or part >= 1.005 else f"{max(part, 1.001):.1%}"


def printable(text: str) -> str:
    """The text, with a mark instead of every character that controls terminals or changes the direction of writing."""
    return "".join(character if character.isprintable() else "�" for character in text)


def plural(count: int, noun: str) -> str:
    """A count with its noun, in the plural unless the count is 1."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def ranges(indices: Sequence[int], most: int | None = None) -> str:
    """Ascending indices as ranges, such as "0-3, 7"; after the first ``most`` ranges an ellipsis stands for the rest.
    """
    runs = groupby(enumerate(indices), lambda pair: pair[1] - pair[0])
    ends = [[index for _, index in run] for _, run in runs]
    shown = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ends[:most]]
    return ", ".join([*shown, "…"] if len(shown) < len(ends) else shown)


def shorten(text: str, fits: Callable[[str], bool]) -> str:
    """The text; if it does not fit, its middle is replaced by an ellipsis until it fits; empty if nothing fits.

    The end is kept because names tend to differ there (densenet121, densenet169).
    """
    if fits(text):
        return text
    lengths = range(len(text) - 1, 0, -1)
    cuts = (f"{text[: keep - keep // 2]}…{text[len(text) - keep // 2 :]}" for keep in lengths)
    return next((cut for cut in cuts if fits(cut)), "")


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
