"""Patterns of one slice, and the plan of patterns: the rate of every workload is divided among its replicas.

A pattern is a set of replicas that keep their latency budgets together on a slice. Each replica can carry any rate up
to its capacity, so rates are continuous and need no grid.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from provision.formulations.pricing.oracle import Running, replica_of
from provision.formulations.search.segments import Segments
from provision.models.base.arrays import Floats
from provision.models.base.tolerances import PLANNED
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice, carried_rps
from provision.models.problem.instance import Instance

SlicePattern = tuple[Replica, ...]
"""The replicas on one slice; the rate of each is the most that it can carry."""
Held = list[tuple[str, int, SlicePattern]]
"""The slices of a GPU, each as (profile, start, pattern)."""


def alone(instance: Instance, segments: Segments, k: int) -> Iterator[SlicePattern]:
    """Yield for every workload the pattern of the one replica that carries most alone on a slice of type ``k``."""
    for w in segments.throughput_rps[:, k].nonzero()[0].tolist():
        run = Running(int(segments.model[w, k]), int(segments.batch[w, k]), int(segments.processes[w, k]), 1.0)
        yield (replica_of(instance, w, run, float(segments.throughput_rps[w, k])),)


def parts_of(instance: Instance, pattern: SlicePattern) -> tuple[Floats, Floats]:
    """(workloads,) the fractions of the planned rates that a pattern carries, and its numbers of replicas."""
    at = {name: w for w, name in enumerate(instance.workload)}
    parts, number = np.zeros((2, len(at)))
    for one in pattern:
        planned = instance.planned_rps(instance.workload[one.workload])
        parts[at[one.workload]] += one.rate_rps / planned if planned else 1.0
        number[at[one.workload]] += 1
    return parts, number


def plan_of(instance: Instance, entries: Iterable[int], held: Iterable[Held], name: str) -> Plan | None:
    """The plan of patterns, with the rates of all replicas, in proportion to their capacities; None if the patterns do
    not carry the planned rates.

    ``entries`` and ``held`` are the fleet entry and the slices of every GPU. GPUs without slices are left out. ``name``
    is that of the method.
    """
    gpus = [PlannedGpu(gpu=instance.fleet[e].gpu, mig=instance.fleet[e].partitioned, slices=tuple(
        Slice(profile=profile, start=start, replicas=pattern)
        for profile, start, pattern in sorted(slices, key=lambda one: one[1])))
        for e, slices in zip(entries, held, strict=True) if slices]
    carried, factors = [carried_rps([gpu]) for gpu in gpus], [dict[str, float]() for _ in gpus]
    for workload in instance.workloads:
        planned, share = instance.planned_rps(workload), workload.max_share_per_gpu
        most_rps = share * planned if share < 1 and planned else math.inf
        total = math.fsum(min(of_gpu[workload.name], most_rps) for of_gpu in carried)
        if planned * (1 - PLANNED) > total:
            return None
        for factor, of_gpu in zip(factors, carried, strict=True):
            if rps := of_gpu[workload.name]:
                factor[workload.name] = min(planned / total, 1.0) * min(most_rps / rps, 1.0)
    return instance.plan_of(name, map(PlannedGpu.with_rates, gpus, factors))
