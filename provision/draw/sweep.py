"""Draws sweeps: steps along one parameter, a shaded grid along two parameters, bars if values are not numbers.

Nothing is solved between two points of a sweep. But a plan for higher rates also serves lower rates, and a plan for
shorter SLOs also serves longer SLOs. Therefore, between two rates or two SLOs, the objective of the more demanding
point is drawn: its plan serves everything in between. If breakpoints were computed, they tell where exactly the
objective changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from provision.draw.output import plural
from provision.models.base.arrays import Floats
from provision.models.hardware.gpu import gpus_in
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.sweeps.breakpoints import Breakpoint
from provision.sweeps.table import TableRow

SIZE = (7.5, 4.2)
BEST, BOUND, NOW = "#0b5394", "#c45a00", "#5f6772"
MOST_NUMBERS = 14
"""The most ticks on an axis. A larger grid makes a larger picture, so that every cell has room for its number."""
MOST_CELLS = 40
"""The most columns or rows of a grid whose cells show numbers."""
CELL = (0.5, 0.3)
"""Width and height of a cell with its number, in inches."""
MOST_BARS = 40
HEADROOM = 1.08
LOW = 0.15
"""If an objective is below this fraction of the largest objective, its number of GPUs is written above its point
instead of below it.
"""
SIDES = {"rate": "pre", "headroom": "pre", "slo": "post", "safety": "post"}
"""How the step between two points is drawn, by parameter: "pre" with the objective of the larger value, "post" with
that of the smaller value.
"""


def sweep_figure(instance: Instance, base: TableRow, values: Mapping[str, Sequence[Any]], rows: Sequence[TableRow],
                 breakpoints: Mapping[str, Sequence[Breakpoint]]) -> Figure:
    """The picture of a sweep as a matplotlib figure.

    Parameters
    ----------
    instance
        The Instance that was varied.
    base
        The row of the unchanged instance.
    values
        The values of every parameter, by name.
    rows
        The rows of the sweep.
    breakpoints
        Breakpoints by parameter; they are marked if only one parameter was varied.
    """
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    unit = objective_of(instance).unit
    numeric = [name for name, column in values.items() if all(isinstance(value, float) for value in column)]
    if len(values) == 1 and numeric:
        _steps(axes, numeric[0], base, rows, breakpoints.get(numeric[0], []), unit)
    elif len(values) == len(numeric) == 2 and all(set(values) <= set(row) for row in rows):
        _grid(figure, axes, values, rows, unit)
    else:
        _bars(axes, values, rows, unit)
    axes.set_title(f"{instance.name}: what if", loc="left", fontsize=11, parse_math=False)
    return figure


def _steps(axes: Axes, name: str, base: TableRow, rows: Sequence[TableRow], breakpoints: Sequence[Breakpoint],
           unit: str) -> None:
    """Draw objective and bound along one parameter, with the number of GPUs of every step."""
    rows = sorted(rows, key=lambda row: float(row[name]))
    at = [row[name] for row in rows]
    best = np.array([row["objective"] for row in rows], float)
    bound = np.array([row["bound"] for row in rows], float)
    where = SIDES.get(name.partition(".")[0], "mid")
    axes.step(*_stepped(at, best, where, breakpoints), where="post", color=BEST, label="best plan, verified")
    axes.plot(at, best, "o", color=BEST, markersize=4)
    axes.plot(at, bound, "_", color=BOUND, markersize=11, markeredgewidth=1.8, label="proven bound")
    _counts(axes, at, rows, best, breakpoints)
    if base["objective"] is not None:
        axes.axhline(base["objective"], color=NOW, linestyle=":", label="as it is")
    for number, one in enumerate(breakpoints):
        label = "GPUs change" if number == 0 else None
        axes.axvline(one.above, color=NOW, linewidth=0.8, linestyle=(0, (1, 3)), label=label)
    served = np.isfinite(best)
    if not served.all():
        nothing = np.array(at)[~served]
        axes.plot(nothing, np.zeros(len(nothing)), "v", color=NOW, label="cannot be served", clip_on=False)
    axes.set_xlabel(_axis(name), parse_math=False)
    axes.set_ylabel(unit)
    axes.set_ylim(0, HEADROOM * axes.get_ylim()[1])
    axes.grid(alpha=0.3)
    axes.legend(framealpha=1, fontsize=8, loc="lower right")


def _stepped(at: Sequence[float], best: Floats, where: str,
             breakpoints: Sequence[Breakpoint]) -> tuple[list[float], list[float]]:
    """(starts, heights) of the steps to draw. A step starts at a known breakpoint; if there is none, at the point that
    SIDES gives, or half way between two points.

    The last step between two points has the height of the second point, since along prices the objective changes
    continuously.
    """
    starts, heights = [at[0]], [float(best[0])]
    for (low, high), value in zip(pairwise(at), best[1:].tolist(), strict=True):
        known = [one for one in breakpoints if low < one.above <= high]
        sure = {"pre": low, "post": high}.get(where, (low + high) / 2)
        for one in known[:-1]:
            starts.append(one.above)
            heights.append(math.nan if one.objective is None else one.objective)
        starts.append(known[-1].above if known else sure)
        heights.append(value)
    return [*starts, at[-1]], [*heights, heights[-1]]


def _counts(axes: Axes, at: Sequence[float], rows: Sequence[TableRow], best: Floats,
            breakpoints: Sequence[Breakpoint]) -> None:
    """Write the number of GPUs at the points where it changes; the text stands below the point, since the next step may
    rise above it.
    """
    points = [(x, row["gpus"], y) for x, row, y in zip(at, rows, best.tolist(), strict=True)]
    points += [(one.above, gpus_in(chain.from_iterable([name] * many for name, many in one.after.items())),
                one.objective) for one in breakpoints if one.objective is not None and isinstance(one.after, dict)]
    before, low = None, LOW * np.nanmax(best, initial=0)
    for x, gpus, y in sorted(points, key=itemgetter(0)):
        if gpus is not None and gpus != before:
            offset, side = (-7, "top") if y > low else (7, "bottom")
            axes.annotate(
                plural(gpus, "GPU"), (x, y), xytext=(0, offset), textcoords="offset points", ha="center", va=side,
                fontsize=7, color=BEST,
            )
        before = gpus


def _grid(figure: Figure, axes: Axes, values: Mapping[str, Sequence[Any]], rows: Sequence[TableRow], unit: str) -> None:
    """Draw the objective over two parameters as a shaded grid."""
    (x, columns), (y, lines) = values.items()
    cells = np.full((len(lines), len(columns)), np.nan)
    for row in rows:
        if row["objective"] is not None:
            cells[lines.index(row[y]), columns.index(row[x])] = row["objective"]
    image = axes.imshow(cells, origin="lower", aspect="auto", cmap="cividis")
    for set_ticks, column in ((axes.set_xticks, columns), (axes.set_yticks, lines)):
        shown = range(0, len(column), -(-len(column) // MOST_NUMBERS))
        set_ticks(list(shown), [f"{column[at]:g}" for at in shown], fontsize=8)
    if max(cells.shape) <= MOST_CELLS:
        sides = zip(SIZE, CELL, reversed(cells.shape), strict=True)
        width, height = (max(least, 2 + size * count) for least, size, count in sides)
        figure.set_size_inches(width, height)
        middle = np.nanmean(cells) if np.isfinite(cells).any() else 0
        for (line, column), value in np.ndenumerate(cells):
            text, colour = ("-", NOW) if np.isnan(value) else (f"{value:.4g}", "white" if value < middle else "black")
            axes.text(column, line, text, ha="center", va="center", fontsize=7, color=colour)
    axes.set_xlabel(_axis(x), parse_math=False)
    axes.set_ylabel(_axis(y), parse_math=False)
    figure.colorbar(image, ax=axes, label=unit)


def _bars(axes: Axes, values: Mapping[str, Sequence[Any]], rows: Sequence[TableRow], unit: str) -> None:
    """Draw a bar per point, for at most MOST_BARS points."""
    shown = rows[:MOST_BARS]
    labels = [", ".join(f"{name} {row[name]}" for name in values if name in row) for row in shown]
    heights = [row["objective"] or 0 for row in shown]
    bars = axes.barh(range(len(shown)), heights, color=BEST)
    texts = ["cannot be served" if row["objective"] is None else f"{row['objective']:.4g}" for row in shown]
    axes.bar_label(bars, texts, padding=3, fontsize=8)
    axes.set_yticks(range(len(shown)), labels, fontsize=8, parse_math=False)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(unit if len(shown) == len(rows) else f"{unit} (first {MOST_BARS} of {len(rows)} points)")


def _axis(name: str) -> str:
    """The label of the axis of a parameter."""
    kind, _, target = name.partition(".")
    what = {"rate": "request rate, times the stated one", "slo": "SLO, times the stated one",
            "price": "price per hour"}.get(kind, kind)
    return f"{what} ({target})" if target else what
