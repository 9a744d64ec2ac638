"""Draws a plan as a PNG or SVG picture: every GPU is a strip of boxes, with its memory slots to scale.

The figure has a single set of axes, whose unit is an inch and whose y axis points downwards, so that the size of every
text can be compared with the room for it.
"""

import math
from collections.abc import Sequence, Set
from functools import cache
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from provision.draw.boxes import FillStyle, ReplicaBox, Row, SliceBox, details
from provision.draw.drawing import Drawing
from provision.draw.figures import check_picture, write_figure
from provision.draw.output import number, part_of_slo, plural, printable, ranges, shorten
from provision.draw.verdict import Standing
from provision.instances.files.files import FilePath
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

ROWS_PER_COLUMN, MOST_COLUMNS = 20, 4
MOST_ROWS, MOST_SWATCHES, MOST_PROBLEMS = 96, 60, 12
"""The most rows, legend entries and problems that a readable picture has; a line tells how many more there are."""

BAR, LABEL, MARGIN, PAD = 6.4, 1.3, 0.4, 0.06
TITLE, LANE, GAP, LINE, SWATCH = 0.75, 0.56, 0.1, 0.45, 2.4
"""Sizes in inches: a strip, its label, the margins, the padding of boxes, the title, a lane, the gap below a strip, the
height and width of a legend entry.
"""

FONTS = {weight: FontProperties(family="DejaVu Sans", weight=weight) for weight in ("normal", "bold")}
HATCHES = ("", "///", "...", "\\\\\\", "xxx")
INK, FAINT, WRONG, GOOD = "#16191d", "#5f6772", "#c1121f", "#0b6e4f"
SETTINGS: dict[Any, Any] = {"hatch.linewidth": 0.7, "text.hinting": "none"}


def draw_picture(plan: Plan, path: FilePath, instance: Instance | None = None, force: bool = False,
                 standing: Standing | None = None) -> None:
    """Draw a plan into a file.

    Parameters
    ----------
    plan
        The plan; an invalid one is drawn as far as possible, with a list of what is wrong.
    path
        The file; its suffix, ``.png`` or ``.svg``, is the format.
    instance
        The plan's instance, for predictions and prices; None if it is not known.
    force
        Whether an existing file may be replaced.
    standing
        What is proven about the plan and how it fares in a replay; None if unknown.

    Raises
    ------
    InputError
        If the suffix is neither ``.png`` nor ``.svg``, the file exists and ``force`` is not set, or the file cannot be
        written.
    """
    check_picture(path, force)
    with rc_context(SETTINGS):
        write_figure(_Sheet(Drawing(plan, instance, standing, MOST_ROWS)).figure, path, force)


