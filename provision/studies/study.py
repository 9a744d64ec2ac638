"""Repeats VELTAIR's evaluation (ASPLOS 2022) on modelled CPUs: the experiments of its figures 3, 10, 12, 13 and 14.

The numbers come from an analytical model of a CPU and a replay of scheduler decisions by discrete events; no code ran
on the paper's testbed for them. Therefore only the shapes of the figures can be compared: ``shapes`` tells which are
reproduced.

To figure 3 we add blocks of 27 layers, half of ResNet-50. The paper does not tell the following, which is guessed:

- In figure 3, arrival times are uniform over the run and the same for all schedulers. (With equally spaced arrivals,
  either no query would be late or all would be.)
- In figure 10, the threshold is what one to five queries of ResNet-50 leave idle.
- In figure 12, every network is served by itself, and all of them are served mixed.
- In figure 14a, the system load is the fraction of all cores that queries hold on average; it sets the thresholds.
  The figure compares the mean number of cores that a query holds while it runs.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

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
