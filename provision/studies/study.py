"""Repeats VELTAIR's evaluation (ASPLOS 2022) on modelled CPUs: the experiments of its figures 3, 10, 12, 13 and 14.

The numbers come from an analytical model of a CPU and a replay of scheduler decisions by discrete events; no code ran
on the paper's testbed for them. Therefore only the shapes of the figures can be compared: ``shapes`` tells which are
reproduced, with our numbers beside the paper's.

To figure 3 we add blocks of 27 layers, half of ResNet-50. The paper does not tell the following, which is guessed:

- In figure 3, arrival times are uniform over the run and the same for all schedulers. (With equally spaced arrivals,
  either no query would be late or all would be.)
- In figure 10, the threshold is what one to five queries of ResNet-50 leave idle.
- In figure 12, every network is served by itself, and all of them are served mixed.
- In figure 14a, the system load is the fraction of all cores that queries hold on average; it sets the thresholds.
  The figure compares the mean number of cores that a query holds while it runs.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from provision.heuristics.veltair.veltair import PREMA, PREMA_PRINTED, Load, Machine, QueryTimes
from provision.heuristics.veltair.versions import MOST_VERSIONS, block_end, blocks_of, first_pivot, threshold
from provision.models.base.arrays import Floats, Ints
from provision.models.cpu.cpu import PUBLISHED, Cpu
from provision.models.cpu.layers import Network, networks
from provision.sweeps.table import TableRow

BLOCKS = {"blocks-6": 6, "blocks-11": 11, "blocks-27": 27}
FIXED = ("model-wise", "layer-wise", *BLOCKS)
EVALUATED = ("layer-wise", "veltair-as", "veltair-ac", "veltair-full")
OTHERS = ("model-wise", "blocks-6", "blocks-11", PREMA, PREMA_PRINTED, "veltair-printed")
RATES_RPS = (50, 100, 125, 150, 175, 200, 225, 250, 300)
LOADS = (0.25, 0.5, 0.75)
MOST_TENANTS = 5
NETWORK = "resnet50"
MIX = "mix"
FIGURES = {"3": ("3",), "10": ("10",), "12": ("12",), "13": ("13",), "14": ("14a", "14b", "14c")}
"""The parts of every figure; ``Study.figure_p`` makes part p."""


class Study:
    """The experiments. Each is a method that returns rows; the methods share the capacities, which take most of the
    time.

    Parameters
    ----------
    queries
        The number of queries per run.
    seed
        The seed of the arrivals.
    report
        Called with 1 after every search for a capacity.
    served
        The networks by name, for instance as ``fit.measured_networks`` makes them; None for the shipped networks.
    cpu
        The CPU that serves the networks.
    """

    def __init__(self, queries: int = 2000, seed: int = 0, report: Callable[[int], None] = lambda done: None,
                 served: Mapping[str, Network] | None = None, cpu: Cpu = PUBLISHED) -> None:
        self.queries, self.seed, self.report, self.networks = queries, seed, report, served or networks()
        self.machine = Machine(self.networks.values(), cpu)
        self._capacities: dict[tuple[str, str], float] = {}

    def figure_3(self) -> list[TableRow]:
        """Rows of QoS satisfaction and mean latency of ResNet-50 by rate, for schedulers with fixed blocks."""
        load, at = self._load(NETWORK, poisson=False), self._served(NETWORK)[0]
        alone_s = {name: self.machine.alone(name).latency_s[at] for name in FIXED}
        return [
            {"rate_rps": rate, "scheduler": name, "satisfied": found.satisfied,
             "mean_latency_ms": 1e3 * found.latency_s.mean(), "conflict_rate": found.conflict_rate,
             "by_conflicts_ms": None if name == "model-wise" else
             1e3 * found.by_conflicts_s(alone_s[name], self.machine.cpu)}
            for rate in RATES_RPS
            for name in FIXED
            for found in [self.machine.serve(name, load, rate)]
        ]

    def figure_10(self) -> list[TableRow]:
        """Rows of the blocks of ResNet-50 and their cores, by the number of its queries that share the CPU."""
        at, cores = self._served(NETWORK)[0], self.machine.cpu.cores
        average = self.machine.catalogue.average[-1, at]
        plans = {"model-wise": (first_pivot, cores), "layer-wise": (block_end, cores)}
        for tenants in range(1, MOST_TENANTS + 1):
            idle = threshold(cores, average, tenants * average)
            plans |= {f"blocks, {tenants} sharing": (block_end, idle),
                      f"as printed, {tenants} sharing": (first_pivot, idle)}
        return [{"plan": name} | self._plan(at, cut, average + idle) for name, (cut, idle) in plans.items()]

    def figure_12(self) -> list[TableRow]:
        """Rows of the capacity of every scheduler on every load, and its gain over the layer-wise scheduler's."""
        return [
            {"load": load, "class": self._class(load), "scheduler": name,
             "capacity_rps": self._capacity(name, load), "gain": self._gain(name, load)}
            for load in (*self.networks, MIX)
            for name in (*EVALUATED, *OTHERS)
        ]

    def figure_13(self) -> list[TableRow]:
        """Rows of mean latencies at each scheduler's own capacity.

        They are relative to the latency of a query alone under the same scheduler, and to that of a query on all cores.
        """
        quickest_s = self.machine.alone(PREMA).latency_s
        return [
            {"load": load, "scheduler": name, "capacity_rps": self._capacity(name, load),
             "latency_over_alone": _mean_ratio(found, self.machine.alone(name).latency_s, served),
             "latency_over_all_cores": _mean_ratio(found, quickest_s, served)}
            for load in (*self.networks, MIX)
            for name in EVALUATED
            for served in [self._load(load)]
            for found in [self.machine.serve(name, served, self._capacity(name, load))]
        ]

    def figure_14a(self) -> list[TableRow]:
        """Rows of the mean number of cores above the layer-wise one, as a mean over networks, by the load that sets
        thresholds.
        """
        cores, average = self.machine.cpu.cores, self.machine.catalogue.average[-1]

        def mean_cores(cut: Any, idle: Any) -> Floats:
            return np.array([self._plan(at, cut, own + more)["mean_cores"]
                             for at, (own, more) in enumerate(zip(average, idle, strict=True))])

        whole = np.full(len(average), cores)
        least, model = mean_cores(block_end, whole), mean_cores(first_pivot, whole)
        rows = []
        for load in LOADS:
            blocks = mean_cores(block_end, [threshold(cores, own, load * cores) for own in average])
            rows += [{"system_load": load, "scheduler": name, "core_gap": np.mean(found / least) - 1}
                     for name, found in (("veltair-as", blocks), ("model-wise", model))]
        return rows

    def figure_14b(self) -> list[TableRow]:
        """Rows of the capacity of FULL on the mixed load, by the most versions that a layer may have."""
        load, rows = self._load(MIX), []
        for most in range(1, MOST_VERSIONS + 1):
            machine = Machine(self.networks.values(), self.machine.cpu, most=most)
            rows.append({"most_versions": most, "capacity_rps": machine.capacity_rps("veltair-full", load)})
            self.report(1)
        return [row | {"gain": row["capacity_rps"] / rows[0]["capacity_rps"] - 1} for row in rows]

    def figure_14c(self) -> list[TableRow]:
        """Rows of the fraction of the layers that have each number of versions."""
        counts = np.bincount(self.machine.catalogue.kept, minlength=MOST_VERSIONS + 1)
        return [{"versions": number, "part": counts[number] / counts.sum()} for number in range(1, MOST_VERSIONS + 1)]

    def _plan(self, at: int, cut: Any, most: float) -> TableRow:
        """One way to cut a network into blocks: the mean and largest number of cores, the core time in ms, and the
        blocks.
        """
        catalogue = self.machine.catalogue
        begin, last = catalogue.first[at : at + 2]
        until_s = catalogue.until_s[-1][:, begin : last + 1] - catalogue.until_s[-1][:, [begin]]
        target_s = catalogue.target_s[begin : last + 1] - catalogue.target_s[begin]
        blocks = blocks_of(cut, until_s, target_s, most)
        took_s = np.array([until_s[cores - 1, end] - until_s[cores - 1, start] for start, end, cores in blocks])
        return {
            "most_cores": min(float(most), self.machine.cpu.cores), "blocks": len(blocks),
            "mean_cores": np.average(blocks[:, 2], weights=took_s), "peak_cores": int(blocks[:, 2].max()),
            "core_ms": 1e3 * took_s @ blocks[:, 2], "cut": blocks.tolist(),
        }

    def _served(self, load: str) -> Ints:
        """The indices of the networks of a load."""
        names = list(self.networks)
        return np.arange(len(names)) if load == MIX else np.array([names.index(load)])

    def _load(self, load: str, poisson: bool = True) -> Load:
        return self.machine.load(self._served(load), self.queries, self.seed, poisson)

    def _class(self, load: str) -> str:
        return MIX if load == MIX else self.networks[load].weight

    def _capacity(self, name: str, load: str) -> float:
        if (name, load) not in self._capacities:
            self._capacities[name, load] = self.machine.capacity_rps(name, self._load(load))
            self.report(1)
        return self._capacities[name, load]

    def _gain(self, name: str, load: str) -> float:
        return self._capacity(name, load) / self._capacity("layer-wise", load) - 1


def searches(figures: Collection[str]) -> int:
    """The number of searches for a capacity that these figures need."""
    loads, versions = len(networks()) + 1, MOST_VERSIONS if "14" in figures else 0
    schedulers = len(EVALUATED + OTHERS) if "12" in figures else len(EVALUATED) if "13" in figures else 0
    return loads * schedulers + versions


def _mean_ratio(found: QueryTimes, alone_s: Floats, load: Load) -> float:
    return float(np.mean(found.latency_s / alone_s[load.networks]))


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
