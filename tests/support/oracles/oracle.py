"""A brute-force oracle for tiny instances, written from the placement table up, sharing nothing with the methods."""

import itertools

from provision.models.hardware.gpu import WHOLE
from provision.models.problem.objective import objective_of


def best_value(instance, most_gpus, contents=None):
    """Least objective over all plans with at most ``most_gpus`` GPUs; None if there is none.

    ``contents(instance, entry)`` are the states, (part of the rate, replicas) per workload, that one GPU can reach; by
    default with isolated segments.
    """
    gives = [(contents or _contents)(instance, entry) for entry in instance.fleet]
    best = None
    for numbers in itertools.product(*(range(_most(entry, most_gpus) + 1) for entry in instance.fleet)):
        if sum(numbers) > most_gpus:
            continue
        value = sum(n * objective_of(instance).weight(entry) for n, entry in zip(numbers, instance.fleet, strict=True))
        if (best is None or value < best) and _reachable(instance, gives, numbers):
            best = value
    return best


def _most(entry, most_gpus):
    return most_gpus if entry.count is None else min(entry.count, most_gpus)


def _reachable(instance, gives, numbers):
    """Whether that many GPUs of each entry carry all rates with enough replicas."""
    reached = {tuple((0.0, 0) for _ in instance.workloads)}
    for contents, number in zip(gives, numbers, strict=True):
        for _ in range(number):
            reached = undominated({clipped(instance, a, b) for a in reached for b in contents})
    goal = tuple((float(one.rate_rps > 0), one.min_replicas) for one in instance.workloads)
    return any(all(c >= g - 1e-9 and n >= m for (c, n), (g, m) in zip(state, goal, strict=True)) for state in reached)


def clipped(instance, a, b):
    """Sum of two states, (part of the rate, replicas) per workload, cut at what is asked for."""
    return tuple(
        (min(1.0, round(x + y, 12)), min(one.min_replicas, m + n))
        for one, (x, m), (y, n) in zip(instance.workloads, a, b, strict=True)
    )


def undominated(states):
    """The states that no other is at least equal to in everything."""
    kept = []
    for state in sorted(states, reverse=True):
        if not any(all(p >= x and q >= y for (p, q), (x, y) in zip(k, state, strict=True)) for k in kept):
            kept.append(state)
    return kept


def _contents(instance, entry):
    """What one GPU can carry: (part of the rate, replicas) per workload, for every way to fill it."""
    found = set()
    for slices in fillings(entry):
        options = [range(-1, len(instance.workloads))] * len(slices)
        for owners in set(map(tuple, map(sorted, itertools.product(*options)))) if _alike(slices) else \
                itertools.product(*options):
            found.add(_carried(instance, entry, slices, owners))
    return undominated(found)


def _alike(slices):
    return len(set(slices)) == 1


def fillings(entry):
    """Sets of profiles that fit on one GPU, by trying every start of every profile."""
    if not entry.partitioned:
        return [(WHOLE,)]
    profiles = [profile for profile in entry.type.profiles.values() if profile.variant == "plain"]
    found = set()

    def fill(slot, names):
        found.add(tuple(sorted(names)))
        for start in range(slot, entry.type.mig.memory_slices):
            for profile in profiles:
                if start in profile.starts:
                    fill(start + profile.memory, [*names, profile.name])

    fill(0, [])
    return [names for names in found if names and not any(set_in(names, other) for other in found)]


def set_in(names, other):
    """Whether a set of profiles is a proper part of another."""
    return names != other and all(names.count(name) <= other.count(name) for name in names)


def _carried(instance, entry, slices, owners):
    parts = []
    for index, workload in enumerate(instance.workloads):
        rates = [best_rps(instance, entry, workload, name) for name, owner in zip(slices, owners, strict=True)
                 if owner == index]
        planned = instance.planned_rps(workload)
        served = [rate for rate in rates if rate > 0]
        part = min(sum(served) / planned, workload.max_share_per_gpu) if planned else 1.0
        parts.append((part if served or not planned else 0.0, len(served)))
    return tuple(parts)


_CACHE = {}


def best_rps(instance, entry, workload, profile):
    """Most throughput of one segment within the latency budget, looked up row by row."""
    key = (instance.digest, entry.gpu, workload.name, profile)
    if key not in _CACHE:
        limit = entry.type.slice_mps_clients(profile) if entry.mps else 1
        _CACHE[key] = max(
            (
                row.throughput_rps
                for model in workload.models
                for row in instance.performance_of(entry.gpu, model).models[model].points
                if row.profile == profile and row.processes <= limit
                and row.latency_ms <= workload.slo_ms / 2 * instance.policy.safety
            ),
            default=0.0,
        )
    return _CACHE[key]
