"""Draws a fit: predicted against measured latencies, and the mean error for every batch size and slice."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from provision.draw.layout.boxes import DARK, LIGHT, PALETTE
from provision.instances.importers.parvagpu_profiles import Profile
from provision.models.fitting.profile import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage


FAINT, GRID, ERROR = "#5f6772", "#e3e6ea", "#882255"
SIZE_INCHES = (12.5, 5.4)
MARKERS = "os^D"
BAND = 0.1
"""The relative error that the dashed lines beside the diagonal mark."""
SETTINGS: dict[Any, Any] = {"axes.edgecolor": FAINT, "text.color": DARK, "axes.labelcolor": DARK}


def fit_figure(profiles: Mapping[str, Profile], fits: Mapping[str, Fit], title: str) -> Figure:
    """The picture of the judged points of fits as a matplotlib figure, from the measured profile and Fit of every DNN.
    """
    with rc_context(SETTINGS):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        figure.suptitle(title)
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
        _agreement(left, profiles, fits)
        figure.colorbar(_errors(right, profiles, fits), ax=right, label="mean relative error, %")
    return figure


def _agreement(axes: Axes, profiles: Mapping[str, Profile], fits: Mapping[str, Fit]) -> None:
    """Draw predicted against measured batch latency, with a colour and marker per DNN."""
    measured = {dnn: profiles[dnn].points.latency_ms[fit.judged] for dnn, fit in fits.items()}
    styles = zip(cycle(PALETTE), cycle(MARKERS))
    for (dnn, fit), ((colour, _), marker) in zip(fits.items(), styles, strict=False):
        axes.scatter(measured[dnn], fit.predicted_ms, s=9, color=colour, marker=marker, linewidths=0, label=dnn)
    ends = np.array([min(map(np.min, measured.values())), max(map(np.max, measured.values()))])
    axes.plot(ends, ends, color=DARK, linewidth=0.8)
    for factor in (1 - BAND, 1 + BAND):
        axes.plot(ends, factor * ends, color=FAINT, linewidth=0.8, linestyle="--")
    axes.set(xscale="log", yscale="log", xlabel="measured batch latency, ms", ylabel="predicted, ms")
    axes.set_title(f"dashed: {BAND:.0%} off", fontsize="medium", color=FAINT)
    axes.grid(color=GRID)
    axes.legend(fontsize="small", frameon=False, markerscale=2)


def _errors(axes: Axes, profiles: Mapping[str, Profile], fits: Mapping[str, Fit]) -> AxesImage:
    """Draw the mean relative error, in percent, for every batch size and MIG profile; returns the image."""
    cells: dict[tuple[str, int], list[float]] = {}
    for dnn, fit in fits.items():
        for at, error in zip(fit.judged, fit.errors, strict=True):
            cells.setdefault(profiles[dnn].keys[at][:2], []).append(100 * error)
    names = list(dict.fromkeys(key[0] for profile in profiles.values() for key in profile.keys))
    batches = sorted({batch for _, batch in cells})
    means = np.array([[np.mean(cells.get((name, batch), np.nan)) for name in names] for batch in batches])
    image = axes.imshow(means, cmap=LinearSegmentedColormap.from_list("error", (LIGHT, ERROR)), vmin=0, aspect="auto")
    for (row, column), mean in np.ndenumerate(means):
        if not np.isnan(mean):
            colour = LIGHT if mean > 0.6 * np.nanmax(means) else DARK
            axes.text(column, row, f"{mean:.1f}", ha="center", va="center", color=colour, fontsize="small")
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(batches)), [str(batch) for batch in batches])
    axes.set(xlabel="slice", ylabel="batch size")
    axes.set_title("mean error over all DNNs and processes, %", fontsize="medium", color=FAINT)
    return image
