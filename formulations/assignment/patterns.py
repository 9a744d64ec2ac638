"""Patterns of one slice, and the plan of patterns: the rate of every workload is divided among its replicas.

A pattern is a set of replicas that keep their latency budgets together on a slice. Each replica can carry any rate up
to its capacity, so rates are continuous and need no grid. Where batch times depend on the rates (closed networks on a
shared slice), a pattern is *routed*: it is feasible only at the rates that it names.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from provision.formulations.search.segments import Segments
from provision.models.base.tolerances import PLANNED, TOLERANCE
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry, Workload


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


class SlicePattern(NamedTuple):
    """The replicas on one slice. If ``routed``, each carries exactly its capacity."""

    replicas: tuple[PatternReplica, ...]
    routed: bool = False

    @property
    def throughput_rps(self) -> float:
        """The rate that all replicas together could carry. The objective max_throughput counts it."""
        return sum(one.capacity_rps for one in self.replicas)


Held = list[tuple[str, int, SlicePattern]]
"""The slices of a GPU, each as (profile, start, pattern)."""


def clients_of(entry: FleetEntry, profile: str) -> int:
    """The most processes that may run on a slice."""
    return int(entry.type.slice_mps_clients(profile)) if entry.mps else 1


def alone(segments: Segments, k: int) -> Iterator[SlicePattern]:
    """Yield for every workload the pattern of the one replica that carries most alone on a slice of type ``k``."""
    for w in segments.throughput_rps[:, k].nonzero()[0].tolist():
        yield SlicePattern((PatternReplica(w, int(segments.model[w, k]), int(segments.batch[w, k]),
                                           int(segments.processes[w, k]), 1.0, float(segments.throughput_rps[w, k])),))


def parts_of(instance: Instance, pattern: SlicePattern) -> dict[int, float]:
    """The fractions of the planned rates that a pattern carries, by workload."""
    found = defaultdict[int, float](float)
    for one in pattern.replicas:
        planned = instance.planned_rps(instance.workloads[one.workload])
        found[one.workload] += one.capacity_rps / planned if planned else 1.0
    return found


def plan_of(instance: Instance, entries: Iterable[int], held: Iterable[Held], name: str) -> Plan | None:
    """The plan of patterns, with the rates of all replicas; None if the patterns do not carry the planned rates.

    ``entries`` and ``held`` are the fleet entry and the slices of every GPU. GPUs without slices are left out. ``name``
    is that of the method.
    """
    kept = [(int(e), slices) for e, slices in zip(entries, held, strict=True) if slices]
    rates: dict[tuple[int, int, int], float] = {}  # by GPU, slice and replica
    for w, workload in enumerate(instance.workloads):
        mine = {(g, s, r): (one, pattern.routed) for g, (_, slices) in enumerate(kept)
                for s, (_, _, pattern) in enumerate(slices) for r, one in enumerate(pattern.replicas)
                if one.workload == w}
        dealt = _dealt(instance, workload, [(g, one, routed) for (g, _, _), (one, routed) in mine.items()])
        if dealt is None:
            return None
        rates.update(zip(mine, dealt, strict=True))
    gpus = (PlannedGpu(gpu=instance.fleet[e].gpu, mig=instance.fleet[e].partitioned, slices=tuple(sorted((
        Slice(profile=profile, start=start, replicas=tuple(
            replica_of(instance, one, rates[g, s, r]) for r, one in enumerate(pattern.replicas)))
        for s, (profile, start, pattern) in enumerate(slices)), key=lambda piece: piece.start)))
        for g, (e, slices) in enumerate(kept))
    return instance.plan_of(name, gpus)


def _dealt(instance: Instance, workload: Workload, places: Sequence[tuple[int, PatternReplica, bool]]
           ) -> list[float] | None:
    """The requests/s of a workload's replicas; None if they cannot carry the planned rate.

    ``places`` lists each replica with its GPU and whether its pattern is routed. Replicas of routed patterns get
    exactly their capacities. The rest of the rate is divided in proportion to capacity. No GPU gets more than the
    largest share of the workload that it may carry.
    """
    share, planned = workload.max_share_per_gpu, instance.planned_rps(workload)
    limit = share * planned if share < 1 else math.inf
    free: defaultdict[int, float] = defaultdict(float)
    fixed: defaultdict[int, float] = defaultdict(float)
    for g, replica, routed in places:
        (fixed if routed else free)[g] += replica.capacity_rps
    if any(fixed[g] > limit * (1 + TOLERANCE) for g in fixed):
        return None
    room = {g: min(free[g], max(limit - fixed[g], 0.0)) for g in free}
    left = max(planned - math.fsum(fixed.values()), 0.0)
    if left > (total := math.fsum(room.values())) + planned * PLANNED:  # no replica gets more than its capacity
        return None
    factor = min(left / total, 1.0) if total else 0.0
    return [replica.capacity_rps * (1.0 if routed else factor * room[g] / free[g] if free[g] else 0.0)
            for g, replica, routed in places]


def replica_of(instance: Instance, one: PatternReplica, rate_rps: float) -> Replica:
    """The Replica of a plan that carries a rate, in requests/s."""
    workload = instance.workloads[one.workload]
    return Replica(workload=workload.name, batch=one.batch, processes=one.processes, sm_share=one.sm_share,
                   rate_rps=rate_rps, turn=one.turn, model=workload.named(one.model))
