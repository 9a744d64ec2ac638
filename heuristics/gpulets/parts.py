"""GPUs that are cut into gpu-lets and filled step by step, and the settings of gpu-lets' public program that its paper
(ATC 2022) does not mention: the tolerances by which a plan may miss rates and SLOs, and the reserve by which every
latency is planned longer than it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from provision.formulations.pricing.temporal.tables import ALONE, GpuletTables
from provision.models.problem.instance import Instance
from provision.models.problem.search import Search

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
        """The loads of the GPUs, in the form from which `provision.formulations.pricing.temporal.oracle` makes a
        plan."""
        return [loads_of(gpu) for gpu in self.gpus if any(part.load for part in gpu)]


def loads_of(parts: list[Part]) -> list[tuple[int, tuple[tuple[int, float], ...]]]:
    """The pairs (share, load) of the parts in use."""
    return [(part.share, tuple(part.load.items())) for part in parts if part.load]
