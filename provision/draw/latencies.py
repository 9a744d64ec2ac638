"""Draws the latencies of a simulation: for every workload, the fraction of requests that take longer than each latency.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from provision.draw.output import number, plural, printable, shorten
from provision.models.plans.simulation_report import TAIL_LEVELS, TARGET, SimulatedWorkload, SimulationReport

MOST_CHARTS = 48
"""The most charts in a picture; more would be too small to read. The workloads with the largest P99 relative to their
SLO are drawn.
"""
MOST_LETTERS = 24
ACROSS, WIDTH, HEIGHT, TITLE = 4, 3.2, 2.3, 0.7
"""The number of charts in a row; the width and height of a chart and the height of the title, in inches."""
LEFT, GAP, BELOW, ABOVE = 0.5, 0.2, 0.42, 0.28
"""The room around the axes of a chart, in inches."""
INK, FAINT, LIMIT, GOOD, WRONG = "#16191d", "#5f6772", "#9aa1ab", "#1b6ca8", "#c1121f"
SETTINGS: dict[Any, Any] = {"font.size": 7, "axes.edgecolor": LIMIT, "text.parse_math": False}


def latencies_figure(report: SimulationReport) -> Figure:
    """The picture of the latencies of a SimulationReport."""
    with rc_context(SETTINGS):
        return _figure(report, sorted(report.workloads, key=strain, reverse=True)[:MOST_CHARTS])


def strain(workload: SimulatedWorkload) -> float:
    """The P99 divided by the SLO; infinite if the P99 does not exist because of dropped requests, 0 without requests.
    """
    if not workload.offered_rps:
        return 0.0
    return math.inf if workload.p99.mean_ms is None else workload.p99.mean_ms / workload.slo_ms


def _figure(report: SimulationReport, shown: Sequence[SimulatedWorkload]) -> Figure:
    across, down = min(ACROSS, len(shown)), math.ceil(len(shown) / ACROSS)
    width, height = max(across, 2) * WIDTH, down * HEIGHT + TITLE
    figure = Figure(figsize=(width, height), facecolor="white")
    figure.text(0.15 / width, 1 - 0.22 / height, _headline(report), size=12, weight="bold", color=INK, va="center")
    figure.text(0.15 / width, 1 - 0.5 / height, _key(report, shown), size=8, color=FAINT, va="center")
    for at, workload in enumerate(shown):
        row, column = divmod(at, across)
        x, y = column * WIDTH + LEFT, height - TITLE - (row + 1) * HEIGHT + BELOW
        wide, high = WIDTH - LEFT - GAP, HEIGHT - BELOW - ABOVE
        _chart(figure.add_axes((x / width, y / height, wide / width, high / height)), workload)
    return figure


def _headline(report: SimulationReport) -> str:
    over, count = sum(not one.ok for one in report.workloads), plural(len(report.workloads), "workload")
    verdict = f"{over} of {count} over the SLO" if over else "every P99 within its SLO"
    return f"{_short(report.instance)}: {verdict}"


def _key(report: SimulationReport, shown: Sequence[SimulatedWorkload]) -> str:
    hidden = len(report.workloads) - len(shown)
    more = f" · {plural(hidden, 'calmer workload')} not drawn" if hidden else ""
    return (
        f"part of the requests that take longer, over {report.settings.seconds:g} s of arrivals · "
        f"dashed: SLO · dot: P99{more}"
    )


def _chart(axes: Axes, workload: SimulatedWorkload) -> None:
    """Draw the fraction of requests beyond each latency, with the SLO and the P99."""
    colour = GOOD if workload.ok else WRONG
    points = [(ms, 1 - level) for ms, level in zip(workload.tail_ms, TAIL_LEVELS, strict=True) if ms is not None]
    reach = max([workload.slo_ms, *(ms for ms, _ in points)]) if workload.offered_rps else workload.slo_ms
    axes.axvline(workload.slo_ms, color=INK, linestyle="--", linewidth=1)
    axes.axhline(1 - TARGET, color=LIMIT, linewidth=0.5)
    if workload.offered_rps:
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.5)
    if workload.p99.mean_ms is not None:
        axes.plot(workload.p99.mean_ms, 1 - TARGET, "o", color=colour, markersize=4, clip_on=False)
    axes.set(xlim=(0, 1.05 * reach), ylim=(1e-4, 1.2), yscale="log", xlabel="ms")
    axes.set_yticks([1, 0.1, 0.01, 0.001, 0.0001], ["all", "10 %", "1 %", "0.1 %", "0.01 %"])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(_caption(workload), size=8, color=INK if workload.ok else WRONG, loc="left")


def _caption(workload: SimulatedWorkload) -> str:
    name = _short(workload.workload)
    if not workload.offered_rps:
        return f"{name}: no requests"
    p99 = "dropped, SLO" if workload.p99.mean_ms is None else f"{number(workload.p99.mean_ms)} of"
    return f"{name}: P99 {p99} {number(workload.slo_ms)} ms"


def _short(name: str) -> str:
    """A name, shortened so that it fits into a chart's title."""
    return shorten(printable(name), lambda text: len(text) <= MOST_LETTERS)
