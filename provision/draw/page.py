"""A plan as one self-contained HTML page: the GPUs drawn, and how every workload fares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from provision.draw.layout import PALETTE, Drawing, facts, number, plural, printable, ranges

if TYPE_CHECKING:
    from provision.draw.layout import FillStyle, ReplicaBox, Row, Served, SliceBox
    from provision.models.plans.plan import Plan
    from provision.models.plans.report import Report, Violation
    from provision.models.problem.instance import Instance

Shown = str | tuple[str, str]
"""What a cell shows; what must catch the eye comes with its CSS class."""

TAIL = 3
"""Characters at the end of a name that stay when it is cut short."""


def render_page(plan: Plan, instance: Instance | None = None, report: Report | None = None, more: str = "") -> str:
    """The page of a plan.

    Parameters
    ----------
    plan
        The plan; a wrong one is drawn as far as it can be, and what is wrong with it is named.
    instance
        Its instance, for SLOs, predictions and prices; None when there is none.
    report
        The verifier's report, with ``ok`` and ``violations``; None when it was not verified.
    more
        HTML that stands at the end.

    Returns
    -------
    str
        HTML that refers to nothing outside itself.
    """
    drawing = Drawing(plan, instance)
    key = "hatched: idle · b batch size · p processes · /s requests per second"
    key += " · % and bar: rate over predicted throughput" if instance else ""
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(drawing.title)}</title>\n<style>{CSS}{_colours()}</style>\n</head>\n<body>",
            f"<h1>{_text(drawing.title)}</h1>\n<p>{_text(drawing.summary)}</p>",
            _verdict(report) if report else "",
            _notes(drawing.problems),
            *(_gpu(row, drawing.styles) for row in drawing.rows),
            f"<p>{key}</p>" if drawing.rows else "",
            _table(drawing) if drawing.workloads else "",
            more,
            "</body>\n</html>\n",
        ]
    )


def _text(value: object) -> str:
    """A value as text that HTML cannot take for anything else."""
    return escape(printable(str(value)))


def _verdict(report: Report) -> str:
    if report.ok:
        return '<section class="verdict holds">Verified: the plan holds.</section>'
    items = "".join(f"<li>{_violation(one)}</li>" for one in report.violations)
    title = f"Not valid: {plural(len(report.violations), 'violation')}"
    return f'<section class="verdict wrong">{title}<ul>{items}</ul></section>'


def _violation(one: Violation) -> str:
    places = [("GPU", one.gpu), ("slice", one.slice), ("workload", one.workload)]
    where = ", ".join(f"{name} {value}" for name, value in places if value not in (None, ""))
    return f"<b>{_text(one.kind)}</b> {_text(where)}<br>{_text(one.message)}"


def _notes(problems: Sequence[str]) -> str:
    items = "".join(f"<li>{_text(problem)}</li>" for problem in problems)
    return f'<section class="verdict wrong">Not drawn as planned<ul>{items}</ul></section>' if items else ""


def _gpu(row: Row, styles: Mapping[str, FillStyle]) -> str:
    """A GPU, or several alike: its label and its bar."""
    several = f"{row.count} × " if row.count > 1 else ""
    where = f'<span title="GPU {ranges(row.gpus)}">GPU {ranges(row.gpus, 3)}</span>'
    idle = [_idle(start, size, row) for start, size in row.idle]
    boxes = [_slice(piece, row, styles) for piece in row.slices]
    return (
        f'<div class="gpu"><div class="label"><b>{several}{_text(row.gpu)}</b>{where}</div>'
        f'<div class="bar" style="--lanes:{row.lanes}">{"".join(idle + boxes)}</div></div>'
    )


def _idle(start: float, size: int, row: Row) -> str:
    title = f"{plural(size, 'memory slot')} idle"
    return f'<div class="idle" style="{_place(start, size, row)}" title="{title}"></div>'


def _place(start: float, size: float, row: Row, lane: int | None = None) -> str:
    """Where a box stands in its bar, as CSS; over all lanes by default."""
    across = f"left:{start / row.slots:.4%};width:{size / row.slots:.4%}"
    return across if lane is None else f"{across};top:{lane / row.lanes:.4%};height:{1 / row.lanes:.4%}"


def _slice(piece: SliceBox, row: Row, styles: Mapping[str, FillStyle]) -> str:
    """The replicas of a slice, over the slice itself."""
    wrong = " wrong" if piece.problems else ""
    title = [f"{piece.profile} at memory slot {piece.planned_start}, unused", *piece.problems]
    boxes = "".join(_replica(replica, piece, row, styles) for replica in piece.replicas)
    profile = "" if boxes else f'<span class="profile">{_text(piece.profile)}</span>'
    place = _place(piece.start, piece.size, row, piece.lane)
    return f'<div class="slice{wrong}" style="{place}" title="{_lines(title)}">{profile}</div>{boxes}'


def _lines(lines: Iterable[str]) -> str:
    """Lines as the value of an attribute."""
    return "&#10;".join(_text(line) for line in lines)


def _replica(replica: ReplicaBox, piece: SliceBox, row: Row, styles: Mapping[str, FillStyle]) -> str:
    style, name = styles[replica.workload], replica.workload
    load = replica.utilisation
    bar = "" if load is None else f'<span class="load" style="width:{min(1, load):.2%}"></span>'
    wrong = " wrong" if piece.problems else ""
    shown = "".join(f"<span>{_text(fact)}</span>" for fact in facts(replica))
    return (
        f'<div class="box c{PALETTE.index((style.colour, style.text))} p{style.pattern}{wrong}" '
        f'style="{_place(replica.start, replica.size, row, piece.lane)}" title="{_hover(replica, piece)}">'
        f'<span class="profile">{_text(piece.profile)}</span>'
        f'<span class="name"><span>{_text(name[:-TAIL])}</span><span>{_text(name[-TAIL:])}</span></span>'
        f'<span class="detail">{shown}</span>{bar}</div>'
    )


def _hover(replica: ReplicaBox, piece: SliceBox) -> str:
    """Everything about a replica, line by line."""
    lines = [
        replica.workload,
        f"{piece.profile} at memory slot {piece.planned_start}, SM share {replica.sm_share:.0%}",
        f"batch {replica.batch}, processes {replica.processes}, {replica.rate} requests/s",
        *([f"runs {replica.model}"] if replica.model else []),
        *piece.problems,
    ]
    if replica.prediction:
        latency, throughput, _ = replica.prediction
        lines.append(f"predicted: {number(throughput)} requests/s, batch latency {number(latency)} ms")
    return _lines(lines)


def _table(drawing: Drawing) -> str:
    """The workloads; with an instance, what they ask for and how they fare too."""
    mark, columns = ("plain", PLAIN) if drawing.instance is None else ("fared", FARED)
    head = "".join(f"<th>{title}</th>" for title in columns)
    rows = (
        "<tr>" + "".join(_cell(title, value(one)) for title, value in columns.items()) + "</tr>"
        for one in drawing.workloads
    )
    return f'<table class="{mark}"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _cell(title: str, shown: Shown) -> str:
    """A table cell; what must catch the eye comes as (text, class)."""
    shown, mark = shown if isinstance(shown, tuple) else (shown, "")
    return f'<td class="{mark}" data-title="{title}">{shown}</td>'


def _named(one: Served) -> Shown:
    colour = PALETTE.index((one.style.colour, one.style.text))
    return f'<span class="swatch c{colour} p{one.style.pattern}"></span>{_text(one.name)}', "name"


def _replicas(one: Served) -> Shown:
    return f"{one.replicas:,}", "" if one.replicas else "bad"


def _quantity(value: float | None) -> str:
    return "–" if value is None else number(value)


def _slack(value: float | None) -> Shown:
    """What is left, as a percentage; less than nothing catches the eye."""
    if value is None:
        return "–"
    return f"{value:.1%}", "bad" if value < -1e-6 else ""


PLAIN = {
    "workload": _named,
    "replicas": _replicas,
    "processes": lambda one: f"{one.processes:,}",
    "rate/s": lambda one: number(one.rate_rps),
}
FARED = {
    "workload": _named,
    "model": lambda one: _text(one.model),
    "SLO ms": lambda one: _quantity(one.asked and one.asked.slo_ms),
    "latency limit ms": lambda one: _quantity(one.budget_ms),
    "latency ms": lambda one: _quantity(one.latency_ms),
    "latency slack": lambda one: _slack(one.latency_slack),
    "rate to serve/s": lambda one: _quantity(one.planned_rps),
    "rate routed/s": lambda one: number(one.rate_rps),
    "throughput/s": lambda one: _quantity(one.throughput_rps),
    "throughput slack": lambda one: _slack(one.rate_slack),
    "replicas": _replicas,
    "processes": lambda one: f"{one.processes:,}",
}
"""Columns of the table of workloads: how each shows a Served."""

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
.facts { width: auto; margin-top: 0; }
.facts th { padding-right: 1.5rem; text-align: left; }
.facts td { text-align: left; overflow-wrap: anywhere; }
.curves svg { width: 100%; max-width: 45rem; font-size: 12px; fill: var(--faint); }
.curves path { fill: none; stroke: var(--ink); stroke-width: 2; }
.curves .bound { stroke: var(--good); stroke-dasharray: 6 4; }
pre { padding: .75rem; overflow: auto; background: var(--idle); font-size: .75rem; }
@media print { body { print-color-adjust: exact; } .gpu, tr { break-inside: avoid; } }
"""


def _colours() -> str:
    """One class per colour of the palette."""
    shared = "[class*=' c'] { background-color: var(--fill); color: var(--text); }\n"
    return shared + "".join(
        f".c{index} {{ --fill: {fill}; --text: {text}; --mark: {text}3d; }}\n"
        for index, (fill, text) in enumerate(PALETTE)
    )
