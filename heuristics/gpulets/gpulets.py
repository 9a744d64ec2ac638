"""gpu-lets' elastic partitioning (ATC 2022, Algorithm 1).

A *gpu-let* is a share of a GPU on which one workload runs, or several workloads run in turns. The following is from the
paper:

1. Workloads are assigned in descending order of rate (line 3), each until its whole rate has gpu-lets (lines 5-17).
2. The wanted size is the smaller of the most efficient share and the least required share (lines 9-11).
3. The smallest free gpu-let of at least this size is taken; a free GPU is split for it (lines 20-26, SPLIT).
4. The batch is chosen and interference is checked (lines 27-30).
5. If an allocated gpu-let can take the rate in turns with its other workloads, it is used instead and the split is
   undone (lines 33-37, MERGE and REVERTSPLIT).

Where the paper is silent, this module does the following:

- A gpu-let carries its rate if duty cycle + execution time is within the SLO (section 2.2); it takes the smallest
  batches for which this holds.
- The most efficient share is the upper end of the steepest segment of the curve of affordable rate over share. It is
  never the whole GPU, and a segment that raises the rate by less than 5 % does not count (as in the public program).
- The least required share is computed for the rate that is still to be assigned; it is the whole GPU if no share is
  enough.
- The interference check covers the gpu-lets on both sides of a GPU, each beside the worst of the workloads that run in
  turns on the other side.
- A gpu-let gets the largest rate with which it and its neighbour meet their SLOs. Beside a free part it gets the rate
  that it can carry beside the worst workload that might come there.
- Allocated gpu-lets are tried from the first GPU on. If no free gpu-let is left, each takes as much of the rate as it
  can (as in the public program).
- The memory of all replicas on a GPU counts.

``gpulets-without-interference`` is the paper's plain gpulet: it ignores interference; if the data predicts that its
plan misses an SLO, the outcome is ``unknown``, with this reason. ``gpulets-published`` has the settings of the public
program: its tolerances, and the reserve by which it plans latencies longer than they are. All are parameters of all
three methods; a plan that leaves out some rate because of the tolerances is ``unknown`` too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from provision.formulations.pricing.temporal.tables import ALONE
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import best_segments
from provision.heuristics.gpulets.plans import FEATURES, GpuletTables, outcome
from provision.models.base.arrays import Floats
from provision.models.base.objects import known
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome, Search

SHORT = 1e-6
"""A workload counts as carried if it lacks at most this fraction of its rate."""


class Tolerances(NamedTuple):
    """The tolerances by which a plan of gpu-lets may miss rates and SLOs; the defaults allow nothing.

    ``served_share`` is the fraction of a rate that must be assigned. Latencies may be up to ``slo_factor`` times the
    SLO. Once a workload has a gpu-let, a rest of at most ``left_over_rps`` requests/s is dropped. At most
    ``models_per_part`` workloads run in turns on a gpu-let. ``latency_ratio`` is no tolerance but a reserve: planning
    takes every execution time times it, while plans are judged and replayed by the times themselves.
    """

    served_share: float = 1.0
    slo_factor: float = 1.0
    left_over_rps: float = 1e-6
    models_per_part: int = 1000
    latency_ratio: float = 1.0


EXACT = Tolerances()
PUBLISHED = Tolerances(served_share=0.85, slo_factor=1.05, left_over_rps=15.0, models_per_part=3, latency_ratio=1.1)
"""The settings of the public program, github.com/casys-kaist/glet. All four of its configurations state the ratio, for
squishy bin packing and guided self-tuning too."""
RESERVE = {"latency_ratio": EXACT.latency_ratio}
"""The parameters of the methods that have no tolerance but can plan with the reserve."""


def planning_tables(instance: Instance, settings: Tolerances, interference: bool = True) -> GpuletTables:
    """The tables that a method plans with: execution times with the reserve, SLOs with the tolerance."""
    tables = GpuletTables(instance, interference)
    tables.time_ms = tables.time_ms * settings.latency_ratio
    tables.allowed_ms = tables.allowed_ms * settings.slo_factor
    return tables


def chosen(control: Search) -> Tolerances:
    """The tolerances that a search asks for; a tolerance that it does not name is exact. Raises InputError if a
    parameter is not a number above 0.
    """
    given = [name for name in Tolerances._fields if name in control.parameters]
    values: dict[str, Any] = {name: control.positive(name, type(getattr(EXACT, name))) for name in given}
    return EXACT._replace(**values)


@dataclass
class Part:
    """A gpu-let: its share of a GPU as an index into the tables' shares, and its workloads' rates in requests/s."""

    share: int
    load: dict[int, float] = field(default_factory=dict)

    def with_more(self, workload: int, rate: float) -> Part:
        """A copy that carries ``rate`` more requests/s of a workload."""
        return Part(self.share, self.load | {workload: self.load.get(workload, 0.0) + rate})


class Gpus:
    """GPUs that are being filled, each a list of parts that add up to the whole GPU; ``gpus`` lists the used ones only.

    There are at most ``limit`` GPUs, and at most ``most_models`` workloads run in turns on a part; None means no limit.
    """

    def __init__(self, tables: GpuletTables, limit: int | None, gpus: Iterable[list[Part]] = (),
                 most_models: int | None = None) -> None:
        self.most_models = most_models
        self.tables, self.limit, self.gpus = tables, math.inf if limit is None else limit, list(gpus)

    def free(self) -> list[tuple[int, int]]:
        """The gpu-lets without load as pairs (GPU number, part number), smallest first; an unused GPU comes last."""
        found = [(g, p) for g, gpu in enumerate(self.gpus) for p, part in enumerate(gpu) if not part.load]
        found.sort(key=lambda place: self.part(*place).share)
        return found + [(len(self.gpus), 0)] * (len(self.gpus) < self.limit)

    def used(self) -> list[tuple[int, int]]:
        """The gpu-lets with load as pairs (GPU number, part number)."""
        return [(g, p) for g, gpu in enumerate(self.gpus) for p, part in enumerate(gpu) if part.load]

    def part(self, g: int, p: int) -> Part:
        """The gpu-let of a GPU number and part number; for an unused GPU, the whole."""
        return self.gpus[g][p] if g < len(self.gpus) else Part(self.tables.whole)

    def cut(self, g: int, p: int, share: int) -> tuple[list[Part], int]:
        """(the parts of a GPU after part ``p`` is cut to a share if possible, the new number of the part)."""
        if self.part(g, p).share == self.tables.whole and share != self.tables.whole:
            return [Part(share), Part(self.tables.rest_of(share))], 0
        return (self.gpus[g] if g < len(self.gpus) else [self.part(g, p)]), p

    def capacity(self, parts: list[Part], p: int, workload: int) -> float:
        """The largest rate, in requests/s, that a workload can have on a free part beside the other parts' loads."""
        others = loads_of(parts)
        pressure = self.tables.pressures(others)[0] if others else self._reserved(parts, p)
        return self.tables.capacity(parts[p].share, workload, pressure)

    def serving(self, parts: list[Part], p: int, workload: int, rate: float) -> list[Part] | None:
        """The parts with a rate added to part ``p``; None if an SLO, a rate or the memory limit would be violated."""
        trial = [part.with_more(workload, rate) if at == p else part for at, part in enumerate(parts)]
        if self.most_models and len(trial[p].load) > self.most_models:
            return None
        loads = loads_of(trial)
        if len(loads) == 1 and not self.tables.fit(*loads[0], self._reserved(parts, p)):
            return None
        return trial if self.tables.settle(loads) else None

    def _reserved(self, parts: list[Part], p: int) -> Any:
        """The interference to expect from the free parts beside ``p``: the worst that any workload could cause there.
        """
        return max((self.tables.pressure[part.share].max() for at, part in enumerate(parts) if at != p), default=ALONE)

    def put(self, g: int, parts: list[Part]) -> None:
        """Replace a GPU's parts."""
        self.gpus[g : g + 1] = [parts]

    def short(self) -> list[str]:
        """The names of the workloads whose rate these GPUs do not carry in full."""
        carried = [0.0] * len(self.tables.rates)
        for one, rate in (pair for gpu in self.gpus for part in gpu for pair in part.load.items()):
            carried[one] += rate
        few = np.array(carried) < self.tables.rates * (1 - SHORT)
        return [one.name for one, less in zip(self.tables.instance.workloads, few, strict=True) if less]

    def loads(self) -> list[list[tuple[int, tuple[tuple[int, float], ...]]]]:
        """The loads of the GPUs, in the form from which `provision.heuristics.gpulets.plans` makes a plan."""
        return [loads_of(gpu) for gpu in self.gpus if any(part.load for part in gpu)]


