"""Turns patterns in the slices of GPUs into a plan: the rate of every workload is divided among its replicas."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from provision.formulations.assignment.patterns import PatternReplica, SlicePattern
from provision.models.base.tolerances import PLANNED, TOLERANCE
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance

Held = list[tuple[str, int, SlicePattern]]
"""The slices of a GPU, each as (profile, start, pattern)."""
Place = tuple[int, int, int]
"""A replica, as (GPU, slice, number of the replica on the slice)."""


def plan_of(instance: Instance, entries: Iterable[int], held: Iterable[Held], name: str) -> Plan | None:
    """The plan of patterns, with the rates of all replicas; None if the patterns do not carry the planned rates.

    Parameters
    ----------
    instance
        The problem.
    entries, held
        The fleet entry and the slices of every GPU. GPUs without slices are left out.
    name
        The name of the method, for the plan.
    """
    kept = [(int(e), slices) for e, slices in zip(entries, held, strict=True) if slices]
    places: list[list[tuple[Place, PatternReplica, bool]]] = [[] for _ in instance.workloads]
    for g, (_, slices) in enumerate(kept):
        for s, (_, _, pattern) in enumerate(slices):
            for r, one in enumerate(pattern.replicas):
                places[one.workload].append(((g, s, r), one, pattern.routed))
    rates: dict[Place, float] = {}
    for w, mine in enumerate(places):
        dealt = _dealt(instance, w, [(g, one, routed) for (g, _, _), one, routed in mine])
        if dealt is None:
            return None
        rates.update(zip((place for place, _, _ in mine), dealt, strict=True))
    return instance.plan_of(name, (_gpu(instance, g, e, slices, rates)
                                         for g, (e, slices) in enumerate(kept)))


def _dealt(instance: Instance, w: int, places: Sequence[tuple[int, PatternReplica, bool]]) -> list[float] | None:
    """The requests/s of a workload's replicas; None if they cannot carry the planned rate.

    ``places`` lists each replica with its GPU and whether its pattern is routed. Replicas of routed patterns get
    exactly their capacities. The rest of the rate is divided in proportion to capacity. No GPU gets more than the
    largest share of the workload that it may carry.
    """
    workload = instance.workloads[w]
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


def _gpu(instance: Instance, g: int, e: int, slices: Held, rates: dict[Place, float]) -> PlannedGpu:
    pieces = [
        Slice(profile=profile, start=start, replicas=tuple(
            replica_of(instance, one, rates[g, s, r]) for r, one in enumerate(pattern.replicas)))
        for s, (profile, start, pattern) in enumerate(slices)
    ]
    entry = instance.fleet[e]
    return PlannedGpu(gpu=entry.gpu, mig=entry.partitioned, slices=tuple(sorted(pieces, key=lambda one: one.start)))


def replica_of(instance: Instance, one: PatternReplica, rate_rps: float) -> Replica:
    """The Replica of a plan that carries a rate, in requests/s."""
    workload = instance.workloads[one.workload]
    return Replica(workload=workload.name, batch=one.batch, processes=one.processes, sm_share=one.sm_share,
                   rate_rps=rate_rps, turn=one.turn, model=workload.named(one.model))
