"""Draws what happened over time: in a search, and in a replay of changing demand.

The figure of a search shows how the best plan and the bound approached each other. The figure of a replay shows the
demand, the GPUs under every policy, and the slices changed so far.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from provision.instances.files.demand import Demand
from provision.models.base.arrays import Floats
from provision.models.base.clock import now_s
from provision.models.plans.result import Result
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent
from provision.replanning.trace import Window

SIZE = (8, 4)
PLAN, BOUND = "#0b5394", "#c45a00"


class Moment(NamedTuple):
    """What a search knew after some seconds: the objective of its best plan, and its bound; None if there is none."""

    seconds: float
    objective: float | None
    bound: float | None


class Trace:
    """Records the incumbents of a search that begins now; it is called with each.

    Parameters
    ----------
    show
        Called with each as well.
    """

    def __init__(self, show: Callable[[Incumbent], None] = lambda news: None) -> None:
        self.started = now_s()
        self.show = show
        self.moments: list[Moment] = []

    def __call__(self, news: Incumbent) -> None:
        """Record what is known now."""
        self.add(news.objective, news.bound)
        self.show(news)

    def add(self, objective: float | None, bound: float | None) -> None:
        """Record an objective and a bound; what is None, or worse than before, is as before."""
        self.moments.append(Moment(now_s() - self.started, objective, bound))

    def figure(self, instance: Instance, result: Result) -> Figure:
        """The figure of the search, whose answer is the result."""
        self.add(result.objective, result.bound)
        return convergence_figure(instance, f"{instance.name}, {result.method}: {result.status}", self.best(instance))

    def best(self, instance: Instance) -> list[Moment]:
        """The best objective and the tightest bound at every moment."""
        goal, found = objective_of(instance), []
        objective: float | None = None
        bound: float | None = None
        for moment in self.moments:
            objective = moment.objective if goal.better(moment.objective, objective) else objective
            bound = moment.bound if goal.tighter(moment.bound, bound) else bound
            found.append(Moment(moment.seconds, objective, bound))
        return found


def convergence_figure(instance: Instance, title: str, moments: Sequence[Moment]) -> Figure:
    """The figure of a search, which knew this at these moments: two lines of steps that meet when the plan is proven.
    """
    seconds = [moment.seconds for moment in moments]
    plans, bounds = (np.array([np.nan if value is None else value for value in column], float)
                     for column in list(zip(*moments, strict=True))[1:])
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    axes.fill_between(seconds, plans, bounds, step="post", color="#5f6772", alpha=0.12, linewidth=0)
    for name, values, colour, dashes in (("best plan", plans, PLAN, "-"), ("bound", bounds, BOUND, "--")):
        axes.step(seconds, values, where="post", color=colour, linestyle=dashes, label=name, linewidth=1.8)
        axes.plot(seconds[-1:], values[-1:], "o", color=colour, markersize=4)
        if np.isfinite(values[-1]):
            above = (name == "best plan") == (objective_of(instance).sense > 0)
            axes.annotate(f"{name} {values[-1]:,.6g}", (seconds[-1], values[-1]), color=colour, ha="right",
                          va="bottom" if above else "top", xytext=(-6, 5 if above else -5), textcoords="offset points")
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel("seconds")
    axes.set_ylabel(objective_of(instance).unit)
    axes.set_xlim(left=0)
    axes.margins(y=0.15)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


TRACE_SIZE = (8, 6.4)
STYLES = (("#0b5394", "-"), ("#c45a00", "--"), ("#5f6772", ":"), ("#1b7837", "-."), ("#762a83", (0, (5, 1, 1, 1))))
"""Pairs of a colour and a line style; lines differ even in black and white."""


def trace_figure(demand: Demand, windows: Mapping[str, Sequence[Window]]) -> Figure:
    """The picture of a replayed demand as a matplotlib figure; ``windows`` has the Windows of the replay of every
    policy, by its name.
    """
    figure = Figure(figsize=TRACE_SIZE, layout="constrained")
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
