"""Seeded random instances whose workloads may share slices, on closed networks of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator
from synthetic import measured_tables

from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.closed_network import ClosedNetwork
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.performance.measured_segments import MeasuredSegments
from provision.models.problem.instance import Instance
from provision.models.problem.policy import Policy
from provision.models.problem.workload import FleetEntry, Workload

if TYPE_CHECKING:
    from provision.models.performance.catalogue import PerformanceFile

BATCHES = (1, 8)
MOST_PROCESSES = 2


def random_mixed(
    seed: int, workloads: int = 2, fleet: Sequence[tuple[str, bool]] = (("a30", True),), limited: bool = False,
    measured: bool = False, mps: bool = True, gpus_each: float = 0.6,
) -> Instance:
    """A small instance with ``share_slices``.

    Parameters
    ----------
    seed
        Same seed, same instance.
    workloads
        How many; each has a model of its own, and one in six is idle.
    fleet
        Pairs of a GPU type and whether MIG is on; with several, each has a price. A type that has no MIG comes with a
        measured table only, so that workloads cannot share it.
    limited
        Whether the first entry has a random, small count.
    measured
        Whether tables that differ a little from the networks, and lack some rows, say what isolated segments do.
    mps
        Whether the first entry runs MPS.
    gpus_each
        Rates are drawn so that a workload needs up to about this many GPUs.
    """
    rng = np.random.default_rng(seed)
    models = [f"model{index}" for index in range(workloads)]
    files = [_networks(rng, gpu, models) if gpu_type(gpu).mig else measured_tables(rng, gpu, models)
             for gpu in dict(fleet)]
    tables = [_measured(rng, data) for data in files if isinstance(data, FittedNetworks)] if measured else []
    prices = np.round(rng.uniform(1, 5, len(fleet)), 2) if len(fleet) > 1 else [None]
    entries = [
        FleetEntry(
            gpu=gpu, mig=mig, mps=mps or index > 0,
            price_per_hour=None if price is None else float(price),
            count=int(rng.integers(0, 3)) if limited and index == 0 else None,
        )
        for index, ((gpu, mig), price) in enumerate(zip(fleet, prices, strict=True))
    ]
    return Instance(
        version=1, name=f"mixed-{seed}", source="drawn at random", fleet=entries,
        policy=Policy(latency_budget="half_slo", headroom=float(rng.choice([0.0, 0.1])), share_slices=True),
        performance=[*files, *tables],
        workloads=[_workload(rng, model, entries, files, gpus_each) for model in models],
    )


def _networks(rng: Generator, gpu: str, models: Sequence[str]) -> FittedNetworks:
    """Closed networks on all plain profiles of a GPU type and on the whole GPU."""
    plain = [name for name, profile in gpu_type(gpu).profiles.items() if profile.variant == "plain"]
    return FittedNetworks(
        version=1, name=f"networks-{gpu}", kind="closed-network", gpu=gpu, profiles=(*plain, WHOLE), batches=BATCHES,
        models={model: {"coefficients": _coefficients(rng)} for model in models},
    )


def _coefficients(rng: Generator) -> ClosedNetwork:
    draw = {
        "launch_ms": (0.5, 8), "launch_contention": (0, 0.1), "host_per_item_ms": (0, 0.3), "gpu_fixed_ms": (0, 2),
        "gpu_per_item_ms": (0.3, 4), "batch_exponent": (0.8, 1), "unbatched_ratio": (0.8, 1.5),
        "bandwidth_share": (0, 0.6), "unscaled_share": (0, 0.1), "queueing": (0, 1),
        "memory_fixed_gib": (0.2, 2.5), "memory_per_item_gib": (0, 0.2),
    }
    drawn = {name: float(np.round(rng.uniform(*ends), 4)) for name, ends in draw.items()}
    return ClosedNetwork(**drawn, max_batch=max(BATCHES), max_processes=MOST_PROCESSES)


def _measured(rng: Generator, data: FittedNetworks) -> MeasuredSegments:
    """A table of what the networks say, a few percent off; profiles are missing here and there."""
    return MeasuredSegments(
        version=1, name=f"measured-{data.gpu}", kind="measured-segments", gpu=data.gpu,
        models={model: {"points": _rows(rng, data, model)} for model in data.models},
    )


def _rows(rng: Generator, data: FittedNetworks, model: str) -> list[tuple[str, int, int, float, float]]:
    rows = []
    missing = rng.choice([*data.profiles[:-1], "none"])
    for profile in data.profiles:
        points = data.operating_points(model, profile)
        for batch, processes, latency_ms in zip(points.batch, points.processes, points.latency_ms, strict=True):
            actual_ms = float(round(latency_ms * rng.uniform(0.9, 1.1), 3))
            rows.append((profile, int(batch), int(processes), 1000 * int(batch * processes) / actual_ms, actual_ms))
    return [row for row in rows if row[0] != missing]


def _workload(
    rng: Generator, model: str, fleet: Sequence[FleetEntry], files: Sequence[PerformanceFile], gpus_each: float
) -> Workload:
    points = [data.operating_points(model, profile)
              for data in files for entry in fleet if entry.gpu == data.gpu for profile in entry.profiles]
    fastest = min(one.latency_ms.min(initial=np.inf) for one in points)
    best = max(one.throughput_rps.max(initial=0) for one in points)
    return Workload(
        name=model.replace("model", "workload"),
        model=model,
        slo_ms=float(round(fastest * rng.uniform(2.5, 16), 2)),
        rate_rps=0.0 if rng.random() < 1 / 6 else float(round(best * rng.uniform(0.02, gpus_each), 2)),
    )
