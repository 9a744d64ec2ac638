"""Draws how training converges: reward, late tasks and throughput by episode, as in figures 13 and 14 of InSS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from provision.draw.layout.boxes import DARK, PALETTE
from provision.models.base.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FAINT, GRID = "#5f6772", "#e3e6ea"
SIZE_INCHES = (11, 4.2)
SMOOTHED = 16
"""The number of episodes over which each point of a line is a mean."""
SETTINGS: dict[Any, Any] = {"axes.edgecolor": FAINT, "text.color": DARK, "axes.labelcolor": DARK}


def training_figure(history: Floats, title: str) -> Figure:
    """The picture of the history of a training as a matplotlib figure. ``history`` is (episodes, 3): mean reward of a
    step, fraction of late tasks, and throughput of all workloads in requests/s.
    """
    reward, late, throughput_rps = history.T
    with rc_context(SETTINGS):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
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
