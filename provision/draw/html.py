"""Writes the elements of HTML pages: documents, tables, figures. A page loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

from provision.draw.style import CSS
from provision.draw.words import number, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def text(value: object) -> str:
    """A value as text with HTML's special characters escaped."""
    return escape(printable(str(value)))


def document(title: str, summary: str, parts: Iterable[str]) -> str:
    """A whole HTML page: a title, a summary below it, and the parts, which are HTML."""
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{text(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>",
            f"<h1>{text(title)}</h1>\n<p>{text(summary)}</p>",
            *parts,
            "</body>\n</html>\n",
        ]
    )


def section(title: str, *parts: str) -> str:
    """A section of a page with a heading, as HTML."""
    return f"<section><h2>{text(title)}</h2>{''.join(parts)}</section>"


def lines(sentences: Iterable[str]) -> str:
    """Sentences as HTML, one below the other."""
    return "".join(f"<p>{text(sentence)}</p>" for sentence in sentences)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as HTML; it scrolls inside its page if it is wider than the page."""
    head = "".join(f"<th>{text(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, columns, row))}</tr>" for row in rows)
    return f'<div class="scroll"><table class="rows"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def figure(drawn: Figure) -> str:
    """A matplotlib figure as HTML (inline SVG)."""
    file = StringIO()
    drawn.savefig(file, format="svg", metadata={"Date": None})
    svg = file.getvalue()
    return f'<div class="figure">{svg[svg.index("<svg") :]}</div>'


def _cell(column: str, value: object) -> str:
    shown = "–" if value is None else number(value) if isinstance(value, float) else str(value)
    return f'<td data-title="{text(column)}">{text(shown)}</td>'
