"""Tells which shapes of VELTAIR's figures our experiments reproduce, with our numbers beside the paper's."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from provision.heuristics.veltair.veltair import PREMA
from provision.studies.study import BLOCKS, EVALUATED, FIXED, LOADS, MIX, MOST_TENANTS, RATES_RPS
from provision.sweeps.table import TableRow

PAPER_QPS = {"light": 0.71, "medium": 0.62, "heavy": 0.45, MIX: 0.68}
PAPER_LATENCY = {"veltair-as": 1.6, "veltair-ac": 1.17, "veltair-full": 1.1}
NOTICEABLE = 0.005
"""Differences between fractions of queries that are smaller than this count as none."""
NEAR = 0.5
"""A gain comes out if it differs from the paper's by at most this part of the paper's."""
SATURATED = 0.02
"""A gain that grows by less than this has reached its end."""

DIFFERENCES = (
    (("3", "10", "14"),
     "Which blocks are best while there are few conflicts follows from rounding up to whole cores and from how each "
     "layer scales. Blocks of 11 layers lead those of 6 at every rate on every modelled CPU, and model-wise "
     "scheduling wastes few cores: targets go by operations, and the model's layers scale more alike over the cores "
     "than the published ones do."),
    (("12", "13", "14"),
     "In the model one version that bears interference is close to the best at every level for nearly all layers, "
     "where figure 6 has it slowest alone: compiling it gains, changing versions at run time gains little more. The "
     "versions picked need only keep a layer's target, and cost bert-large and tiny-yolo-v2 more core time than they "
     "save."),
    (("12",),
     "Queries of 100 ms and more lose little to overheads of 0.2 ms, so heavy loads leave little to win."),
    (("12",),
     "PREMA changes queries at no cost; all 64 cores take longer than 56 by the published times, which costs it most "
     "loads. The calibrated CPU has no such loss, and there PREMA serves more of the heavy ones."),
    (("13",),
     "The paper's time alone is the shortest possible, yet its scheduler takes the fewest cores that keep the QoS; "
     "here it is that of the same scheduler on an idle CPU, and latency_over_all_cores has the other."),
)
"""The reasons why numbers differ from the paper's, with the figures that they concern.

All of them follow from the model's stated assumptions.
"""


class Shape(NamedTuple):
    """A claim of the paper about a figure: its text, whether it holds here, our number and the paper's."""

    figure: int
    claim: str
    holds: bool
    ours: str
    paper: str


def shapes(found: Mapping[str, Sequence[TableRow]]) -> list[Shape]:
    """Judge the paper's claims on the figures that were made.

    Parameters
    ----------
    found
        The rows of each figure by its name, such as "3" or "14a".

    Returns
    -------
    list of Shape
    """
    judges = {"3": _shapes_3, "10": _shapes_10, "12": _shapes_12, "13": _shapes_13, "14a": _shapes_14a,
              "14b": _shapes_14b, "14c": _shapes_14c}
    judged = (shape for name, rows in found.items() for shape in judges[name](rows))
    return [shape._replace(holds=bool(shape.holds)) for shape in judged]


def differences(figures: Iterable[str]) -> list[str]:
    """The reasons why the numbers of these figures differ from the paper's."""
    return [text for about, text in DIFFERENCES if set(about) & set(figures)]


def _by(rows: Sequence[TableRow], value: str, *keys: str) -> dict[tuple[Any, ...], Any]:
    """The values of one column by the values of other columns in the same row."""
    return {tuple(row[key] for key in keys): row[value] for row in rows}


def _shapes_3(rows: Sequence[TableRow]) -> Iterator[Shape]:
    satisfied, latency_ms = (_by(rows, column, "rate_rps", "scheduler") for column in ("satisfied", "mean_latency_ms"))
    lead, swing = [], []
    for rate in RATES_RPS:
        model, layer, six, eleven, _ = (satisfied[rate, name] for name in FIXED)
        lead.append(max(six, eleven) - max(model, layer))
        swing.append(six - eleven)
    yield Shape(3, "blocks beat model-wise and layer-wise at every rate", min(lead) >= -NOTICEABLE < max(lead),
                f"{min(lead):+.1%} to {max(lead):+.1%} of the queries", "yes")
    changes = min(swing) < -NOTICEABLE and max(swing) > NOTICEABLE
    yield Shape(3, "of blocks of 6 and 11 layers, the best changes with the rate", changes,
                f"6 against 11: {min(swing):+.1%} to {max(swing):+.1%}", "6 at 150/s, 11 at 200/s")
    best = [BLOCKS[min(BLOCKS, key=lambda name: latency_ms[rate, name])] for rate in RATES_RPS]
    yield Shape(3, "with blocks of 27 too, the size with the least mean latency grows with the rate",
                best == sorted(best) and best[0] < best[-1],
                ", ".join(f"{size} from {RATES_RPS[best.index(size)]}/s" for size in sorted(set(best))), "as above")


