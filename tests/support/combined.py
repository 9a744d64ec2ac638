"""Tiny random instances over all combinations of documented options, and what loosens them.

Fleets mix MIG with measured tables or closed networks, whole GPUs shared by iGniter's model, whole GPUs alone, price
tiers, counts and types without data. gpu-lets have an oracle of their own.
"""

from collections.abc import Iterator

import numpy as np
from synthetic import random_instance
from synthetic_networks import random_mixed
from synthetic_sharing import random_sharing

from provision.models.hardware.gpu import gpu_type
from provision.models.performance.operating_points import PerformanceData
from provision.models.problem.instance import Instance
from provision.models.problem.policy import Policy
from provision.models.problem.workload import FleetEntry, Workload

WAYS = (
    ("a30", True, "measured"), ("a30", True, "networks"), ("a30", False, "networks"), ("a30", True, "both"),
    ("v100", False, "igniter"), ("t4", False, "igniter"), ("t4", False, "measured"), ("v100", False, "shared-measured"),
)
"""GPU type, whether MIG is on, and which performance data it comes with."""
INTERFERENCE = ("igniter", "shared-measured")
UNIT_SHARES = (0.25, 1 / 3, 0.5)
LARGEST_BATCH = 3
SPARE = "rtx2060"
"""A GPU type that comes without performance data."""


def random_combination(seed: int, every: bool = False) -> Instance:
    """An instance of one to three workloads on one to three fleet entries; everything follows from the seed.

    Combinations that the assignment programs refuse are drawn only with ``every``: queueing on shared GPUs, throughput
    of shared slices, and variants under interference for most throughput.
    """
    rng = np.random.default_rng(seed)
    models = [f"model{index}" for index in range(int(rng.integers(1, 4)))]
    chosen = _chosen(rng)
    interference = any(data in INTERFERENCE for _, _, data in chosen)
    objective = str(rng.choice(["min_cost", "min_cost", "min_gpus", "max_throughput"]))
    files = [data for gpu, kind in {gpu: kind for gpu, _, kind in chosen}.items()
             for data in _performance(rng, gpu, kind, len(models))]
    apart = interference and not every
    workloads = [_workload(rng, model, models, files, objective, apart) for model in models]
    return Instance(
        version=1, name=f"combined-{seed}", source="drawn at random", objective=objective,
        policy=_policy(rng, objective, interference, every), fleet=_fleet(rng, chosen, objective), performance=files,
        workloads=workloads,
    )


def _chosen(rng: np.random.Generator) -> list[tuple[str, bool, str]]:
    """Up to three ways; a GPU type has one kind of data."""
    found: dict[str, tuple[str, bool, str]] = {}
    for at in rng.permutation(len(WAYS))[: int(rng.integers(1, 4))]:
        found.setdefault(WAYS[at][0], WAYS[at])
    return list(found.values())


def _performance(rng: np.random.Generator, gpu: str, kind: str, models: int) -> list[PerformanceData]:
    seed, mig = int(rng.integers(2**31)), gpu == "a30"
    measured = list(random_instance(seed, workloads=models, gpus=(gpu,)).performance)
    if kind == "measured":
        return measured
    if mig:
        return list(random_mixed(seed, workloads=models, fleet=((gpu, True),), measured=kind == "both").performance)
    return [_igniter(rng, gpu, models), *(measured if kind == "shared-measured" else [])]


def _igniter(rng: np.random.Generator, gpu: str, models: int) -> PerformanceData:
    """A few units and small batches on the shipped coefficients, often under a low power cap."""
    drawn = random_sharing(int(rng.integers(2**31)), workloads=1, gpus=(gpu,), hot=bool(rng.random() < 0.7))
    data = drawn.performance[0]
    shipped = sorted(data.models)
    named = {f"model{index}": data.models[str(rng.choice(shipped))].model_dump() for index in range(models)}
    hardware = data.hardware.model_dump() | {"unit_share": float(rng.choice(UNIT_SHARES))}
    return type(data).model_validate(
        data.model_dump() | {"models": named, "hardware": hardware, "max_batch": LARGEST_BATCH}
    )


def _policy(rng: np.random.Generator, objective: str, interference: bool, every: bool) -> Policy:
    throughput = objective == "max_throughput" and not every
    share_slices = not throughput and bool(rng.random() < 0.4)
    queueing = (every or not (throughput or share_slices or interference)) and rng.random() < 0.3
    return Policy(latency_budget="queueing" if queueing else "half_slo", share_slices=share_slices,
                  safety=float(rng.choice([0.9, 1.0])), headroom=float(rng.choice([0.0, 0.1])))


