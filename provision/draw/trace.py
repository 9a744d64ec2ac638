"""Draws a replay of changing demand: the demand, the GPUs under every policy, and the slices changed so far."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from provision.instances.files.demand import Demand
from provision.models.base.arrays import Floats
from provision.replanning.trace import Window

SIZE = (8, 6.4)
STYLES = (("#0b5394", "-"), ("#c45a00", "--"), ("#5f6772", ":"), ("#1b7837", "-."), ("#762a83", (0, (5, 1, 1, 1))))
"""Pairs of a colour and a line style; lines differ even in black and white."""


def trace_figure(demand: Demand, windows: Mapping[str, Sequence[Window]]) -> Figure:
    """The picture of a replayed demand as a matplotlib figure; ``windows`` has the Windows of the replay of every
    policy, by its name.
    """
    figure = Figure(figsize=SIZE, layout="constrained")
    rates, gpus, changes = figure.subplots(3, sharex=True)
    scale, unit = (3600, "h") if demand.times_s[-1] - demand.times_s[0] > 7200 else (60, "min")
    hours = (np.append(demand.times_s, demand.times_s[-1] + demand.window_s) - demand.times_s[0]) / scale
    rates.step(hours, _to_the_end(demand.rates_rps.sum(axis=1)), where="post", color="black", linewidth=1)
    rates.set_ylabel("demand, requests/s")
    for at, (name, found) in enumerate(windows.items()):
        colour, dashes = STYLES[at % len(STYLES)]
        style = {"where": "post", "color": colour, "linestyle": dashes, "label": name}
        gpus.step(hours, _to_the_end([one.gpus for one in found]), **style)
        moved = (one.slices_destroyed + one.slices_created for one in found[1:])
        changes.step(hours, _to_the_end(list(accumulate(moved, initial=0))), **style)
    gpus.set_ylabel("GPUs")
    changes.set_ylabel("slices changed so far")
    changes.set_xlabel(f"time, {unit}")
    for axes in (rates, gpus, changes):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    changes.legend(framealpha=1, fontsize=8, loc="upper left")
    return figure


def _to_the_end(values: ArrayLike) -> Floats:
    """The values at the starts of windows, with the last value repeated for the end of the last window."""
    return np.append(values, np.asarray(values)[-1])