def loads_of(parts: list[Part]) -> list[tuple[int, tuple[tuple[int, float], ...]]]:
    """The pairs (share, load) of the parts in use."""
    return [(part.share, tuple(part.load.items())) for part in parts if part.load]


DONE = 1e-9
"""A rest of at most this fraction of a workload's rate counts as assigned."""
LEAST_PART = 0.01
"""The least fraction of a workload's rate for which an allocated gpu-let takes on a further workload in turns."""
HALVINGS = 10
WORTHWHILE = 1.05
"""A larger share counts for the knee of the curve only if it raises the affordable rate by at least this factor."""

Placed = tuple[int, list[Part], float]
"""The placement of a rate: (index of the GPU, the GPU's parts with the new load, the rate granted in requests/s)."""


@dataclass(frozen=True)
class _Variant:
    """A variant of elastic partitioning, called as a method; ``interference`` tells whether interference counts."""

    name: str
    interference: bool = True

    def __call__(self, instance: Instance, control: Search) -> Outcome:
        refused = proved_infeasible(instance, best_segments(instance))
        if refused:
            return refused
        tolerances = chosen(control)
        tables = planning_tables(instance, tolerances, self.interference)
        gpus = Gpus(tables, instance.fleet[0].count, most_models=tolerances.models_per_part)
        stuck = elastic_partitioning(gpus, tolerances=tolerances)
        found = outcome(tables, None if stuck else gpus.loads(), self.name, stuck)
        short = [] if stuck else gpus.short()
        if found.plan is None or not short:
            return found
        return replace(found, status="unknown", reason=f"{', '.join(short)}: a tolerated part of the rate is left out")


