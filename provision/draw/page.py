"""Writes a plan as one self-contained HTML page: a drawing of the GPUs, and a table of the workloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from provision.draw.boxes import PALETTE, FillStyle, ReplicaBox, Row, SliceBox, facts
from provision.draw.drawing import Drawing, Served
from provision.draw.html import document, text
from provision.draw.output import number, part_of_slo, plural, ranges
from provision.draw.verdict import Standing
from provision.models.plans.plan import Plan
from provision.models.plans.report import Report, Violation
from provision.models.problem.instance import Instance

Shown = str | tuple[str, str]
"""The text of a cell, or a pair of the text and the CSS class that highlights it."""

MAPPED, ACROSS = range(41, 5001), 80
"""The numbers of GPUs with which a map of all of them is drawn first (with more, a page would be too large for
browsers), and how many of its cells stand side by side.
"""
TAIL = 3
"""The number of characters at the end of a name that are kept when the name is shortened."""
READING = ("Each row is a GPU, or several that look alike, its memory from left to right. Each coloured box is a slice "
           "with the workload that it serves; grey hatching is idle.")
"""How to read the drawing of the GPUs."""
MOST_RANGES = 60
"""The most ranges of GPUs that the mouse over a label shows."""


def render_page(plan: Plan, instance: Instance | None = None, report: Report | None = None, more: str = "",
                standing: Standing | None = None) -> str:
    """The HTML page of a plan.

    Parameters
    ----------
    plan
        The plan; an invalid one is drawn as far as possible, with a list of what is wrong.
    instance
        The plan's instance, for SLOs, predictions and prices; None if it is not known.
    report
        The verifier's report; None if the plan was not verified.
    more
        HTML for the end of the page.
    standing
        What is proven about the plan and how it fares in a replay; None if unknown.

    Returns
    -------
    str
        The page, which loads nothing from elsewhere.
    """
    drawing = Drawing(plan, instance, standing)
    return document(drawing.title, drawing.summary, [*plan_parts(drawing, report), more])


def plan_parts(drawing: Drawing, report: Report | None = None) -> list[str]:
    """The parts of a page that show a plan, as HTML: proof, verdict, problems, GPUs, key, workloads."""
    return [
        _proof(drawing.standing) if drawing.standing else "",
        _verdict(report) if report else "",
        _notes(drawing.problems),
        _map(drawing) if drawing.plan.gpu_count in MAPPED else "",
        f"<p>{READING} In a box: {drawing.key}.</p>" if drawing.rows else "",
        f'<div class="gpus">{"".join(_gpu(row, drawing.styles) for row in drawing.shown)}</div>',
        "".join(f"<p>{text(note)}</p>" for note in drawing.notes),
        _table(drawing, report) if drawing.workloads else "",
    ]


def _proof(standing: Standing) -> str:
    marks = {True: " holds", False: " wrong", None: ""}
    return "".join(f'<section class="verdict{marks[mood]}">{text(line)}</section>'
                   for line, mood in standing.moods.items())


def _verdict(report: Report) -> str:
    if report.ok:
        return '<section class="verdict holds">Verified: the plan holds.</section>'
    items = "".join(f"<li>{_violation(one)}</li>" for one in report.violations)
    title = f"Not valid: {plural(len(report.violations), 'violation')}"
    return f'<section class="verdict wrong">{title}<ul>{items}</ul></section>'


def _violation(one: Violation) -> str:
    places = [("GPU", one.gpu), ("slice", one.slice), ("workload", one.workload)]
    where = ", ".join(f"{name} {value}" for name, value in places if value not in (None, ""))
    return f"<b>{text(one.kind)}</b> {text(where)}<br>{text(one.message)}"


def _notes(problems: Sequence[str]) -> str:
    items = "".join(f"<li>{text(problem)}</li>" for problem in problems)
    return f'<section class="verdict wrong">Not drawn as planned<ul>{items}</ul></section>' if items else ""


def _map(drawing: Drawing) -> str:
    """Every GPU as a cell in the colours of its workloads, as HTML."""
    total = drawing.plan.gpu_count
    cells = [_map_cell(row, drawing.styles) for row in drawing.rows for _ in row.gpus]
    placed = "".join(f'<svg x="{at % ACROSS}" y="{at // ACROSS}" {cell}</svg>' for at, cell in enumerate(cells))
    return (f'<svg class="map" viewBox="0 0 {ACROSS} {-(-total // ACROSS)}" role="img" '
            f'aria-label="map of {plural(total, "GPU")}, coloured by workload">{placed}</svg>')


def _map_cell(row: Row, styles: Mapping[str, FillStyle]) -> str:
    """The end of the tag of a map's cell, and what is in it: a rectangle per replica, beside each other."""
    boxes = "".join(
        f'<rect class="box {_colour(styles[one.workload])}" x="{one.start:g}" width="{one.size:g}" height="1"/>'
        for _, one in row.boxes)
    return (f'width=".8" height=".8" viewBox="0 0 {row.slots} 1" preserveAspectRatio="none">'
            f'<rect width="{row.slots}" height="1"/>{boxes}')


