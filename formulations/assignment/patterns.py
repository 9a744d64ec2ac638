"""Patterns of one slice, and the plan of patterns: the rate of every workload is divided among its replicas.

A pattern is a set of replicas that keep their latency budgets together on a slice. Each replica can carry any rate up
to its capacity, so rates are continuous and need no grid.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.alone.assemble import capped
from provision.formulations.search.segments import Segments
from provision.models.base.tolerances import PLANNED
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry


class PatternReplica(NamedTuple):
    """One replica of a pattern: the index of its workload, of its model in the workload's models, and how it runs.

    ``turn`` is as in a Replica.
    """

    workload: int
    model: int
    batch: int
    processes: int
    sm_share: float
    capacity_rps: float
    turn: int | None = None


SlicePattern = tuple[PatternReplica, ...]
"""The replicas on one slice."""
Held = list[tuple[str, int, SlicePattern]]
"""The slices of a GPU, each as (profile, start, pattern)."""


def clients_of(entry: FleetEntry, profile: str) -> int:
    """The most processes that may run on a slice."""
    return int(entry.type.slice_mps_clients(profile)) if entry.mps else 1


def alone(segments: Segments, k: int) -> Iterator[SlicePattern]:
    """Yield for every workload the pattern of the one replica that carries most alone on a slice of type ``k``."""
    for w in segments.throughput_rps[:, k].nonzero()[0].tolist():
        yield (PatternReplica(w, int(segments.model[w, k]), int(segments.batch[w, k]), int(segments.processes[w, k]),
                              1.0, float(segments.throughput_rps[w, k])),)


def parts_of(instance: Instance, pattern: SlicePattern) -> dict[int, float]:
    """The fractions of the planned rates that a pattern carries, by workload."""
    found = defaultdict[int, float](float)
    for one in pattern:
        planned = instance.planned_rps(instance.workloads[one.workload])
        found[one.workload] += one.capacity_rps / planned if planned else 1.0
    return found


def plan_of(instance: Instance, entries: Iterable[int], held: Iterable[Held], name: str) -> Plan | None:
    """The plan of patterns, with the rates of all replicas, in proportion to their capacities; None if the patterns do
    not carry the planned rates.

    ``entries`` and ``held`` are the fleet entry and the slices of every GPU. GPUs without slices are left out. ``name``
    is that of the method.
    """
    kept = [(int(e), slices) for e, slices in zip(entries, held, strict=True) if slices]
    rates: dict[tuple[int, int, int], float] = {}  # by GPU, slice and replica
    for w, workload in enumerate(instance.workloads):
        mine = {(g, s, r): one.capacity_rps for g, (_, slices) in enumerate(kept)
                for s, (*_, pattern) in enumerate(slices) for r, one in enumerate(pattern) if one.workload == w}
        planned, share, rps = instance.planned_rps(workload), workload.max_share_per_gpu, np.array([*mine.values()])
        rps *= capped(np.array([g for g, *_ in mine], int), rps, share * planned if share < 1 else math.inf)
        if planned * (1 - PLANNED) > (total := math.fsum(rps)):
            return None
        rates.update(zip(mine, (rps * (min(planned / total, 1.0) if total else 0.0)).tolist(), strict=True))
    gpus = (PlannedGpu(gpu=instance.fleet[e].gpu, mig=instance.fleet[e].partitioned, slices=tuple(sorted((
        Slice(profile=profile, start=start, replicas=tuple(
            _replica(instance, one, rates[g, s, r]) for r, one in enumerate(pattern)))
        for s, (profile, start, pattern) in enumerate(slices)), key=lambda piece: piece.start)))
        for g, (e, slices) in enumerate(kept))
    return instance.plan_of(name, gpus)


def _replica(instance: Instance, one: PatternReplica, rate_rps: float) -> Replica:
    """The Replica of a plan that carries a rate, in requests/s."""
    workload = instance.workloads[one.workload]
    return Replica(workload=workload.name, batch=one.batch, processes=one.processes, sm_share=one.sm_share,
                   rate_rps=rate_rps, turn=one.turn, model=workload.named(one.model))
