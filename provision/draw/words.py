"""Formats quantities, counts and names for drawings, pages and lines of text."""

import math
from collections.abc import Callable, Sequence
from itertools import groupby


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
