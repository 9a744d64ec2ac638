"""Writes the elements of HTML pages: documents, tables, figures, and the style sheet of all of them, for light and dark
screens, for paper and for phones. A page loads nothing from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

from provision.draw.boxes import PALETTE
from provision.draw.output import number, printable

COLOURS = "".join(f".c{index} {{ --fill: {fill}; --text: {text}; --mark: {text}3d; }}\n"
                  for index, (fill, text) in enumerate(PALETTE))
"""One class per colour of the palette."""
CSS = """
:root { color-scheme: light dark; --paper: #fff; --ink: #16191d; --faint: #5f6772; --line: #d5d9df;
  --idle: #f1f3f5; --stripe: #ccd1d8; --bad: #b3101d; --good: #0b6e4f; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e8eaed; --faint: #9aa3ae;
  --line: #3a4149; --idle: #1e2328; --stripe: #39414a; --bad: #ff7b7b; --good: #5fd3a7; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem clamp(.75rem, 3vw, 2rem); max-width: 80rem; background: var(--paper);
  color: var(--ink); font: 15px/1.45 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
h1 { margin: 0; font-size: 1.5rem; overflow-wrap: anywhere; }
p { margin: .25rem 0 1.25rem; color: var(--faint); }
.verdict { margin: 0 0 1.25rem; padding: .6rem .9rem; border-left: .3rem solid; border-radius: .25rem;
  background: var(--idle); overflow-wrap: anywhere; }
.verdict ul { margin: .4rem 0 0; padding-left: 1.1rem; color: var(--ink); }
.holds { border-color: var(--good); color: var(--good); }
.verdict.wrong { border-color: var(--bad); color: var(--bad); }
.gpu { display: grid; grid-template-columns: 8.5rem minmax(0, 1fr); align-items: center;
  margin-bottom: .6rem; }
.label { min-width: 0; padding-right: .75rem; font-size: .85rem; overflow-wrap: anywhere; }
.label span { display: block; color: var(--faint); font-size: .75rem; }
.bar { position: relative; height: calc(var(--lanes) * 3.7rem); border-radius: .25rem; overflow: hidden;
  outline: 1px solid var(--line); background: var(--paper); }
.bar > div { position: absolute; overflow: hidden; }
.idle { top: 0; bottom: 0; background:
  repeating-linear-gradient(135deg, var(--stripe) 0 1px, var(--idle) 1px 8px); }
.slice { padding: .2rem .4rem; background: var(--idle); border: 1px dashed var(--faint); }
.box { padding: .2rem .4rem .4rem; border: 1px solid var(--paper); border-width: 0 1px; line-height: 1.25;
  container-type: inline-size; }
.bar > .wrong { outline: 3px solid #d0021b; outline-offset: -3px; z-index: 1; }
.box > span { display: block; overflow: hidden; white-space: nowrap; text-overflow: ellipsis; }
.box > .name { display: flex; font-weight: 650; }
.box > .detail { display: flex; flex-wrap: wrap; gap: 0 .6em; height: 1.3em; }
.name span:first-child { overflow: hidden; text-overflow: ellipsis; }
.profile, .detail { font-size: .72rem; }
.box > .load { position: absolute; left: 0; bottom: 2px; height: 3px; background: var(--text); }
.p1 { background-image: repeating-linear-gradient(135deg, var(--mark) 0 1px, transparent 1px 8px); }
.p2 { background-image: radial-gradient(var(--mark) 1.2px, transparent 1.5px); background-size: 8px 8px; }
.p3 { background-image: repeating-linear-gradient(45deg, var(--mark) 0 1px, transparent 1px 8px); }
.p4 { background-image: repeating-linear-gradient(135deg, var(--mark) 0 1px, transparent 1px 9px),
  repeating-linear-gradient(45deg, var(--mark) 0 1px, transparent 1px 9px); }
[class*=' c'] { background-color: var(--fill); color: var(--text); }
.map { width: 100%; max-width: 70rem; margin-bottom: 1rem; fill: var(--stripe); }
.map .box { fill: var(--fill); }
.box:not(.p0) { text-shadow: 0 0 2px var(--fill), 0 0 3px var(--fill), 0 0 4px var(--fill); }
@container (max-width: 8rem) { .name { font-size: .88rem; } }
@container (max-width: 5rem) { .name { font-size: .8rem; } .detail { font-size: .65rem; } }
@container (max-width: 3rem) { .box > .name { display: block; font-size: .66rem; white-space: normal;
  overflow-wrap: anywhere; } .box > .profile, .box > .detail { display: none; } }
table { width: 100%; margin-top: 1.5rem; border-collapse: collapse; font-size: .8rem; }
th, td { padding: .35rem .3rem; border-bottom: 1px solid var(--line); text-align: right; }
th { color: var(--faint); font-weight: 500; vertical-align: bottom; }
th:first-child, td:first-child { padding-left: 0; text-align: left; overflow-wrap: anywhere; }
.fared :is(th, td):nth-child(2) { text-align: left; }
td.name { min-width: 8rem; font-weight: 600; }
td.bad { color: var(--bad); font-weight: 600; }
.swatch { display: inline-block; width: 1.1em; height: 1.1em; margin-right: .5em; border-radius: .15em;
  vertical-align: -.2em; }
@media (max-width: 48rem) {
  .gpu { grid-template-columns: minmax(0, 1fr); }
  .label { display: flex; gap: .6rem; align-items: baseline; padding-bottom: .15rem; }
  .box, .slice { padding-inline: .2rem; }
}
@media (max-width: 60rem) {
  thead { display: none; }
  tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(6.2rem, 1fr)); padding: .5rem 0;
    border-bottom: 1px solid var(--line); }
  td { padding: .15rem 0; border: 0; text-align: left; overflow-wrap: anywhere; }
  td.name { grid-column: 1 / -1; }
  td:not(.name)::before { content: attr(data-title); display: block; color: var(--faint); font-size: .7rem;
    font-weight: 400; }
}
h2 { margin: 2rem 0 .5rem; font-size: 1.1rem; }
.figure svg { width: 100%; height: auto; max-width: 60rem; background: #fff; border-radius: .25rem; }
.p99 { display: inline-block; position: relative; width: 4.5rem; height: .7em; margin-left: .5em;
  background: var(--idle); border-right: 2px solid var(--faint); vertical-align: middle; }
.p99 i { position: absolute; inset: 0 auto 0 0; background: var(--good); }
.p99.late i { background: var(--bad); }
.scroll { overflow-x: auto; }
.rows td { white-space: nowrap; }
pre { padding: .75rem; overflow: auto; background: var(--idle); font-size: .75rem; }
@media print { body { print-color-adjust: exact; } .gpu, tr { break-inside: avoid; } }
""" + COLOURS


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