def elastic_partitioning(gpus: Gpus, splitting: bool = True, tolerances: Tolerances = EXACT) -> str:
    """Assign all rates to gpu-lets (Algorithm 1, lines 3-17); return "", or the reason if a workload finds no gpu-let.
    """
    efficient = efficient_shares(gpus.tables)
    for workload in np.argsort(-gpus.tables.rates, kind="stable").tolist():
        if not _assign(gpus, workload, efficient[workload], splitting, tolerances):
            name, count = gpus.tables.instance.workloads[workload].name, gpus.limit
            return f"no place for workload {name} on {count} GPUs beside the others; allow more GPUs"
    return ""


def _assign(gpus: Gpus, workload: int, efficient: int, splitting: bool, tolerances: Tolerances) -> bool:
    """Assign a workload's rate to gpu-lets (lines 6-16); return whether all of it, except for the tolerated rest, is
    assigned.
    """
    left = rate = gpus.tables.rates[workload]
    while left == rate or left > max(DONE * rate, tolerances.left_over_rps):
        ideal = min(efficient, required_share(gpus.tables, workload, left))
        fit = find_best_fit(gpus, ideal, workload, left, splitting)
        merged = _merge(gpus, workload, fit[2]) if fit else _squeeze_in(gpus, workload, left, rate)
        found = merged or fit
        if not found:
            return bool(left <= (1 - tolerances.served_share) * rate)
        gpus.put(*found[:2])
        left -= found[2]
    return True


