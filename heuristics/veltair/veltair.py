"""VELTAIR and the schedulers with which it is compared; they serve DNN queries on a shared CPU (ASPLOS 2022, section
5). The machine is an analytical model (`provision.models.cpu.cpu`); the layers of its networks may have measured
efforts. A scheduler serves queries that arrive at random; its capacity is the highest rate at which 95 % of the queries
are within their QoS. The following is guessed. Planaria is represented by the layer-wise scheduling of section 3.2. AS
and FULL differ from it by Algorithm 2; AC and FULL differ from it by the code versions. The time of a query alone is
its time under the same scheduler without other queries.

VELTAIR's interference proxy: slowdown as a linear function of L3 counters (ASPLOS 2022, section 4.3).

From the paper: the interference level is a mean slowdown of layers; a linear model predicts it from the miss rate and
the accesses of L3. The paper reads hardware counters and measures slowdowns; here both come from the analytical model
of `provision.models.cpu.cpu`: a random tenth of all layers, in the versions fastest alone, runs next to a background of
a random level, and least squares fits the mean slowdowns. Every other sample is held out to judge the fit.

Simulates PREMA, the temporal multitasking with which VELTAIR is compared (Choi and Rhu, HPCA 2020, Algorithm 2).

From the paper: one query at a time has the whole CPU. Waiting queries collect tokens by their slowdown so far. The
threshold is the highest number of tokens, rounded down to a priority level; queries with at least that many tokens are
candidates, and the candidate with the shortest estimated remaining time runs. The following is guessed: all priorities
are equal, and the levels are 0, 1, 3 and 9; the running query may change after every layer at no cost, which favours
PREMA (the paper's checkpoints cost little).

A query's tokens are its slowdown so far. In the algorithm as printed (``added``) they are the sum of its slowdowns at
all past choices, plus its priority: tokens then grow with the square of the waiting time, and soon nearly all waiting
queries are candidates.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from provision.heuristics.veltair.events import ADAPTIVE, PRINTED, Log, Rules, counters, play
from provision.heuristics.veltair.profile import PLANNED, Catalogue, catalogue
from provision.heuristics.veltair.versions import MOST_VERSIONS, least_cores
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled, inner
from provision.models.cpu.cpu import PUBLISHED, Cpu, pressed
from provision.models.cpu.layers import Network

SAMPLES = 400
TOKEN_LEVELS = np.array([0.0, 1.0, 3.0, 9.0])
PRIORITY = 1.0


class CounterProxy(NamedTuple):
    """The fitted proxy: a slowdown is the sum of what ``counters`` gives (1, the miss rate, the accesses), times
    ``weights``. ``r_squared`` is computed on the held-out samples.
    """

    weights: Floats
    r_squared: float


def fit_proxy(catalogue: Catalogue, cpu: Cpu, seed: int = 0) -> CounterProxy:
    """The CounterProxy fitted for the networks of a Catalogue."""
    random = np.random.default_rng(seed)
    found = [_sample(catalogue, cpu, random) for _ in range(SAMPLES)]
    features, slowdowns = (np.array(part) for part in zip(*found, strict=True))
    weights = np.linalg.lstsq(features[::2], slowdowns[::2], rcond=None)[0]
    error = slowdowns[1::2] - features[1::2] @ weights
    return CounterProxy(weights, 1 - error.var() / slowdowns[1::2].var())


def _sample(catalogue: Catalogue, cpu: Cpu, random: np.random.Generator) -> tuple[Floats, float]:
    """(counters, mean slowdown) of random layers beside a background of a random level; the levels are distributed like
    LEVELS.
    """
    level, count = random.random() ** 2, len(catalogue.target_s) - 1
    layers = random.choice(count, max(count // 10, 1), replace=False)
    cores = [least_cores(catalogue.until_s[-1], catalogue.target_s, layer, layer + 1) for layer in layers]
    running = list(zip(catalogue.versions[-1, layers], cores, strict=True))
    found = np.array([pressed(version, number, level, cpu) for version, number in running])
    alone_s = np.array([pressed(version, number, 0.0, cpu)[0] for version, number in running])
    access_bps, miss_bps = found[:, 1:].sum(axis=0) / found[:, 0].sum()
    access_bps += level * cpu.cores * cpu.core_l3_bps
    return counters(access_bps, miss_bps + level * cpu.dram_bps), np.mean(found[:, 0] / alone_s)


WHOLE_MODEL = 10**6
PREMA, PREMA_PRINTED = "prema", "prema-printed"
SCHEDULERS = {
    "model-wise": Rules(WHOLE_MODEL, whole=True, compiled=False),
    "layer-wise": Rules(1, whole=False, compiled=False),
    "blocks-6": Rules(6, whole=False, compiled=False),
    "blocks-11": Rules(11, whole=False, compiled=False),
    "blocks-27": Rules(27, whole=False, compiled=False),
    PREMA: None,
    PREMA_PRINTED: None,
    "veltair-as": Rules(ADAPTIVE, whole=False, compiled=False),
    "veltair-ac": Rules(1, whole=False, compiled=True),
    "veltair-full": Rules(ADAPTIVE, whole=False, compiled=True),
    "veltair-printed": Rules(PRINTED, whole=False, compiled=True),
}
"""The rules of the schedulers by name; ``veltair-printed`` is FULL with Algorithm 2 as printed, ``prema-printed`` adds
up tokens.
"""
SATISFIED = 0.95
UNREACHABLE = 1.5
"""A multiple of the rate at which layer-wise work without interference fills all cores; no scheduler serves this
multiple.
"""
PRECISION = 0.01


def conflict_overhead_s(conflict_rate: float, units: float, cpu: Cpu) -> float:
    """The overhead in s that conflicts cause for a query of ``units`` units (section 3.2)."""
    return conflict_rate * units * cpu.growth_s


class Load(NamedTuple):
    """The queries of a run: the network of each query, and the arrival times at a rate of 1/s."""

    networks: Ints
    arrival: Floats


class QueryTimes(NamedTuple):
    """The results of serving the queries of a Load.

    Attributes
    ----------
    latency_s, qos_s, core_s
        By query: the time from arrival to end, the QoS time, and the core seconds.
    units, conflicts, peak
        The number of units, the number of units that found too few idle cores, and the most cores in use.
    """

    latency_s: Floats
    qos_s: Floats
    core_s: Floats
    units: int
    conflicts: int
    peak: int

    @property
    def satisfied(self) -> float:
        """The fraction of the queries within their QoS."""
        return float(np.mean(self.latency_s <= self.qos_s))

    @property
    def conflict_rate(self) -> float:
        """The fraction of the units that found too few idle cores."""
        return self.conflicts / self.units

    def by_conflicts_s(self, alone_s: Any, cpu: Cpu) -> float:
        """The latency, in s, that a query has if only the overhead of conflicts is added to its time alone, as section
        3.2 estimates it.
        """
        return alone_s + conflict_overhead_s(self.conflict_rate, self.units / len(self.latency_s), cpu)


class Machine:
    """A CPU and the networks that it serves.

    Parameters
    ----------
    networks
        The networks.
    cpu
        The CPU.
    planned
        The fraction of the QoS time in which schedulers plan to run a query.
    most
        The most versions of a layer.
    """

    def __init__(self, networks: Iterable[Network], cpu: Cpu = PUBLISHED, planned: float = PLANNED,
                 most: int = MOST_VERSIONS) -> None:
        self.networks, self.cpu = tuple(networks), cpu
        self.catalogue = catalogue(self.networks, cpu, planned, most)

    @cached_property
    def proxy(self) -> CounterProxy:
        """The CounterProxy for the interference among these networks."""
        return fit_proxy(self.catalogue, self.cpu)

    def load(self, served: Ints, count: int, seed: int, poisson: bool = True) -> Load:
        """A random Load of some networks; a network has queries in inverse proportion to its QoS time (section 5.1).

        Parameters
        ----------
        served
            The indices of the networks.
        count
            The number of queries.
        seed
            The seed of the random numbers.
        poisson
            Whether arrivals are a Poisson process; otherwise they are uniform over ``count`` seconds.
        """
        random = np.random.default_rng(seed)
        often = 1 / self.catalogue.qos_s[served]
        arrival = np.cumsum(random.exponential(size=count)) if poisson else np.sort(random.uniform(0, count, count))
        return Load(random.choice(served, count, p=often / often.sum()), arrival)

    def serve(self, scheduler: str, load: Load, rate_rps: float, most_late: int | None = None) -> QueryTimes:
        """The QueryTimes of a Load that is served at a rate; the simulation stops early after more than ``most_late``
        late queries.
        """
        count = len(load.networks)
        log = Log(np.full(count, np.inf), np.zeros(count), np.zeros(3, np.int64))
        start_s, late = load.arrival / rate_rps, count if most_late is None else most_late
        rules = SCHEDULERS[scheduler]
        if rules is None:
            play_prema(start_s, load.networks, self.catalogue, self.cpu.cores, late, log, scheduler == PREMA_PRINTED)
        else:
            play(start_s, load.networks, self.catalogue, rules, self.cpu, self.proxy.weights, late, log)
        return QueryTimes(log.finish_s - start_s, self.catalogue.qos_s[load.networks], log.core_s, *log.counts.tolist())

    def alone(self, scheduler: str) -> QueryTimes:
        """The QueryTimes of one query of each network, served one after the other."""
        count = len(self.networks)
        return self.serve(scheduler, Load(np.arange(count), np.cumsum(self.catalogue.qos_s) * 2), 1.0)

    def full_rps(self, load: Load) -> float:
        """The rate of a Load at which layer-wise work without interference or conflicts fills all cores."""
        return self.cpu.cores / self.alone("layer-wise").core_s[load.networks].mean()

    def capacity_rps(self, scheduler: str, load: Load) -> float:
        """The highest rate, in queries/s, at which the fraction SATISFIED of a Load's queries are within their QoS, by
        bisection.
        """
        most_late = int((1 - SATISFIED) * len(load.networks))
        low, high = 0.0, UNREACHABLE * self.full_rps(load)
        while high - low > PRECISION * high:
            middle = (low + high) / 2
            if self.serve(scheduler, load, middle, most_late).satisfied >= SATISFIED:
                low = middle
            else:
                high = middle
        return low


@compiled
def play_prema(
    arrival_s: Floats, networks: Ints, catalogue: Catalogue, cores: int, most_late: int, log: Log, added: bool = False
) -> None:
    """Simulate all queries, or stop when more than ``most_late`` of them have missed their QoS; see ``events.play``."""
    until_s = catalogue.until_s[-1, cores - 1]
    layer = np.array([catalogue.first[network] for network in networks])
    line = np.empty(len(arrival_s), np.int64)
    tokens = np.full(len(arrival_s), PRIORITY) if added else np.zeros(len(arrival_s))
    present = upcoming = late = 0
    now_s = 0.0
    while upcoming < len(arrival_s) or present > 0:
        if present == 0:
            now_s = max(now_s, arrival_s[upcoming])
        while upcoming < len(arrival_s) and arrival_s[upcoming] <= now_s:
            line[present] = upcoming
            present, upcoming = present + 1, upcoming + 1
        at = chosen(line[:present], layer, now_s, arrival_s, networks, catalogue.first, until_s, tokens, added)
        query = line[at]
        layer_s = until_s[layer[query] + 1] - until_s[layer[query]]
        now_s += layer_s
        layer[query] += 1
        log.core_s[query] += cores * layer_s
        if layer[query] == catalogue.first[networks[query] + 1]:
            log.finish_s[query] = now_s
            late += now_s - arrival_s[query] > catalogue.qos_s[networks[query]]
            line[at : present - 1] = line[at + 1 : present].copy()
            present -= 1
        if late > most_late:
            return


@inner
def chosen(
    line: Ints, layer: Ints, now_s: float, arrival_s: Floats, networks: Ints, first: Ints, until_s: Floats,
    tokens: Floats, added: bool
) -> int:
    """The position in the line of the query that runs next; ``tokens`` (queries,) are updated."""
    left_s = np.empty(len(line))
    for at, query in enumerate(line):
        begin_s, end_s = until_s[first[networks[query]]], until_s[first[networks[query] + 1]]
        worked_s = until_s[layer[query]] - begin_s
        slowdown = (now_s - arrival_s[query] - worked_s) / (end_s - begin_s)
        tokens[query] = tokens[query] + slowdown if added else slowdown
        left_s[at] = end_s - until_s[layer[query]]
    held = tokens[line]
    fewest = TOKEN_LEVELS[max(np.searchsorted(TOKEN_LEVELS, held.max(), side="right") - 1, 0)]
    return int(np.argmin(np.where(held >= min(fewest, held.max()), left_s, np.inf)))
