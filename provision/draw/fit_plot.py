"""Draws a fit: predicted against measured latencies, and the mean error for every batch size and slice; and how
training converges: reward, late tasks and throughput by episode, as in figures 13 and 14 of InSS.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from provision.draw.boxes import DARK, LIGHT, PALETTE
from provision.instances.importers.parvagpu_profiles import Profile
from provision.models.base.arrays import Floats
from provision.models.fitting.profile import Fit

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


TRAINING_INCHES = (11, 4.2)
SMOOTHED = 16
"""The number of episodes over which each point of a line is a mean."""


def training_figure(history: Floats, title: str) -> Figure:
    """The picture of the history of a training as a matplotlib figure. ``history`` is (episodes, 3): mean reward of a
    step, fraction of late tasks, and throughput of all workloads in requests/s.
    """
    reward, late, throughput_rps = history.T
    with rc_context(SETTINGS):
        figure = Figure(figsize=TRAINING_INCHES, layout="constrained")
        figure.suptitle(title)
        left, right = figure.subplots(1, 2)
        _line(left, reward, "mean reward of a step", PALETTE[4][0])
        _line(right, 100 * late, "late tasks, %", PALETTE[6][0])
        _line(right.twinx(), throughput_rps, "throughput, requests/s", PALETTE[2][0])
        for axes in (left, right):
            axes.set_xlabel("episode")
            axes.grid(color=GRID)
    return figure


def _line(axes: Axes, values: Floats, label: str, colour: str) -> None:
    """Draw values as dots and their moving mean as a line."""
    episodes = np.arange(1, len(values) + 1)
    several = min(SMOOTHED, len(values))
    axes.plot(episodes, values, ".", markersize=2, color=colour, alpha=0.4)
    axes.plot(episodes[several - 1 :], np.convolve(values, np.ones(several) / several, "valid"), color=colour)
    axes.set_ylabel(label, color=colour)