def required_share(tables: GpuletTables, workload: int, rate: float) -> int:
    """The index of the smallest share that carries a rate alone (MINREQUIREDPARTITION); the index of the whole GPU if
    none does.
    """
    enough = tables.capacity_alone[:, workload] >= rate
    return int(enough.argmax()) if enough.any() else tables.whole


def efficient_shares(tables: GpuletTables) -> list[int]:
    """For each workload, the index of the share at the knee of its affordable rates (MAXEFFICIENTPARTITION)."""
    return [knee(tables.shares, rates) for rates in tables.capacity_alone.T]


def knee(shares: Sequence[float] | Floats, rates: Floats) -> int:
    """The index of the most efficient share; ``shares`` ascend up to the whole GPU, and share i can carry ``rates[i]``.

    The most efficient share is the upper end of the steepest segment that raises the rate by WORTHWHILE. If there is no
    such segment, or its end carries nothing, it is the smallest share that carries anything.
    """
    below, carried = np.asarray(shares)[:-1], rates[:-1]
    slopes = np.where(carried[1:] >= WORTHWHILE * carried[:-1], np.diff(carried) / np.diff(below), 0.0)
    steepest = int(slopes.argmax()) + 1 if slopes.max(initial=0.0) > 0 else 0
    return max(steepest, int((rates > 0).argmax()))


def find_best_fit(gpus: Gpus, ideal: int, workload: int, rate: float, splitting: bool = True) -> Placed | None:
    """Find a free gpu-let for a workload (lines 20-32).

    Returns the index of its GPU, the GPU's parts with the new load, and the rate granted (requests/s); None if no
    gpu-let fits.
    """
    free = gpus.free()
    large = [(g, p) for g, p in free if gpus.part(g, p).share >= ideal]
    for g, p in large if large or splitting else free[::-1]:
        parts, p = gpus.cut(g, p, ideal) if splitting else (gpus.gpus[g], p)
        most = min(rate, gpus.capacity(parts, p, workload))
        granted = _most(gpus, parts, p, workload, min(most, LEAST_PART * rate), most) if most else 0.0
        if granted:
            return g, known(gpus.serving(parts, p, workload, granted)), granted
    return None


def _merge(gpus: Gpus, workload: int, rate: float) -> Placed | None:
    """The first allocated gpu-let that can take the rate in turns (lines 33-37), in the form of `find_best_fit`; None
    if there is none.
    """
    for g, p in gpus.used():
        serving = gpus.serving(gpus.gpus[g], p, workload, rate)
        if serving:
            return g, serving, rate
    return None


def _squeeze_in(gpus: Gpus, workload: int, left: float, rate: float) -> Placed | None:
    """The first allocated gpu-let that can take at least LEAST_PART of the rate, with as much of the rate as it can
    take; None if there is none.
    """
    for g, p in gpus.used():
        granted = _most(gpus, gpus.gpus[g], p, workload, min(left, LEAST_PART * rate), left)
        if granted:
            return g, known(gpus.serving(gpus.gpus[g], p, workload, granted)), granted
    return None


def _most(gpus: Gpus, parts: list[Part], p: int, workload: int, low: float, high: float) -> float:
    """The largest rate in [``low``, ``high``] that a gpu-let can take on, by HALVINGS bisections; 0 if there is none.
    """
    if gpus.serving(parts, p, workload, high):
        return high
    if not gpus.serving(parts, p, workload, low):
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if gpus.serving(parts, p, workload, middle) else (low, middle)
    return low


def _method(variant: _Variant, summary: str, tolerances: Tolerances = EXACT) -> Method:
    return Method(
        name=variant.name,
        summary=summary,
        run=variant,
        source="gpu-lets, ATC 2022, Algorithm 1",
        features=FEATURES,
        parameters=tolerances._asdict(),
    )


METHODS = (
    _method(_Variant("gpulets"), "at most two gpu-lets on a GPU, turns on them, interference checked"),
    _method(_Variant("gpulets-without-interference", interference=False), "the same as if there were no interference"),
    _method(_Variant("gpulets-published"), "gpulets with tolerances and reserve of the public program", PUBLISHED),
)
