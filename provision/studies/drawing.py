"""Draws VELTAIR's figures from the rows of our experiments: lines over rates and loads, bars by load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from provision.draw.figures import write_figure
from provision.sweeps.table import TableRow

STYLES = {
    "model-wise": ("#5f6772", ":", "s"), "layer-wise": ("#c45a00", "--", "o"), "blocks-6": ("#1b7837", "-", "^"),
    "blocks-11": ("#762a83", "-.", "v"), "blocks-27": ("#0b5394", "-", "D"),
    "veltair-as": ("#1b7837", "-", "^"), "veltair-ac": ("#762a83", "-.", "v"), "veltair-full": ("#0b5394", "-", "D"),
}
"""Colour, dashes and marker of every scheduler; with all three, lines also differ when printed without colour."""
ADAPTED = ("veltair-as", "veltair-ac", "veltair-full")
PLANS = {"layer-wise": "#c45a00", "model-wise": "#5f6772", "blocks, 4 sharing": "#0b5394"}
BEST = "#0b5394"
BAR = 0.2


def draw_veltair(found: Mapping[str, Sequence[TableRow]], folder: Path, force: bool = False) -> list[Path]:
    """Write a picture per figure into a folder; return the paths of the pictures.

    Parameters
    ----------
    found
        The rows of each figure by its name.
    folder
        The folder; the pictures are called figure-3.png and so on.

    Raises
    ------
    InputError
        If a picture exists and ``force`` is not set, or if a picture cannot be written.
    """
    painters: dict[str, Callable[..., None]] = {
        "3": _figure_3, "10": _figure_10, "12": _figure_12, "13": _figure_13, "14": _figure_14
    }
    paths = []
    for name in dict.fromkeys(key.rstrip("abc") for key in found):
        rows = [part for key, part in found.items() if key.rstrip("abc") == name]
        figure = Figure(figsize=(4 * max(2, len(rows)), 3.6), layout="constrained")
        painters[name](figure, *rows)
        paths.append(folder / f"figure-{name}.png")
        write_figure(figure, paths[-1], force)
    return paths


def _figure_3(figure: Figure, rows: Sequence[TableRow]) -> None:
    left, right = figure.subplots(1, 2)
    for axes, column, label in ((left, "satisfied", "queries within their QoS"),
                                (right, "mean_latency_ms", "mean latency, ms (log)")):
        _lines(axes, rows, "rate_rps", column)
        axes.set_xlabel("ResNet-50 queries/s")
        axes.set_ylabel(label)
    left.set_ylim(0, 1.05)
    right.set_yscale("log")
    left.legend(fontsize=8)


def _figure_10(figure: Figure, rows: Sequence[TableRow]) -> None:
    left, right = figure.subplots(1, 2)
    plans = {row["plan"]: row for row in rows}
    for name, colour in PLANS.items():
        begin, _, cores = np.array(plans[name]["cut"]).T
        last = plans[name]["cut"][-1][1]
        left.stairs(cores, [*begin, last], color=colour, label=name, linewidth=1.5, baseline=None)
    left.set_xlabel("layer of ResNet-50")
    left.set_ylabel("cores")
    left.set_ylim(bottom=0)
    left.legend(fontsize=8)
    at = np.arange(len(rows))
    right.barh(at - BAR, [row["mean_cores"] for row in rows], 2 * BAR, color=BEST, label="mean")
    right.barh(at + BAR, [row["peak_cores"] for row in rows], 2 * BAR, color="#c45a00", label="peak")
    right.set_yticks(at, [row["plan"] for row in rows], fontsize=7)
    right.invert_yaxis()
    right.set_xlabel("cores of one ResNet-50")
    right.legend(fontsize=8)


def _figure_12(figure: Figure, rows: Sequence[TableRow]) -> None:
    axes = figure.subplots()
    _bars(axes, [row for row in rows if row["scheduler"] in ADAPTED], "gain", "{:+.0%}")
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_ylabel("QPS above layer-wise")
    axes.yaxis.set_major_formatter("{x:+.0%}")


def _figure_13(figure: Figure, rows: Sequence[TableRow]) -> None:
    axes = figure.subplots()
    _bars(axes, [row for row in rows if row["scheduler"] in ADAPTED], "latency_over_alone", "{:.2f}")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_ylabel("mean latency over that alone")


def _figure_14(figure: Figure, gaps: Sequence[TableRow], versions: Sequence[TableRow],
               counts: Sequence[TableRow]) -> None:
    left, middle, right = figure.subplots(1, 3)
    _lines(left, gaps, "system_load", "core_gap")
    left.axhline(0.1, color="black", linewidth=0.8)
    left.set_ylim(-0.05, max(0.15, *(1.1 * row["core_gap"] for row in gaps)))
    left.set_xlabel("system load")
    left.set_ylabel("mean cores above layer-wise")
    left.legend(fontsize=8)
    middle.plot([row["most_versions"] for row in versions], [row["gain"] for row in versions], "o-", color=BEST)
    middle.set_xlabel("most versions of a layer")
    middle.set_ylabel("QPS of FULL above one version")
    right.bar([row["versions"] for row in counts], [row["part"] for row in counts], color=BEST)
    right.set_xlabel("versions of a layer")
    right.set_ylabel("part of the layers")
    for axes in (left, middle, right):
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.grid(alpha=0.3)
    left.xaxis.set_major_formatter("{x:.0%}")


def _lines(axes: Axes, rows: Sequence[TableRow], x: str, y: str) -> None:
    """Draw a line per scheduler."""
    for name in dict.fromkeys(row["scheduler"] for row in rows):
        colour, dashes, marker = STYLES[name]
        points = [(row[x], row[y]) for row in rows if row["scheduler"] == name]
        axes.plot(*zip(*points, strict=True), color=colour, linestyle=dashes, marker=marker, markersize=4, label=name)
    axes.grid(alpha=0.3)


def _bars(axes: Axes, rows: Sequence[TableRow], column: str, text: str) -> None:
    """Draw a group of bars per load, with a bar per scheduler."""
    loads = list(dict.fromkeys(row["load"] for row in rows))
    names = list(dict.fromkeys(row["scheduler"] for row in rows))
    for number, name in enumerate(names):
        values = [row[column] for row in rows if row["scheduler"] == name]
        at = np.arange(len(loads)) + (number - (len(names) - 1) / 2) * 1.4 * BAR
        bars = axes.bar(at, values, 1.3 * BAR, color=STYLES[name][0], label=name)
        axes.bar_label(bars, [text.format(value) for value in values], fontsize=6)
    axes.set_xticks(range(len(loads)), loads, fontsize=7)
    axes.grid(alpha=0.3, axis="y")
    axes.legend(fontsize=8, ncols=len(names), loc="lower center", bbox_to_anchor=(0.5, 1))
