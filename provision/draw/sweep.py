"""Sweeps as pictures: steps along one parameter, a shaded grid along two, bars where values are no numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from provision.draw.figures import check_picture, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from provision.instances.files.files import FilePath
    from provision.models.problem.instance import Instance
    from provision.sweeps.breakpoints import Breakpoint
    from provision.sweeps.table import TableRow

SIZE = (7.5, 4.2)
BEST, BOUND, NOW = "#0b5394", "#c45a00", "#5f6772"
MOST_NUMBERS = 14
"""In a grid of more columns or rows the cells hold no numbers."""
MOST_BARS = 40


def draw_sweep(
    path: FilePath, instance: Instance, base: TableRow, values: Mapping[str, Sequence[Any]], rows: Sequence[TableRow],
    breakpoints: Mapping[str, Sequence[Breakpoint]], force: bool = False,
) -> None:
    """Draw a sweep into a PNG or SVG file.

    Parameters
    ----------
    path
        Where to; the suffix is the format.
    instance
        The Instance that was varied.
    base
        The row of the instance as it is.
    values
        The values of every parameter by name.
    rows
        The rows of the sweep.
    breakpoints
        Breakpoints by parameter, marked where it is the only one.

    Raises
    ------
    InputError
        When the suffix is another one or the file cannot be written.
    """
    check_picture(path, force)
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    unit = instance.unit
    numeric = [name for name, column in values.items() if all(isinstance(value, float) for value in column)]
    if len(values) == 1 and numeric:
        _steps(axes, numeric[0], base, rows, breakpoints.get(numeric[0], []), unit)
    elif len(values) == len(numeric) == 2 and all(set(values) <= set(row) for row in rows):
        _grid(figure, axes, values, rows, unit)
    else:
        _bars(axes, values, rows, unit)
    axes.set_title(f"{instance.name}: what if", loc="left", fontsize=11, parse_math=False)
    write_figure(figure, path, force)


def _steps(
    axes: Axes, name: str, base: TableRow, rows: Sequence[TableRow], breakpoints: Sequence[Breakpoint], unit: str
) -> None:
    """Objective and bound along one parameter; no lines between points, where nothing was solved."""
    at = [row[name] for row in rows]
    best = np.array([row["objective"] for row in rows], float)
    bound = np.array([row["bound"] for row in rows], float)
    axes.plot(at, best, "o", color=BEST, markersize=6, label="best plan, verified")
    axes.plot(at, bound, "x", color=BOUND, markersize=8, label="proven bound")
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
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(framealpha=1, fontsize=8, loc="lower right")


def _grid(figure: Figure, axes: Axes, values: Mapping[str, Sequence[Any]], rows: Sequence[TableRow], unit: str) -> None:
    """Objective over two parameters."""
    (x, columns), (y, lines) = values.items()
    cells = np.full((len(lines), len(columns)), np.nan)
    for row in rows:
        if row["objective"] is not None:
            cells[lines.index(row[y]), columns.index(row[x])] = row["objective"]
    image = axes.imshow(cells, origin="lower", aspect="auto", cmap="cividis")
    for set_ticks, column in ((axes.set_xticks, columns), (axes.set_yticks, lines)):
        shown = range(0, len(column), -(-len(column) // MOST_NUMBERS))
        set_ticks(list(shown), [f"{column[at]:g}" for at in shown], fontsize=8)
    if max(cells.shape) <= MOST_NUMBERS:
        middle = np.nanmean(cells) if np.isfinite(cells).any() else 0
        for (line, column), value in np.ndenumerate(cells):
            text, colour = ("-", NOW) if np.isnan(value) else (f"{value:.4g}", "white" if value < middle else "black")
            axes.text(column, line, text, ha="center", va="center", fontsize=7, color=colour)
    axes.set_xlabel(_axis(x), parse_math=False)
    axes.set_ylabel(_axis(y), parse_math=False)
    figure.colorbar(image, ax=axes, label=unit)


def _bars(axes: Axes, values: Mapping[str, Sequence[Any]], rows: Sequence[TableRow], unit: str) -> None:
    """One bar per point, the first of them where there are many."""
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
    """A parameter as the label of an axis."""
    kind, _, target = name.partition(".")
    what = {"rate": "request rate, times the stated one", "slo": "SLO, times the stated one",
            "price": "price per hour"}.get(kind, kind)
    return f"{what} ({target})" if target else what