def _colour(style: FillStyle) -> str:
    """The CSS class of a colour."""
    return f"c{PALETTE.index((style.colour, style.text))}"


def _gpu(row: Row, styles: Mapping[str, FillStyle]) -> str:
    """The label and the bar of a GPU, or of several GPUs that look alike, as HTML."""
    several = f"{row.count} × " if row.count > 1 else ""
    where = f'<span title="GPU {ranges(row.gpus, MOST_RANGES)}">GPU {ranges(row.gpus, 3)}</span>'
    idle = [_idle(start, size, row) for start, size in row.idle]
    boxes = [_slice(piece, row, styles) for piece in row.slices]
    names = ", ".join(replica.workload for _, replica in row.boxes) or "idle"
    return (
        f'<div class="gpu"><div class="label"><b>{several}{text(row.gpu)}</b>{where}</div>'
        f'<div class="bar" role="img" aria-label="{text(row.gpu)}: {text(names)}" style="--lanes:{row.lanes}">'
        f'{"".join(idle + boxes)}</div></div>'
    )


def _idle(start: float, size: int, row: Row) -> str:
    title = f"{plural(size, 'memory slot')} idle"
    return f'<div class="idle" style="{_place(start, size, row)}" title="{title}"></div>'


def _place(start: float, size: float, row: Row, lane: int | None = None) -> str:
    """The place of a box in its bar, as CSS; without a lane, the box covers all lanes."""
    across = f"left:{start / row.slots:.4%};width:{size / row.slots:.4%}"
    return across if lane is None else f"{across};top:{lane / row.lanes:.4%};height:{1 / row.lanes:.4%}"


def _slice(piece: SliceBox, row: Row, styles: Mapping[str, FillStyle]) -> str:
    """The HTML of a slice, with the boxes of its replicas on top."""
    wrong = " wrong" if piece.problems else ""
    title = [f"{piece.profile} at memory slot {piece.planned_start}, unused", *piece.problems]
    boxes = "".join(_replica(replica, piece, row, styles) for replica in piece.replicas)
    profile = "" if boxes else f'<span class="profile">{text(piece.profile)}</span>'
    place = _place(piece.start, piece.size, row, piece.lane)
    return f'<div class="slice{wrong}" style="{place}" title="{_lines(title)}">{profile}</div>{boxes}'


def _lines(lines: Iterable[str]) -> str:
    """Lines as the value of an HTML attribute."""
    return "&#10;".join(text(line) for line in lines)


def _replica(replica: ReplicaBox, piece: SliceBox, row: Row, styles: Mapping[str, FillStyle]) -> str:
    style, name = styles[replica.workload], replica.workload
    load = replica.utilisation
    bar = "" if load is None else f'<span class="load" style="width:{min(1, load):.2%}"></span>'
    wrong = " wrong" if piece.problems else ""
    shown = "".join(f"<span>{text(fact)}</span>" for fact in facts(replica))
    return (
        f'<div class="box {_colour(style)} p{style.pattern}{wrong}" '
        f'style="{_place(replica.start, replica.size, row, piece.lane)}" title="{_hover(replica, piece)}">'
        f'<span class="profile">{text(piece.profile)}</span>'
        f'<span class="name"><span>{text(name[:-TAIL])}</span><span>{text(name[-TAIL:])}</span></span>'
        f'<span class="detail">{shown}</span>{bar}</div>'
    )


