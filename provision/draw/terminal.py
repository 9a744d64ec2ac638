"""Draws a plan in the terminal: every GPU is a strip of boxes, with its memory slots to scale."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from provision.draw.boxes import FillStyle, ReplicaBox, Row, SliceBox, details
from provision.draw.drawing import Drawing, Served
from provision.draw.output import Output, number, printable, ranges, shorten
from provision.draw.verdict import Standing
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

FILLS = " ╱░╲┊"
"""The character that fills a box, by fill pattern."""

JOINTS = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"
"""Box-drawing characters, indexed by the sum of their arms: 1 up, 2 down, 4 left, 8 right."""

ASCII = str.maketrans(JOINTS[1:] + FILLS[1:] + "·…✓✗", "|||-+++-+++-+++" + "/:\\'" + ".~+x")
LABEL_WIDTH = 14
FATES_WIDTH, MODELS_WIDTH = 72, 100
"""Widths in columns: the most for the label of a strip; the width of the terminal from which on the legend shows
predictions; and the width from which on it shows models.
"""

WRONG = Style(color="red", bold=True)
FAINT = Style(dim=True)


class Cell(NamedTuple):
    """A box between two border columns; ``wordings`` has, for each of the box's two lines, texts from long to short."""

    left: int
    right: int
    wordings: tuple[Sequence[str], Sequence[str]] = ((), ())
    fill: str = " "
    style: Style = FAINT
    title: str = ""
    title_style: Style = FAINT


class Strip(NamedTuple):
    """One lane of a GPU: its cells, and the labels in front of the lane's two lines."""

    labels: tuple[str, str]
    cells: list[Cell]


def draw_terminal(plan: Plan, instance: Instance | None = None, console: Console | None = None,
                  standing: Standing | None = None) -> None:
    """Print a plan as boxes with a legend.

    Parameters
    ----------
    plan
        The plan; an invalid one is drawn as far as possible, with a list of what is wrong.
    instance
        The plan's instance, for predictions and prices; None if it is not known.
    console
        The Rich console to print to; None for standard output.
    standing
        What is known about the plan, for the title; None if nothing is known.
    """
    console = console or Output()
    console.print(drawn(plan, instance, console.width, standing))


def drawn(plan: Plan, instance: Instance | None, width: int, standing: Standing | None = None,
          more: Sequence[RenderableType] = ()) -> Portable:
    """The renderable that ``draw_terminal`` prints, ``width`` columns wide, with ``more`` between the table and the
    key.
    """
    drawing = Drawing(plan, instance, standing)
    parts: list[RenderableType] = [Text(drawing.title, "bold"), Text(drawing.summary, FAINT), Text()]
    if drawing.rows:
        parts += [*_bars(drawing, width), *(Text(note, FAINT) for note in drawing.notes), Text()]
    if drawing.workloads:
        parts += [_legend(drawing, width), Text(), *more, Text(drawing.key, FAINT)]
    parts += [Text(f"! {problem}", WRONG) for problem in drawing.problems]
    return Portable(Group(*parts))


class Portable:
    """A renderable that uses only characters that the console can write."""

    def __init__(self, inner: RenderableType) -> None:
        self.inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self.inner, options):
            if options.ascii_only:
                text = text.translate(ASCII).encode("ascii", "replace").decode()
            yield Segment(text, style, control)