class _Sheet:
    """A figure that is filled from the top; ``y`` is the height in inches that is filled so far."""

    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing
        self.rows = drawing.shown
        self.columns = min(MOST_COLUMNS, max(1, math.ceil(len(self.rows) / ROWS_PER_COLUMN)))
        self.width = self.columns * (MARGIN + LABEL + BAR) + MARGIN
        self.figure = Figure(facecolor="white")
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.y = MARGIN
        for part in (self._title, self._strips, self._legend, self._notes):
            part()
        self.height = self.y + MARGIN
        self.figure.set_size_inches(self.width, self.height)
        self.axes.set(xlim=(0, self.width), ylim=(self.height, 0))

    @property
    def room(self) -> float:
        """The width between the margins, in inches."""
        return self.width - 2 * MARGIN

    def _title(self) -> None:
        self.text(MARGIN, self.y + 0.1, self.room, [self.drawing.title], (14, 8), weight="bold")
        self.text(MARGIN, self.y + 0.38, self.room, [self.drawing.summary], (9, 6), FAINT)
        self.y += TITLE
        for line in self.drawing.standing.lines if self.drawing.standing else ():
            self.text(MARGIN, self.y - 0.12, self.room, [line], (9, 6), INK)
            self.y += 0.2

    def _strips(self) -> None:
        """Draw the strips of the GPUs in columns, which are filled one after the other."""
        per_column = math.ceil(len(self.rows) / self.columns)
        top = bottom = self.y
        for index, row in enumerate(self.rows):
            column, first = divmod(index, per_column)
            self.y = top if first == 0 else self.y
            self._strip(row, MARGIN + column * (MARGIN + LABEL + BAR))
            bottom = max(bottom, self.y)
        self.y = bottom + GAP

    def _strip(self, row: Row, x: float) -> None:
        several = f"{row.count} x " if row.count > 1 else ""
        middle, room = self.y + LANE / 2, LABEL - PAD
        self.text(x, middle - 0.09, room, [several + printable(row.gpu)], (9, 6.5), weight="bold")
        which = [f"GPU {ranges(row.gpus, most)}" for most in range(8, 0, -1)]
        self.text(x, middle + 0.09, room, which, (7.5, 6), FAINT)
        x, scale = x + LABEL, BAR / row.slots
        for start, size in row.idle:
            self._idle(x + start * scale, size, scale)
        for piece in row.slices:
            self._slice(piece, x, self.y + piece.lane * LANE, scale)
        self.box(x, self.y, BAR, row.lanes * LANE, fill=False, edgecolor=FAINT, linewidth=0.8)
        self.y += row.lanes * LANE + GAP

    def _idle(self, x: float, slots: int, scale: float) -> None:
        for slot in range(slots):
            box = x + slot * scale, self.y, scale, LANE
            self.box(*box, facecolor="#f3f4f6", edgecolor="#c3c8cf", hatch="////", linewidth=0)
            self.box(*box, fill=False, edgecolor="white", linewidth=1.2)
        self.text(x + PAD, self.y + 0.1, slots * scale - 2 * PAD, ["idle"], (6.5, 5.5), FAINT)

    def _slice(self, piece: SliceBox, x: float, y: float, scale: float) -> None:
        left, width = x + piece.start * scale, piece.size * scale
        self.box(left, y, width, LANE, facecolor="#f3f4f6", edgecolor=FAINT, linewidth=0.6)
        for replica in piece.replicas:
            self._replica(replica, x + replica.start * scale, y, replica.size * scale)
        first = piece.replicas[0].size * scale if piece.replicas else width
        style = self.drawing.styles[piece.replicas[0].workload] if piece.replicas else None
        colours = (style.text, "normal", style.pattern and style.colour) if style else (FAINT,)
        if piece.problems:
            self.box(left, y, width, LANE, fill=False, edgecolor=WRONG, linewidth=1.8, zorder=3)
        self.text(left + PAD, y + 0.1, first - 2 * PAD, [printable(piece.profile)], (6.5, 5.5), *colours)

    def _replica(self, replica: ReplicaBox, x: float, y: float, width: float) -> None:
        style, room = self.drawing.styles[replica.workload], width - 2 * PAD
        self.swatch(x, y, width, LANE, style)
        name, halo = [printable(replica.workload)], style.pattern and style.colour
        self.text(x + PAD, y + 0.26, room, name, (9, 6.5), style.text, "bold", halo)
        self.text(x + PAD, y + 0.42, room, details(replica), (7, 6), style.text, halo=halo)
        if replica.utilisation is not None:
            used, foot = width * min(1, replica.utilisation), y + LANE - 0.04
            self.box(x, foot, width, 0.04, facecolor="#ffffffa0", linewidth=0)
            self.box(x, foot, used, 0.04, facecolor=INK, linewidth=0)
        self.box(x, y, width, LANE, fill=False, edgecolor="white", linewidth=1.2)

    def _legend(self) -> None:
        """Draw the legend of the workloads, in as many columns as there is room for."""
        across, shown = int(self.room / SWATCH), self.drawing.workloads[:MOST_SWATCHES]
        for index, one in enumerate(shown):
            line, column = divmod(index, across)
            x, y, room = MARGIN + column * SWATCH, self.y + line * LINE, SWATCH - 0.45
            self.swatch(x, y + 0.03, 0.26, 0.26, one.style)
            self.text(x + 0.34, y + 0.09, room, [printable(one.name)], (8, 6), weight="bold")
            given = f"{plural(one.replicas, 'replica')} · {number(one.rate_rps)}/s · {one.processes:,} proc."
            self.text(x + 0.34, y + 0.235, room, [given], (7, 5.5), FAINT if one.replicas else WRONG)
            self._p99(one.name, x + 0.34, y + 0.325)
        self.y += math.ceil(len(shown) / across) * LINE + GAP

    def _p99(self, name: str, x: float, y: float) -> None:
        """Draw a bar of the replayed P99 divided by the SLO, with a mark at half its width for the SLO."""
        standing = self.drawing.standing
        if standing is None or name not in standing.p99_over_slo:
            return
        part, reach = standing.p99_over_slo[name], SWATCH - 1.0
        self.box(x, y, reach, 0.05, facecolor="#e4e7eb", linewidth=0)
        colour = GOOD if part <= 1 else WRONG
        self.box(x, y, reach * min(1.0, part / 2), 0.05, facecolor=colour, linewidth=0)
        self.box(x + reach / 2, y - 0.02, 0.012, 0.09, facecolor=INK, linewidth=0)
        shown = "dropped" if math.isinf(part) else f"P99 {part_of_slo(part)}"
        self.text(x + reach + 0.06, y + 0.025, 0.55, [shown], (6, 5), colour)

    def _notes(self) -> None:
        """Write what is not drawn, what the abbreviations mean, and what is wrong with the plan."""
        key = self.drawing.key
        standing = None if self.drawing.overview else self.drawing.standing
        bars = "P99 bars: the stroke is the SLO" if standing and standing.p99_over_slo else ""
        key = " · ".join(filter(None, (key, bars)))
        unnamed = len(self.drawing.workloads) - MOST_SWATCHES
        problems = self.drawing.problems
        notes = [
            *((note, INK) for note in self.drawing.notes),
            (f"and {plural(unnamed, 'more workload')}, named in their boxes" if unnamed > 0 else "", INK),
            (key if self.rows else "", FAINT),
            *((f"! {problem}", WRONG) for problem in problems[:MOST_PROBLEMS]),
            (f"! and {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else "", WRONG),
        ]
        for note, colour in notes:
            if note:
                self.text(MARGIN, self.y + 0.1, self.room, [note], (8, 6), colour)
                self.y += 0.2

    def box(self, x: float, y: float, width: float, height: float, **look: Any) -> None:
        """Add a rectangle."""
        self.axes.add_patch(Rectangle((x, y), width, height, **look))

    def swatch(self, x: float, y: float, width: float, height: float, style: FillStyle) -> None:
        """Add a rectangle in the colour and with the pattern of a workload."""
        self.box(x, y, width, height, facecolor=style.colour, linewidth=0)
        if style.pattern:
            look = {"hatch": HATCHES[style.pattern], "edgecolor": style.text + "48"}
            self.box(x, y, width, height, facecolor="none", linewidth=0, **look)

    def text(self, x: float, y: float, room: float, wordings: Sequence[str], sizes: tuple[float, float],
             colour: str = INK, weight: str = "normal", halo: str | int | None = None) -> None:
        """Write the longest of the wordings that fits into ``room`` inches, in a size between the two ``sizes`` in
        points; write nothing if none fits.
        """
        most, least = sizes
        wordings = [_writable(wording, weight) for wording in wordings]
        text = next((one for one in wordings if _width(one, weight) * least <= room), wordings[-1])
        text = shorten(text, lambda cut: _width(cut, weight) * least <= room)
        if not text:
            return
        written = self.axes.text(
            x, y, text, color=colour, va="center_baseline", parse_math=False, fontproperties=FONTS[weight]
        )
        written.set_fontsize(min(most, room / _width(text, weight)))
        written.set_path_effects([withStroke(linewidth=2.5, foreground=halo)] if halo else [])


def _writable(text: str, weight: str) -> str:
    """The text with a mark for every character that the font cannot draw."""
    return "".join(character if ord(character) in _characters(weight) else "�" for character in text)


@cache
def _characters(weight: str) -> Set[int]:
    return get_font(findfont(FONTS[weight])).get_charmap().keys()


def _width(text: str, weight: str) -> float:
    """The width of a text in inches per point of font size."""
    return sum(_advance(character, weight) for character in text) / 72


@cache
def _advance(character: str, weight: str) -> float:
    """The advance width of a character in ems (multiples of the font size)."""
    font = get_font(findfont(FONTS[weight]))
    font.set_size(100, 72)  # set every time, as matplotlib shares the font object
    return font.load_char(ord(character)).linearHoriAdvance / 65536 / 100