def _shapes_10(rows: Sequence[TableRow]) -> Iterator[Shape]:
    plans = {row["plan"]: row for row in rows}
    blocks, layers = plans[f"blocks, {MOST_TENANTS - 1} sharing"], plans["layer-wise"]
    yield Shape(10, "blocks need no more than average plus threshold, below the layer-wise peak",
                blocks["peak_cores"] <= blocks["most_cores"] < layers["peak_cores"],
                f"{blocks['peak_cores']} of {blocks['most_cores']:g}; layer-wise {layers['peak_cores']}", "yes")
    gap = blocks["core_ms"] / layers["core_ms"] - 1
    yield Shape(10, "their core time is within 10 % of the layer-wise", gap < 0.1, f"{gap:+.1%}", "< 10 %")


def _shapes_12(rows: Sequence[TableRow]) -> Iterator[Shape]:
    gains, classes = _by(rows, "gain", "load", "scheduler"), _by(rows, "class", "load")
    for name, paper in PAPER_QPS.items():
        gain = np.mean([gains[load, "veltair-full"] for (load,), kind in classes.items() if kind == name])
        yield Shape(12, f"FULL serves more than layer-wise, about as in the paper: {name}",
                    abs(gain - paper) <= NEAR * paper, f"{gain:+.0%}", f"{paper:+.0%}")
    for (load,) in classes:
        alone, both = [gains[load, name] for name in EVALUATED[1:3]], gains[load, "veltair-full"]
        yield Shape(12, f"AS and AC together beat each alone: {load}", both > max(alone),
                    f"{alone[0]:+.0%}, {alone[1]:+.0%}, together {both:+.0%}", "+50 % to +68 % on the mix")
    lead = np.mean([gains[load, "veltair-ac"] - gains[load, "veltair-as"] for (load,) in classes])
    yield Shape(12, "AC gains more than AS, mean over loads", lead > 0, f"{lead:+.0%}", "yes")
    prema = [gains[load, PREMA] for (load,) in classes]
    yield Shape(12, "PREMA serves less than spatial sharing", max(prema) < 0,
                f"{min(prema):+.0%} to {max(prema):+.0%}", "generally")


def _shapes_13(rows: Sequence[TableRow]) -> Iterator[Shape]:
    ratios = {
        name: np.mean([row["latency_over_alone"] for row in rows if row["scheduler"] == name]) for name in PAPER_LATENCY
    }
    for name, paper in PAPER_LATENCY.items():
        yield Shape(13, f"latency of {name} over that alone", abs(ratios[name] - paper) <= 0.1,
                    f"{ratios[name]:.2f}", f"{paper}")
    lowest = min(ratios, key=ratios.__getitem__)
    yield Shape(13, "FULL has the lowest", lowest == "veltair-full", f"lowest: {lowest}", "yes")


def _shapes_14a(rows: Sequence[TableRow]) -> Iterator[Shape]:
    gaps = _by(rows, "core_gap", "system_load", "scheduler")
    blocks, model = (gaps[LOADS[-1], name] for name in ("veltair-as", "model-wise"))
    yield Shape(14, "blocks need less than 10 % more cores at 75 % load", blocks < 0.1, f"{blocks:+.1%}",
                "< 10 %")
    yield Shape(14, "model-wise needs over 10 % more", model > 0.1, f"{model:+.1%}", "+47 %")


def _shapes_14b(rows: Sequence[TableRow]) -> Iterator[Shape]:
    gains = [row["gain"] for row in rows]
    up_to_four = all(more > fewer + SATURATED for fewer, more in pairwise(gains[:4]))
    yield Shape(14, "each version up to the fourth gains, a fifth little",
                up_to_four and abs(gains[4] - gains[3]) < SATURATED,
                ", ".join(f"{gain:+.0%}" for gain in gains), "saturates after four")


def _shapes_14c(rows: Sequence[TableRow]) -> Iterator[Shape]:
    several, five = 1 - rows[0]["part"], rows[-1]["part"]
    yield Shape(14, "most layers need several versions, few five", several > 0.5 and five < 0.1,
                f"{several:.0%} several, {five:.0%} five", "80 % up to three, 3 % five")
