"""Brute force for tiny instances on iGniter's data, over set partitions and the scalar path of the model alone."""

import itertools
import math

import numpy as np

from provision.models.performance.catalogue import load_performance
from provision.models.performance.operating_points import Member
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.workload import FleetEntry, Workload

SHIPPED = {"v100": "igniter-v100", "t4": "igniter-t4-derived"}
LARGEST_BATCH = 6


def random_sharing(seed, workloads=3, gpus=("v100",), limited=False, mps=True, hot=False):
    """A small instance on coarse copies of the shipped coefficients: 10 or 20 units, small batches.

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
    hardware = {"unit_share": float(rng.choice([0.1, 0.05]))}
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


def best_sharing(instance):
    """Least objective over all plans with one replica per workload; None if there is none."""
    best, feasible = None, {}
    for blocks in _set_partitions(list(instance.workloads)):
        for entries in itertools.product(range(len(instance.fleet)), repeat=len(blocks)):
            value = sum(objective_of(instance).weight(instance.fleet[e]) for e in entries)
            if (best is not None and value >= best) or not _in_stock(instance, entries):
                continue
            if all(_fits(instance, e, tuple(block), feasible) for e, block in zip(entries, blocks, strict=True)):
                best = value
    return best


def _set_partitions(items):
    if not items:
        yield []
        return
    first, *rest = items
    for blocks in _set_partitions(rest):
        yield [[first], *blocks]
        for at in range(len(blocks)):
            yield [*blocks[:at], [first, *blocks[at]], *blocks[at + 1 :]]


def _in_stock(instance, entries):
    return all(entry.count is None or entries.count(e) <= entry.count for e, entry in enumerate(instance.fleet))


def _fits(instance, e, block, feasible):
    """Whether some models, batches and units serve all of a block on one GPU; its parts must fit too."""
    key = e, tuple(one.name for one in block)
    if key not in feasible:
        parts = itertools.combinations(block, len(block) - 1) if len(block) > 1 else ()
        feasible[key] = all(_fits(instance, e, part, feasible) for part in parts) and _some_batches(instance, e, block)
    return feasible[key]


def _some_batches(instance, e, block):
    entry = instance.fleet[e]
    if not entry.mps and len(block) > 1:
        return False
    ways = (itertools.product(one.models, range(1, LARGEST_BATCH + 1)) for one in block)
    return any(_enough_units(instance, entry, block, chosen) for chosen in itertools.product(*ways))


def _enough_units(instance, entry, block, ways):
    """Whether units suffice at these models and batches.

    Whoever is late needs more: at any sufficient units the others take no less than now, and so does the GPU's
    clock. So units grow to the least that suffice, or past the GPU.
    """
    data = instance.performance_of(entry.gpu, block[0].model)
    limit = round(1 / data.hardware.unit_share)
    units = [1 if entry.mps else limit] * len(block)
    while sum(units) <= limit:
        members = [Member(*way, 1, many / limit) for way, many in zip(ways, units, strict=True)]
        late = [not _served(instance, one, found)
                for one, found in zip(block, data.predict("whole", members), strict=True)]
        if not any(late):
            return True
        units = [many + more for many, more in zip(units, late, strict=True)]
    return False


def _served(instance, workload, found):
    return (
        found is not None
        and found.latency_ms <= instance.budget_ms(workload) * (1 + 1e-9)
        and found.throughput_rps >= instance.planned_rps(workload) * (1 - 1e-9)
    )


def same(value, other):
    """Whether two objectives are equal, None for no plan."""
    return value is other or (None not in (value, other) and math.isclose(value, other, rel_tol=1e-9))