def _hover(replica: ReplicaBox, piece: SliceBox) -> str:
    """The text that appears when the mouse is over a replica: all facts about it, line by line."""
    lines = [
        replica.workload,
        f"{piece.profile} at memory slot {piece.planned_start}, SMs {replica.sm_percent}% (MPS)",
        f"batch {replica.batch}, processes {replica.processes}, {replica.rate} requests/s",
        *([f"runs {replica.model}"] if replica.model else []),
        *piece.problems,
    ]
    if replica.prediction:
        rps, latency_ms = replica.prediction.throughput_rps, replica.prediction.latency_ms
        lines.append(f"predicted: {number(rps)} requests/s, batch latency {number(latency_ms)} ms")
    return _lines(lines)


def _table(drawing: Drawing, report: Report | None) -> str:
    """The table of the workloads, as HTML; if the instance is known, also with their SLOs, predictions and slack."""
    mark, columns = ("plain", PLAIN) if drawing.told is None else ("fared", FARED)
    if not drawing.overview and (promised := _tails_ms(report)):
        columns = columns | {"P99 promised, of limit": partial(_p99, promised)}
    if drawing.standing and drawing.standing.p99_over_slo:
        columns = columns | {"P99 replayed, of SLO": partial(_p99, drawing.standing.p99_over_slo)}
    head = "".join(f"<th>{title}</th>" for title in columns)
    rows = (
        "<tr>" + "".join(_cell(title, value(one)) for title, value in columns.items()) + "</tr>"
        for one in drawing.workloads
    )
    return (f'<table class="{mark}" aria-label="Workloads"><thead><tr>{head}</tr></thead>'
            f'<tbody>{"".join(rows)}</tbody></table>')


def _tails_ms(report: Report | None) -> dict[str, float]:
    """By workload, the largest P99 that the latency rule promises for a replica, divided by its limit."""
    found: dict[str, float] = {}
    for one in report.predictions if report else ():
        if one.p99_ms is not None:
            found[one.workload] = max(found.get(one.workload, 0.0), one.p99_ms / one.budget_ms)
    return found


def _cell(title: str, shown: Shown) -> str:
    """A table cell; ``shown`` is a text, or (text, class) to highlight it."""
    shown, mark = shown if isinstance(shown, tuple) else (shown, "")
    return f'<td class="{mark}" data-title="{title}">{shown}</td>'


def _named(one: Served) -> Shown:
    return f'<span class="swatch {_colour(one.style)} p{one.style.pattern}"></span>{text(one.name)}', "name"


def _replicas(one: Served) -> Shown:
    return f"{one.replicas:,}", "" if one.replicas else "bad"


def _quantity(value: float | None) -> str:
    return "–" if value is None else number(value)


def _p99(over_slo: Mapping[str, float], one: Served) -> Shown:
    """A cell with the P99 divided by the SLO, and a bar whose full width is the SLO."""
    if one.name not in over_slo:
        return "–"
    part = over_slo[one.name]
    late = part > 1
    shown = part_of_slo(part) if part < float("inf") else "dropped"
    bar = f'<span class="p99{" late" if late else ""}"><i style="width:{min(1.0, part):.1%}"></i></span>'
    return f"{shown}{bar}", "bad" if late else ""


def _slack(value: float | None) -> Shown:
    """A cell with the part of a limit that is left, as a percentage; a negative number is highlighted."""
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
    "model": lambda one: text(one.model),
    "SLO ms": lambda one: _quantity(one.asked and one.asked.slo_ms),
    "latency limit ms": lambda one: _quantity(one.budget_ms),
    "latency ms": lambda one: _quantity(one.latency_ms),
    "latency left": lambda one: _slack(one.latency_slack),
    "rate to serve/s": lambda one: _quantity(one.planned_rps),
    "rate routed/s": lambda one: number(one.rate_rps),
    "throughput/s": lambda one: _quantity(one.throughput_rps),
    "throughput left": lambda one: _slack(one.rate_slack),
    "replicas": _replicas,
    "processes": lambda one: f"{one.processes:,}",
}
"""The columns of the table of workloads, if the instance is known: by title, the function that shows a Served."""
