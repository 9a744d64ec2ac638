"""gpu-lets' elastic partitioning (ATC 2022, Algorithm 1).

Followed: workloads in descending order of rate (line 3); for each, until its rate is assigned (lines 5-17), the
smaller of the most efficient and the least required part (lines 9-11); the smallest free gpu-let that is no
smaller, a free GPU being split (lines 20-26, SPLIT); the batch and the interference check (lines 27-30); an allocated
gpu-let that can take the rate in turns instead, the split undone (lines 33-37, MERGE and REVERTSPLIT).

Where the paper is silent, this does:

- a gpu-let holds its rate when duty cycle + execution meets the SLO (section 2.2), with the smallest such batches;
- the most efficient part is the upper end of the steepest segment of the curve of affordable rates over parts, never
  the whole GPU, and a segment that raises the rate by less than 5 % does not count (as the public program does);
- the least required part is that for the rate still to assign; the whole GPU when none is enough;
- the interference check holds for the gpu-lets of both sides of a GPU, with the worst of those that take turns;
- a gpu-let gets the largest rate with which it and its neighbour hold; beside a part that is still free, as much as
  it can carry beside the worst workload that might come there;
- allocated gpu-lets are tried for turns from the first GPU on, also when no free gpu-let is left: then each takes as
  much of the rate as it can (as the public program does);
- the memory of all replicas on a GPU counts.

``gpulets-without-interference`` is the paper's plain gpulet: no interference anywhere; where the data says that its
plan misses an SLO, the outcome is ``unknown`` and says so. ``gpulets-published`` has the tolerances of the public
program (`provision.heuristics.gpulets.tolerances`), which are parameters of all three; a plan that leaves something
out because of them is ``unknown`` too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from provision.formulations.pricing.temporal.plans import FEATURES, outcome
from provision.formulations.pricing.temporal.tables import GpuletTables
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import best_segments
from provision.heuristics.gpulets.parts import Gpus, Part
from provision.heuristics.gpulets.tolerances import EXACT, PUBLISHED, Tolerances, chosen, parameters
from provision.models.base.known import known
from provision.models.problem.method import Method

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.models.base.arrays import Floats
    from provision.models.problem.instance import Instance
    from provision.models.problem.search import Outcome, Search

DONE = 1e-9
"""Part of a rate that counts as nothing left."""
LEAST_PART = 0.01
"""Part of a workload's rate below which no gpu-let takes it on in turns."""
HALVINGS = 10
WORTHWHILE = 1.05
"""Factor by which a larger part must raise the rate that a workload can afford to count for the knee."""

Placed = tuple[int, list[Part], float]
"""Where a rate goes: the GPU, its parts with the new load, and the rate granted."""


@dataclass(frozen=True)
class _Variant:
    """Whether interference counts."""

    name: str
    interference: bool = True

    def __call__(self, instance: Instance, control: Search) -> Outcome:
        refused = proved_infeasible(instance, best_segments(instance))
        if refused:
            return refused
        tables, tolerances = GpuletTables(instance, self.interference), chosen(control)
        tables.allowed_ms = tables.allowed_ms * tolerances.slo_factor
        gpus = Gpus(tables, instance.fleet[0].count, most_models=tolerances.models_per_part)
        stuck = elastic_partitioning(gpus, tolerances=tolerances)
        found = outcome(tables, None if stuck else gpus.loads(), self.name, stuck)
        short = [] if stuck else gpus.short()
        if found.plan is None or not short:
            return found
        return replace(found, status="unknown", reason=f"{', '.join(short)}: a tolerated part of the rate is left out")


def elastic_partitioning(gpus: Gpus, splitting: bool = True, tolerances: Tolerances = EXACT) -> str:
    """Assign all rates to gpu-lets (Algorithm 1, lines 3-17); why not, empty when all are assigned."""
    efficient = efficient_shares(gpus.tables)
    for workload in np.argsort(-gpus.tables.rates, kind="stable").tolist():
        if not _assign(gpus, workload, efficient[workload], splitting, tolerances):
            name, count = gpus.tables.instance.workloads[workload].name, gpus.limit
            return f"no place for workload {name} on {count} GPUs beside the others; allow more GPUs"
    return ""


def _assign(gpus: Gpus, workload: int, efficient: int, splitting: bool, tolerances: Tolerances) -> bool:
    """Whether the rate of a workload, but for what is tolerated, finds gpu-lets (lines 6-16)."""
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
    """The smallest share that carries a rate alone (MINREQUIREDPARTITION); the whole where none does."""
    enough = tables.capacity_alone[:, workload] >= rate
    return int(enough.argmax()) if enough.any() else tables.whole


def efficient_shares(tables: GpuletTables) -> list[int]:
    """The share at the knee of every workload's affordable rates (MAXEFFICIENTPARTITION)."""
    return [knee(tables.shares, rates) for rates in tables.capacity_alone.T]


def knee(shares: Sequence[float] | Floats, rates: Floats) -> int:
    """Index of the most efficient share, of rising ones up to the whole GPU, of the rates that each can carry.

    It is the upper end of the steepest worthwhile segment; the smallest share that carries anything where there is
    none, or where that end carries nothing.
    """
    below, carried = np.asarray(shares)[:-1], rates[:-1]
    slopes = np.where(carried[1:] >= WORTHWHILE * carried[:-1], np.diff(carried) / np.diff(below), 0.0)
    steepest = int(slopes.argmax()) + 1 if slopes.max(initial=0.0) > 0 else 0
    return max(steepest, int((rates > 0).argmax()))


def find_best_fit(gpus: Gpus, ideal: int, workload: int, rate: float, splitting: bool = True) -> Placed | None:
    """The free gpu-let to use (lines 20-32): its GPU, the parts with the new load, the rate granted; None if none."""
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
    """The allocated gpu-let that takes the rate in turns (lines 33-37), as find_best_fit gives it; None if none."""
    for g, p in gpus.used():
        serving = gpus.serving(gpus.gpus[g], p, workload, rate)
        if serving:
            return g, serving, rate
    return None


def _squeeze_in(gpus: Gpus, workload: int, left: float, rate: float) -> Placed | None:
    """The first allocated gpu-let that takes a tolerable part of what is left, as much as it can; None if none."""
    for g, p in gpus.used():
        granted = _most(gpus, gpus.gpus[g], p, workload, min(left, LEAST_PART * rate), left)
        if granted:
            return g, known(gpus.serving(gpus.gpus[g], p, workload, granted)), granted
    return None


def _most(gpus: Gpus, parts: list[Part], p: int, workload: int, low: float, high: float) -> float:
    """The largest rate from ``low`` to ``high`` that a gpu-let can take on, to a fraction; 0 when there is none."""
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
        quick=True,
        summary=summary,
        run=variant,
        source="gpu-lets, ATC 2022, Algorithm 1",
        features=FEATURES,
        parameters=parameters(tolerances),
    )


METHODS = (
    _method(_Variant("gpulets"), "at most two gpu-lets on a GPU, turns on them, interference checked"),
    _method(_Variant("gpulets-without-interference", interference=False), "the same as if there were no interference"),
    _method(_Variant("gpulets-published"), "gpulets with the tolerances of the public program", PUBLISHED),
)