def _fleet(rng: np.random.Generator, chosen: list[tuple[str, bool, str]], objective: str) -> list[FleetEntry]:
    """An entry for each way, now and then a second price tier, the whole A30s too, or a type without data."""
    mps = {gpu: bool(rng.random() < 0.9) for gpu, _, _ in chosen}
    wanted = [(gpu, mig) for gpu, mig, _ in chosen]
    if rng.random() < 0.25:
        wanted.append(wanted[0])
    if "a30" in mps and rng.random() < 0.25:
        wanted.append(("a30", not dict(wanted)["a30"]))
    if rng.random() < 0.15:
        wanted.append((SPARE, False))
    priced = len(wanted) > len(set(wanted)) or rng.random() < 0.7
    few, entries = objective == "max_throughput", list[FleetEntry]()
    for gpu, mig in wanted:
        price = float(np.round(rng.uniform(1, 4), 2)) if priced else None
        if price is not None and (gpu, mig, price) in {(one.gpu, one.mig, one.price_per_hour) for one in entries}:
            price += 0.01  # tiers of a GPU type differ in price
        count = int(rng.integers(few, 4)) if few or rng.random() < 0.3 else None
        entries.append(FleetEntry(gpu=gpu, mig=mig, mps=mps.get(gpu, True), price_per_hour=price, count=count))
    return entries


def _workload(rng: np.random.Generator, model: str, models: list[str], files: list[PerformanceData], objective: str,
              apart: bool) -> Workload:
    points = [data.operating_points(model, profile) for data in files
              for profile in (*gpu_type(data.gpu).profiles, "whole") if model in data.models]
    fastest = min(one.latency_ms.min(initial=np.inf) for one in points)
    slo_ms = float(round(fastest * rng.uniform(2.2, 12), 3))
    best = max(one.throughput_rps[one.latency_ms <= slo_ms / 2].max(initial=0) for one in points)
    least = int(rng.choice([0, 1, 1, 1, 2]))
    others = [one for one in models if one != model]
    varied = not (objective == "max_throughput" and apart) and others and rng.random() < 0.25
    return Workload(
        name=model.replace("model", "w"), model=model, slo_ms=slo_ms,
        rate_rps=0.0 if rng.random() < 0.08 else float(round(max(best, 1.0) * rng.uniform(0.05, 0.7), 3)),
        min_replicas=least, max_replicas=max(least, 1) + int(rng.integers(0, 3)) if rng.random() < 0.4 else None,
        max_share_per_gpu=float(rng.choice([0.5, 0.7])) if rng.random() < 0.2 else 1.0,
        variants=(others[0],) if varied else (),
    )


def loosened(instance: Instance) -> Iterator[tuple[str, Instance]]:
    """What gives more choice: the same instance with one limit less or one option more, each with a name.

    The optimum of none is worse, and whatever has a plan keeps it.
    """
    def each(**changes: object) -> Instance:
        return instance.replace(workloads=tuple(one.model_copy(update=changes) for one in instance.workloads))

    yield "no max_replicas", each(max_replicas=None)
    yield "no min_replicas", each(min_replicas=0)
    yield "no max_share_per_gpu", each(max_share_per_gpu=1.0)
    if not instance.policy.share_slices:
        yield "share_slices", instance.with_policy(share_slices=True)
    if any(entry.count is not None for entry in instance.fleet):
        more = [entry.model_copy(update={"count": None if entry.count is None else entry.count + 1})
                for entry in instance.fleet]
        yield "more GPUs", instance.replace(fleet=tuple(more))
    first = instance.fleet[0]
    tier = first.model_copy(update={"price_per_hour": (first.price_per_hour or 0) + 0.5, "count": 2})
    if first.price_per_hour is not None and all(one.price_per_hour != tier.price_per_hour for one in instance.fleet):
        yield "a further price tier", instance.replace(fleet=(*instance.fleet, tier))
    names = [one.model for one in instance.workloads]
    if len(names) > 1:
        varied = [one.model_copy(update={"variants": tuple(n for n in names if n != one.model)})
                  for one in instance.workloads]
        yield "all variants", instance.replace(workloads=tuple(varied))


def narrower(instance: Instance) -> Iterator[tuple[str, Instance]]:
    """The instance without one of its fleet entries, where the others can run all models: its plans hold there too."""
    for at, left_out in enumerate(instance.fleet):
        fleet = instance.fleet[:at] + instance.fleet[at + 1 :]
        gpus = {entry.gpu for entry in fleet}
        known = {model for data in instance.performance if data.gpu in gpus for model in data.models}
        if all(model in known for one in instance.workloads for model in one.models):
            yield f"without {left_out.gpu}", instance.replace(fleet=fleet)
