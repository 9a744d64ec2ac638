"""Draws comparisons of methods: mean objectives as bars with confidence intervals, and performance profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from provision.draw.boxes import PALETTE
from provision.models.base.arrays import Floats

DASHES = ("-", "--", "-.", ":")
"""Line styles, which tell methods apart even in black and white."""
THIN, WIDER = 1.4, 0.6
"""The width of the last line, and how much wider each earlier line is, so that earlier lines remain visible where lines
coincide.
"""
TIED = 1e-9
BAR = 0.8
"""The fraction of the distance between two instances that the bars of one instance take."""
PROFILE_IN = 5.0
BARS_IN = (3.5, 0.16)
"""The least width of the chart of bars, and its width per bar, in inches."""
BEYOND = 1.05
"""The factor by which the axis of the profile extends beyond the largest ratio."""


class Comparison(Protocol):
    """The properties of a comparison that are drawn."""

    @property
    def methods(self) -> Sequence[str]:
        """The names of the methods, in the order of the legend."""

    @property
    def refused(self) -> Sequence[str]:
        """The methods that could plan none of the instances."""

    @property
    def units(self) -> Mapping[str, str]:
        """The unit of the objective, by instance."""

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """A row per instance and method, with ``objective`` and ``objective_ci``, or ``violating`` in their place."""

    def ratios(self) -> Mapping[str, Floats]:
        """Each method's objectives divided by the best objective for the same instance and seed, in ascending order."""


def comparison_figure(table: Comparison) -> Figure:
    """The picture of a comparison as a matplotlib figure: bars on the left, the performance profile on the right."""
    methods = [method for method in table.methods if method not in table.refused]
    colours = {method: PALETTE[at % len(PALETTE)][0] for at, method in enumerate(methods)}
    width = max(BARS_IN[0], BARS_IN[1] * len(methods) * len(table.units))
    figure = Figure(figsize=(width + PROFILE_IN, 4.4), layout="constrained")
    bars, profile = figure.subplots(1, 2, width_ratios=(width, PROFILE_IN))
    _draw_bars(bars, table, colours)
    _draw_profile(profile, table, colours)
    handles, labels = bars.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(methods), 6), frameon=False)
    return figure


def _draw_bars(axes: Axes, table: Comparison, colours: dict[str, str]) -> None:
    """Draw a bar of the mean objective for every instance and method; that of plans that break SLOs is hatched."""
    rows = {(row["instance"], row["method"]): row for row in table.rows}
    width = BAR / max(len(colours), 1)
    for at, (method, colour) in enumerate(colours.items()):
        found = [(place, rows[name, method]) for place, name in enumerate(table.units) if (name, method) in rows]
        good = [(place, row["objective"], row["objective_ci"]) for place, row in found if row["objective"] is not None]
        broken = [(place, row["violating"], None) for place, row in found if "violating" in row]
        looks: tuple[dict[str, Any], ...] = (
            {"label": method, "color": colour, "edgecolor": "white"},
            {"label": f"{method}: breaks SLOs", "color": "white", "edgecolor": colour, "hatch": "////"},
        )
        for bars, look in zip((good, broken), looks, strict=True):
            if bars:
                places, heights, intervals = zip(*bars, strict=True)
                axes.bar(np.array(places) - BAR / 2 + (at + 0.5) * width, heights, width, capsize=2,
                         yerr=[interval or np.nan for interval in intervals], **look)
    axes.set_xticks(range(len(table.units)), list(table.units), rotation=20 if len(table.units) > 2 else 0,
                    ha="right" if len(table.units) > 2 else "center")
    units = sorted(set(table.units.values()))
    axes.set_ylabel(f"{' or '.join(units)}, mean and 95 % interval")
    axes.set_title("What the plans come to", loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_profile(axes: Axes, table: Comparison, colours: dict[str, str]) -> None:
    """Draw a line per method: the fraction of its runs within a factor of the best run for the same instance and seed.
    """
    ratios = table.ratios()
    finite = [ratio for values in ratios.values() for ratio in values[np.isfinite(values)].tolist()]
    end = max([1.01, *finite]) * BEYOND
    for at, (method, values) in enumerate(ratios.items()):
        if not len(values):
            continue
        best = float((values <= 1 + TIED).mean())
        behind = values[np.isfinite(values) & (values > 1 + TIED)]
        part = best + np.arange(1, len(behind) + 1) / len(values)
        axes.step([1.0, *behind, end], [best, *part, part[-1] if len(part) else best], where="post",
                  color=colours[method], linestyle=DASHES[at % len(DASHES)],
                  linewidth=THIN + (len(ratios) - at) * WIDER)
    axes.set_xlim(1, end)
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("within this factor of the best")
    axes.set_title("Performance profile: part of the runs", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