def _bars(drawing: Drawing, width: int) -> Iterator[Text]:
    """Yield the lines of all strips, with the borders between the strips."""
    labels = [_labels(row) for row in drawing.shown]
    margin = 1 + max(cell_len(text) for pair in labels for text in pair)
    bar = max(8, (width - margin - 1) // 8 * 8)
    above: Strip | None = None
    strips: list[Strip] = []
    for row, pair in zip(drawing.shown, labels, strict=True):
        strips += _strips(row, pair, drawing.styles, bar)
    for strip in [*strips, None]:
        yield Text(" " * margin).append_text(_border(above, strip, bar))
        for line in (0, 1):
            if strip is None:
                continue
            label = Text(set_cell_size(strip.labels[line], margin), FAINT if line else "")
            yield label.append_text(_line(strip, line))
        above = strip


def _labels(row: Row) -> tuple[str, str]:
    """The two labels of a row: the GPU type; and the number of GPUs with their indices."""
    which = f"{row.count} x: " if row.count > 1 else "GPU "
    wordings = [which + ranges(row.gpus, most) for most in range(LABEL_WIDTH, 0, -1)]
    return _worded((printable(row.gpu),), LABEL_WIDTH), _worded(wordings, LABEL_WIDTH)


def _strips(row: Row, labels: tuple[str, str], styles: Mapping[str, FillStyle], bar: int) -> Iterator[Strip]:
    """Yield the lanes of a row as strips; idle slots are shown in the first lane."""
    scale = bar / row.slots
    for lane in range(row.lanes):
        pieces = [piece for piece in row.slices if piece.lane == lane]
        cells = [cell for piece in pieces for cell in _slice_cells(piece, styles, scale)]
        for start, size in () if lane else row.idle:
            cells.append(Cell(round(start * scale), round((start + size) * scale), fill="·", title="idle"))
        yield Strip(("", "") if lane else labels, _tiled(cells, bar))


def _slice_cells(piece: SliceBox, styles: Mapping[str, FillStyle], scale: float) -> list[Cell]:
    """The cells of a slice's replicas and, if their SM shares leave a part of the slice unused, a cell for that part.
    """
    cells = [_replica_cell(replica, styles[replica.workload], scale) for replica in piece.replicas]
    at = cells[-1].right if cells else round(piece.start * scale)
    end = round((piece.start + piece.size) * scale)
    cells += [Cell(at, end, (("unused", ""), ()))] if at < end else []
    title, style = (f"!{piece.profile}", WRONG) if piece.problems else (piece.profile, FAINT)
    return [cells[0]._replace(title=printable(title), title_style=style), *cells[1:]]


def _replica_cell(replica: ReplicaBox, style: FillStyle, scale: float) -> Cell:
    left, right = round(replica.start * scale), round((replica.start + replica.size) * scale)
    wordings = (printable(replica.workload),), details(replica)
    colours = Style(color=style.text, bgcolor=style.colour)
    return Cell(left, right, wordings, FILLS[style.pattern], colours)


def _tiled(cells: Iterable[Cell], bar: int) -> list[Cell]:
    """The cells, with blank cells added in the gaps, so that all columns are covered."""
    tiles, at = [], 0
    for cell in sorted(cell for cell in cells if cell.left < cell.right):
        tiles += [Cell(at, cell.left)] if at < cell.left else []
        tiles.append(cell)
        at = cell.right
    return tiles + ([Cell(at, bar)] if at < bar else [])


def _border(above: Strip | None, below: Strip | None, bar: int) -> Text:
    """The border line between two strips, with the titles of the lower strip's cells."""
    ups, downs = ({cell.left for cell in strip.cells} | {bar} if strip else () for strip in (above, below))
    joints = [
        (column in ups) + 2 * (column in downs) + 4 * (column > 0) + 8 * (column < bar)
        for column in range(bar + 1)
    ]
    line = Text("".join(JOINTS[joint] for joint in joints), FAINT)
    for cell in below.cells if below else ():
        at, title = cell.left + 1, _worded((cell.title,), cell.right - cell.left - 1)
        line = Text.assemble(line[:at], (title, cell.title_style), line[at + cell_len(title) :])
    return line


def _line(strip: Strip, line: int) -> Text:
    """One of the two text lines of a strip."""
    drawn = Text("│", FAINT)
    for cell in strip.cells:
        width = cell.right - cell.left - 1
        drawn.append(_filled(_worded(cell.wordings[line], width), width, cell.fill), cell.style)
        drawn.append("│", FAINT)
    return drawn


def _worded(wordings: Sequence[str], width: int) -> str:
    """The longest wording that fits into ``width`` columns; if none fits, the last wording is shortened until it does.
    """
    last = wordings[-1] if wordings else ""
    whole = next((wording for wording in wordings if cell_len(wording) <= width), last)
    return shorten(whole, lambda text: cell_len(text) <= width)


def _filled(text: str, width: int, fill: str) -> str:
    """The text centred in ``width`` columns, with ``fill`` around it."""
    text = f" {text} " if text and cell_len(text) <= width - 2 else text
    spare = width - cell_len(text)
    return fill * (spare // 2) + text + fill * (spare - spare // 2)


def _of_requests(value: Callable[[Served], float | None]) -> Callable[[Served], str]:
    """A column that shows ``value`` for workloads without tokens and is empty for the others."""
    def told(one: Served) -> str:
        found = None if one.tokens else value(one)
        return "" if found is None else number(found)

    return told


def _limit(name: str) -> Callable[[Served], str]:
    """A column with the replayed TTFT or TPOT of a workload, in milliseconds; with the limit if nothing was replayed.
    """
    def told(one: Served) -> str:
        limit_ms, met_ms = getattr(one.asked and one.asked.slo, f"{name}_ms", None), one.met_ms.get(name.upper())
        if limit_ms is None:
            return ""
        return f"≤ {number(limit_ms)}" if met_ms is None else number(met_ms)

    return told


def _tokens(one: Served) -> str:
    """The number of output tokens per second at the rate of the plan, as text."""
    return number(one.rate_rps * one.tokens) if one.tokens else ""


FATES: dict[str, Callable[[Served], str]] = {
    "capacity/s": lambda one: "" if one.capacity_rps is None else number(one.capacity_rps),
    "tokens/s": _tokens,
    "TTFT ms": _limit("ttft"),
    "TPOT ms": _limit("tpot"),
    "batch ms": _of_requests(lambda one: one.latency_ms),
    "limit ms": _of_requests(lambda one: one.budget_ms),
}
"""Further columns of the table of workloads: by title, the function that shows a Served. A column is shown if it has a
value for some workload.
"""


def _legend(drawing: Drawing, width: int) -> Table:
    """The table of the workloads. If there is room, it also shows their models and, if the instance is known, the
    columns of FATES.
    """
    predicted = drawing.told is not None and width >= FATES_WIDTH
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style=FAINT)
    table.add_column("", min_width=3, no_wrap=True)
    table.add_column("workload", overflow="fold")
    varied = drawing.varied and width >= MODELS_WIDTH
    if varied:
        table.add_column("model", overflow="fold")
    fates = [name for name, tell in FATES.items() if predicted and any(map(tell, drawing.workloads))]
    several = any(one.processes != one.replicas for one in drawing.workloads)
    for title in ("replicas", *["procs"] * several, "rate/s", *fates):
        table.add_column(title, justify="right", no_wrap=True)
    for one in drawing.workloads:
        swatch = Text(FILLS[one.style.pattern] * 3, Style(color=one.style.text, bgcolor=one.style.colour))
        shown = [number(one.rate_rps), *(FATES[name](one) or "-" for name in fates)]
        counts: list[RenderableType] = [Text(f"{one.replicas:,}", "" if one.replicas else WRONG)]
        counts += [f"{one.processes:,}"] * several
        models = [Text(printable(one.model))] * varied
        table.add_row(swatch, Text(printable(one.name)), *models, *counts, *shown)
    return table
