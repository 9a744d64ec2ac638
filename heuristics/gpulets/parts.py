"""GPUs that are cut into gpu-lets and filled step by step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from provision.formulations.pricing.temporal.tables import ALONE

if TYPE_CHECKING:
    from provision.formulations.pricing.temporal.tables import GpuletTables

SHORT = 1e-6
"""Part of a rate that counts as nothing left out."""


@dataclass
class Part:
    """A gpu-let: its share of a GPU, as an index into the tables' shares, and the rates of its workloads."""

    share: int
    load: dict[int, float] = field(default_factory=dict)

    def with_more(self, workload: int, rate: float) -> Part:
        """A copy that carries this rate as well."""
        return Part(self.share, self.load | {workload: self.load.get(workload, 0.0) + rate})


class Gpus:
    """At most ``limit`` GPUs, each a list of parts that make up the whole; unused ones are not in ``gpus``.

    At most ``most_models`` workloads take turns on a part.
    """

    def __init__(
        self, tables: GpuletTables, limit: int | None, gpus: Iterable[list[Part]] = (), most_models: int | None = None
    ) -> None:
        self.most_models = most_models
        self.tables, self.limit, self.gpus = tables, math.inf if limit is None else limit, list(gpus)

    def free(self) -> list[tuple[int, int]]:
        """Gpu-lets without load as (number of the GPU, of the part), smallest first; an unused GPU comes last."""
        found = [(g, p) for g, gpu in enumerate(self.gpus) for p, part in enumerate(gpu) if not part.load]
        found.sort(key=lambda place: self.part(*place).share)
        return found + [(len(self.gpus), 0)] * (len(self.gpus) < self.limit)

    def used(self) -> list[tuple[int, int]]:
        """Gpu-lets with load as (number of the GPU, of the part)."""
        return [(g, p) for g, gpu in enumerate(self.gpus) for p, part in enumerate(gpu) if part.load]

    def part(self, g: int, p: int) -> Part:
        """A gpu-let; the whole of an unused GPU."""
        return self.gpus[g][p] if g < len(self.gpus) else Part(self.tables.whole)

    def cut(self, g: int, p: int, share: int) -> tuple[list[Part], int]:
        """The parts of a GPU of which one has this share, if it can be cut so, and the number of that part."""
        if self.part(g, p).share == self.tables.whole and share != self.tables.whole:
            return [Part(share), Part(self.tables.rest_of(share))], 0
        return (self.gpus[g] if g < len(self.gpus) else [self.part(g, p)]), p

    def capacity(self, parts: list[Part], p: int, workload: int) -> float:
        """Most requests/s that a workload can carry on a free part beside what the others do now."""
        others = loads_of(parts)
        pressure = self.tables.pressures(others)[0] if others else self._reserved(parts, p)
        return self.tables.capacity(parts[p].share, workload, pressure)

    def serving(self, parts: list[Part], p: int, workload: int, rate: float) -> list[Part] | None:
        """The parts with a rate added to one of them; None when an SLO, a rate or the memory would not hold."""
        trial = [part.with_more(workload, rate) if at == p else part for at, part in enumerate(parts)]
        if self.most_models and len(trial[p].load) > self.most_models:
            return None
        loads = loads_of(trial)
        if len(loads) == 1 and not self.tables.fit(*loads[0], self._reserved(parts, p)):
            return None
        return trial if self.tables.settle(loads) else None

    def _reserved(self, parts: list[Part], p: int) -> Any:
        """The pressure to expect from a part that is still free: the worst that any workload exerts there."""
        return max((self.tables.pressure[part.share].max() for at, part in enumerate(parts) if at != p), default=ALONE)

    def put(self, g: int, parts: list[Part]) -> None:
        """Let a GPU have these parts."""
        self.gpus[g : g + 1] = [parts]

    def short(self) -> list[str]:
        """Names of the workloads of which these GPUs carry less than the rate."""
        carried = [0.0] * len(self.tables.rates)
        for one, rate in (pair for gpu in self.gpus for part in gpu for pair in part.load.items()):
            carried[one] += rate
        few = np.array(carried) < self.tables.rates * (1 - SHORT)
        return [one.name for one, less in zip(self.tables.instance.workloads, few, strict=True) if less]

    def loads(self) -> list[list[tuple[int, tuple[tuple[int, float], ...]]]]:
        """What `provision.formulations.pricing.temporal.plans` makes a plan of."""
        return [loads_of(gpu) for gpu in self.gpus if any(part.load for part in gpu)]


def loads_of(parts: list[Part]) -> list[tuple[int, tuple[tuple[int, float], ...]]]:
    """(share, load) of the parts in use."""
    return [(part.share, tuple(part.load.items())) for part in parts if part.load]
