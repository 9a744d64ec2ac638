"""Draws a purchase: the GPUs of every period by option, and the cost of every month by option."""

from __future__ import annotations

from datetime import datetime

import numpy as np
from matplotlib.figure import Figure

from provision.buying.purchase import Purchase

SIZE = (8, 5.6)
COLOURS = {"owned": "#5f6772", "reserved": "#0b5394", "on demand": "#c45a00", "spot": "#1b7837"}
HATCHES = {"owned": "", "reserved": "//", "on demand": "", "spot": ".."}
"""Options differ in black and white too."""
MOST_MONTHS = 24
"""The most months with their names below."""


def buying_figure(found: Purchase) -> Figure:
    """The picture of a purchase as a matplotlib figure."""
    figure = Figure(figsize=SIZE, layout="constrained")
    gpus, cost = figure.subplots(2)
    starts = [datetime.fromisoformat(one.start) for one in found.periods]
    ends = np.cumsum([one.hours for one in found.periods])
    days = np.concatenate([[0.0], ends]) / 24
    scale, unit = (1.0, "days") if days[-1] > 2 else (24.0, "hours")
    below = np.zeros(len(starts) + 1)
    for option, colour in COLOURS.items():
        many = np.array([sum(one.gpus.get(option, {}).values()) for one in found.periods], float)
        if many.any():
            top = below + np.append(many, many[-1])
            gpus.fill_between(days * scale, below, top, step="post", facecolor=colour, hatch=HATCHES[option],
                              edgecolor="white", linewidth=0, label=option)
            below = top
    gpus.set_ylabel("GPUs paid for")
    gpus.set_xlabel(f"{unit} from {found.periods[0].start[:16].replace('T', ' ')} ({found.zone})")
    gpus.set_ylim(bottom=0)
    for one in found.ends:
        if one.start is not None:
            at = (datetime.fromisoformat(one.start) - starts[0]).total_seconds() / 86400 * scale
            gpus.axvline(at, color="black", linestyle="--", linewidth=1)
            gpus.annotate(f"{one.what} no longer suffices", (at, 1), (4, -4), xycoords=("data", "axes fraction"),
                          textcoords="offset points", rotation=90, va="top", fontsize=7,
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})
    gpus.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(COLOURS))
    bottom, places = np.zeros(len(found.months)), np.arange(len(found.months))
    for option in found.options:
        height = np.array([row[option] for row in found.months], float)
        cost.bar(places, height, bottom=bottom, color=COLOURS[option], hatch=HATCHES[option], edgecolor="white")
        bottom += height
    step = max(1, -(-len(places) // MOST_MONTHS))
    cost.set_xticks(places[::step], [row["month"] for row in found.months][::step], rotation=45, fontsize=7)
    cost.set_ylabel("$ per month")
    cost.set_ylim(top=1.05 * bottom.max())
    for axes in (gpus, cost):
        axes.grid(alpha=0.3, axis="y")
    return figure
