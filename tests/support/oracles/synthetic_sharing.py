"""Seeded random instances whose workloads share whole GPUs, on coarse copies of iGniter's coefficients."""

import math

import numpy as np

from provision.models.performance.catalogue import load_performance
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry, Workload

SHIPPED = {"v100": "igniter-v100", "t4": "igniter-t4-derived"}
LARGEST_BATCH = 4


def random_sharing(seed, workloads=3, gpus=("v100",), limited=False, mps=True, hot=False):
    """A small instance on coarse copies of the shipped coefficients: 4 or 5 units, small batches.

    With several GPU types each has a price; ``limited`` gives the first a small count; ``hot`` GPUs have a low
    power cap and a cache that is fought over, so that neighbours matter.
    """
    rng = np.random.default_rng(seed)
    data = [_coarse(rng, gpu, hot) for gpu in gpus]
    fleet = [
        FleetEntry(
            gpu=gpu, mps=mps,
            price_per_hour=float(np.round(rng.uniform(1, 4), 2)) if len(gpus) > 1 else None,
            count=int(rng.integers(0, 3)) if limited and index == 0 else None,
        )
        for index, gpu in enumerate(gpus)
    ]
    served = [_workload(rng, f"w{index}", data[0]) for index in range(workloads)]
    return Instance(version=1, name=f"sharing-{seed}", fleet=fleet, performance=data, workloads=served)


def _coarse(rng, gpu, hot):
    data = load_performance(SHIPPED[gpu])
    hardware = {"unit_share": float(rng.choice([0.25, 0.2]))}
    if hot:
        idle = data.hardware.idle_power_w
        hardware["power_cap_w"] = idle + float(rng.uniform(0.2, 0.6)) * (data.hardware.power_cap_w - idle)
        hardware["scheduling_intercept_ms"] = float(rng.uniform(-0.009, 0.02))
    factor = float(rng.uniform(1, 6)) if hot else 1.0
    models = {
        name: one.model_copy(update={"cache_sensitivity": one.cache_sensitivity * factor})
        for name, one in data.models.items()
    }
    changed = data.hardware.model_copy(update=hardware)
    return data.model_copy(
        update={"name": f"coarse-{gpu}", "hardware": changed, "max_batch": LARGEST_BATCH, "models": models}
    )


def _workload(rng, name, data):
    model = str(rng.choice(sorted(data.models)))
    points = data.operating_points(model, "whole")
    slo_ms = 2 * float(points.latency_ms.min()) * rng.uniform(1.1, 5)
    best = points.throughput_rps[points.latency_ms <= slo_ms / 2].max(initial=1.0)
    return Workload(
        name=name,
        model=model,
        slo_ms=float(round(slo_ms, 3)),
        rate_rps=float(round(best * rng.uniform(0.05, 0.9), 3)),
        max_replicas=1,
    )


def same(value, other):
    """Whether two objectives are equal, None for no plan."""
    return value is other or (None not in (value, other) and math.isclose(value, other, rel_tol=1e-9))
