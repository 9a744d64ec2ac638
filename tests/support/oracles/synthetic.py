"""Seeded random instances with measured tables of their own: small ones for tests, large ones for benchmarks."""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.measured_segments import MeasuredSegments
from provision.models.problem.instance import Instance
from provision.models.problem.policy import Policy
from provision.models.problem.workload import FleetEntry, Workload

BATCHES = (1, 4, 16)
PROCESSES = (1, 2, 3)


def random_instance(
    seed: int, workloads: int = 3, gpus: Sequence[str] = ("a100-80gb",), limited: bool = False, tolerant: bool = False,
    gpus_each: float = 1.5,
) -> Instance:
    """A small instance whose tables are made up but behave like measured ones.

    Parameters
    ----------
    seed
        Same seed, same instance.
    workloads
        How many; each has a model of its own.
    gpus
        GPU types of the fleet; with several, each has a price. Types without MIG are used whole.
    limited
        Whether the first type has a random, small count.
    tolerant
        Whether workloads draw min_replicas and max_share_per_gpu.
    gpus_each
        Rates are drawn so that a workload needs up to about this many GPUs.
    """
    rng = np.random.default_rng(seed)
    models = [f"model{index}" for index in range(workloads)]
    tables = [measured_tables(rng, gpu, models) for gpu in gpus]
    prices = np.round(rng.uniform(1, 5, len(gpus)), 2) if len(gpus) > 1 else [None]
    fleet = [
        FleetEntry(
            gpu=gpu,
            price_per_hour=None if price is None else float(price),
            count=int(rng.integers(0, 4)) if limited and index == 0 else None,
        )
        for index, (gpu, price) in enumerate(zip(gpus, prices, strict=True))
    ]
    return Instance(
        version=1,
        name=f"synthetic-{seed}",
        source="drawn at random",
        policy=Policy(latency_budget="half_slo", safety=float(rng.choice([0.9, 1.0])),
                      headroom=float(rng.choice([0.0, 0.1]))),
        fleet=fleet,
        performance=tables,
        workloads=[_workload(rng, model, tables, tolerant, gpus_each) for model in models],
    )


def measured_tables(rng: Generator, gpu: str, models: Sequence[str]) -> MeasuredSegments:
    """Measured segments of one GPU type: throughput grows with slices, batch and processes, so does latency."""
    kind = gpu_type(gpu)
    plain = [profile for profile in kind.profiles.values() if profile.variant == "plain"]
    sizes = {profile.name: (profile.compute, profile.memory_gib) for profile in plain} or {WHOLE: (4, kind.memory_gib)}
    return MeasuredSegments(
        version=1,
        name=f"synthetic-{gpu}",
        kind="measured-segments",
        gpu=gpu,
        models={model: {"points": _points(rng, sizes)} for model in models},
    )


def _points(rng: Generator, sizes: dict[str, tuple[int, float]]) -> list[tuple[str, int, int, float, float]]:
    host_ms, gpu_ms, exponent = rng.uniform(0.5, 5), rng.uniform(0.5, 8), rng.uniform(0.6, 1)
    memory_gib = rng.uniform(0.2, 5)
    points = []
    for profile, (compute, held_gib) in sizes.items():
        for batch in BATCHES:
            for processes in PROCESSES:
                if processes * (memory_gib + 0.02 * batch) > held_gib:
                    continue
                busy_ms = gpu_ms * batch / compute**exponent
                latency_ms = max(host_ms + busy_ms, processes * busy_ms) * rng.uniform(1, 1.05)
                rate = 1000 * batch * processes / latency_ms
                points.append((profile, batch, processes, float(round(rate, 3)), float(round(latency_ms, 3))))
    return points or [(next(reversed(sizes)), 1, 1, 10.0, 50.0)]


def _workload(
    rng: Generator, model: str, tables: Sequence[MeasuredSegments], tolerant: bool, gpus_each: float
) -> Workload:
    points = [point for table in tables for point in table.models[model].points]
    fastest = min(point.latency_ms for point in points)
    best = max(point.throughput_rps for point in points)
    return Workload(
        name=model.replace("model", "workload"),
        model=model,
        slo_ms=float(round(fastest * rng.uniform(2.3, 20), 2)),
        rate_rps=float(round(best * rng.uniform(0.05, gpus_each), 2)),
        min_replicas=int(rng.integers(0, 4)) if tolerant else 1,
        max_share_per_gpu=float(rng.choice([0.3, 0.5, 1.0])) if tolerant else 1.0,
    )
