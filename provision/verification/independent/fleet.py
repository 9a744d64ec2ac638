"""GPU counts, costs, and the limits on replicas and rates, checked by the plan alone."""

from collections import Counter
from collections.abc import Iterator

from .nvidia import CAPS_W, IDLE_PART, IDLE_W, node_of
from .records import FleetEntry, Instance, PlannedGpu, Replica

ROUNDING = 1e-6
"""The fraction of a rate that may be missing, because rates are sums of numbers that were rounded in files."""


def gpu_count(plan: tuple[PlannedGpu, ...]) -> int:
    """The number of GPUs of the plan; a node counts all of its GPUs."""
    return sum(node_of(gpu.gpu_type)[0] for gpu in plan)


def cost_per_hour(instance: Instance, plan: tuple[PlannedGpu, ...]) -> float | None:
    """The cost of the GPUs per hour: of all committed ones, which are used first, and of those used of other entries,
    the cheapest first, without energy; None if entries have no prices.
    """
    if any(one.price_per_hour is None for one in instance.fleet):
        return None
    total = sum((one.price_per_hour or 0.0) * (one.count or 0) for one in instance.fleet if one.committed)
    for (gpu, mig), many in Counter((one.gpu_type, one.mig) for one in plan).items():
        tiers = sorted(_entries(instance, gpu, mig), key=lambda one: (not one.committed, one.price_per_hour or 0.0))
        for entry in tiers:
            used = many if entry.count is None else min(many, entry.count)
            total += 0.0 if entry.committed else used * (entry.price_per_hour or 0.0)
            many -= used
    return total


def _entries(instance: Instance, gpu: str, mig: bool) -> list[FleetEntry]:
    return [one for one in instance.fleet if one.gpu == gpu and one.mig == mig]


def fleet_faults(instance: Instance, plan: tuple[PlannedGpu, ...]) -> Iterator[str]:
    """Yield a line for every GPU type of which the plan has more than the fleet."""
    for (gpu, mig), many in Counter((one.gpu_type, one.mig) for one in plan).items():
        counts = [one.count for one in _entries(instance, gpu, mig)]
        mode = "with MIG" if mig else "without MIG"
        if not counts:
            yield f"{gpu} {mode} is not in the fleet"
        elif None not in counts and many > sum(one or 0 for one in counts):
            yield f"{many} {gpu} {mode}, the fleet has {sum(one or 0 for one in counts)}"


def power_faults(instance: Instance, plan: tuple[PlannedGpu, ...]) -> Iterator[str]:
    """Yield a line if all GPUs at full load draw more than the limit."""
    drawn_w, limit_w = sum(_watts(instance, gpu)[1] for gpu in plan), instance.power.get("limit_w")
    if limit_w and drawn_w > limit_w * (1 + ROUNDING):
        yield f"the GPUs draw up to {drawn_w:.6g} W, {limit_w:g} are allowed"


def _watts(instance: Instance, gpu: PlannedGpu) -> tuple[float, float]:
    """The watts of a GPU with nothing to do, and at full load."""
    many, single = node_of(gpu.gpu_type)
    stated = (instance.power.get("watts") or {}).get(single)
    idle_w = float(stated["idle_w"]) if stated else IDLE_W.get(single, IDLE_PART * CAPS_W[single])
    return many * idle_w, many * float(stated["full_w"] if stated else CAPS_W[single])


def energy_per_hour(instance: Instance, plan: tuple[PlannedGpu, ...], busy: list[float]) -> float:
    """What the energy of a plan costs per hour, by the part of each of its GPUs that is busy on average."""
    drawn_w = sum(idle_w + (full_w - idle_w) * min(1.0, part)
                  for (idle_w, full_w), part in zip([_watts(instance, gpu) for gpu in plan], busy, strict=True))
    power = instance.power
    return float(power.get("price_per_kwh") or 0.0) * float(power.get("overhead", 1.0)) * drawn_w / 1000


def replicas_of(plan: tuple[PlannedGpu, ...]) -> dict[str, list[tuple[int, Replica]]]:
    """The replicas of every workload, as (index of the GPU, replica)."""
    found: dict[str, list[tuple[int, Replica]]] = {}
    for index, gpu in enumerate(plan):
        for piece in gpu.slices:
            for replica in piece.replicas:
                found.setdefault(replica.workload, []).append((index, replica))
    return found


def limit_faults(instance: Instance, plan: tuple[PlannedGpu, ...]) -> Iterator[str]:
    """Yield a line for every limit that is broken.

    It is checked that every workload of the plan is known and its planned rate is routed, that replicas run its model
    or a variant, that the number of replicas and the part of the rate on one GPU are allowed, and that the rates of
    replicas are equal if the policy has ``even_replicas``.
    """
    found = replicas_of(plan)
    for name in found.keys() - instance.workloads.keys():
        yield f"{name}: no such workload"
    for name, workload in instance.workloads.items():
        here, planned = found.get(name, []), instance.planned_rps(name)
        routed = sum(one.rate_rps for _, one in here)
        if routed < planned * (1 - ROUNDING):
            yield f"{name}: {routed:.6g} of {planned:.6g} requests/s are routed"
        for _, one in here:
            if one.model not in workload.models:
                yield f"{name}: runs {one.model}, which is not its model or a variant"
        if len(here) < workload.min_replicas:
            yield f"{name}: {len(here)} replicas, at least {workload.min_replicas}"
        if workload.max_replicas is not None and len(here) > workload.max_replicas:
            yield f"{name}: {len(here)} replicas, at most {workload.max_replicas}"
        on_gpu: Counter[int] = Counter()
        for index, one in here:
            on_gpu[index] += one.rate_rps  # type: ignore[assignment]
        most = max(on_gpu.values(), default=0)
        if workload.max_share_per_gpu < 1 and most > planned * workload.max_share_per_gpu * (1 + ROUNDING):
            yield f"{name}: {most:.6g} requests/s on one GPU, at most {planned * workload.max_share_per_gpu:.6g}"
        rates = [one.rate_rps for _, one in here]
        if instance.policy.even_replicas and rates and max(rates) - min(rates) > ROUNDING * max(rates):
            yield f"{name}: replicas carry between {min(rates):.6g} and {max(rates):.6g} requests/s, not the same"
