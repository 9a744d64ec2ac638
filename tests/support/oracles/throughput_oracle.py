"""Brute force for the most throughput of tiny instances: every way to fill every GPU, asking the models alone."""

import itertools

from oracle import best_rps, fillings

from provision.models.performance.operating_points import Member

TOLERANCE = 1e-9


def most_isolated(instance):
    """Most requests/s of all plans of isolated segments on a fixed fleet; None when no plan serves all workloads."""
    empty = tuple((0.0, 0) for _ in instance.workloads)
    reached = {empty}
    for entry in instance.fleet:
        contents = {empty} | {_held(instance, entry, *pair) for pair in _owned(instance, entry)}
        for _ in range(entry.count):
            reached = {tuple((a + c, b + d) for (a, b), (c, d) in zip(one, other, strict=True))
                       for one in reached for other in contents}
    return max((sum(rps for rps, _ in state) for state in reached if _serves(instance, state)), default=None)


def _owned(instance, entry):
    """Fillings of a GPU, and for each slice the workload on it or None."""
    for profiles in fillings(entry):
        for owners in itertools.product([None, *instance.workloads], repeat=len(profiles)):
            if all(one is None or best_rps(instance, entry, one, profile) > 0
                   for profile, one in zip(profiles, owners, strict=True)):
                yield profiles, owners


def _held(instance, entry, profiles, owners):
    """(requests/s, replicas) of every workload on a filled GPU."""
    rates = {one.name: [] for one in instance.workloads}
    for profile, one in zip(profiles, owners, strict=True):
        if one is not None:
            rates[one.name].append(best_rps(instance, entry, one, profile))
    return tuple((round(sum(found), 6), len(found)) for found in rates.values())


def _serves(instance, state):
    return all(
        rps >= instance.planned_rps(one) * (1 - TOLERANCE)
        and one.min_replicas <= many <= (one.max_replicas or many)
        for one, (rps, many) in zip(instance.workloads, state, strict=True)
    )


def most_shared(instance):
    """Most requests/s with one replica of each workload on GPUs that they share; None when no plan serves all."""
    gpus = [entry for entry in instance.fleet for _ in range(entry.count)]
    worth, best = {}, None
    for at in itertools.product(range(len(gpus)), repeat=len(instance.workloads)):
        value = 0.0
        for number, entry in enumerate(gpus):
            group = tuple(one for one, where in zip(instance.workloads, at, strict=True) if where == number)
            key = entry.gpu, tuple(one.name for one in group)
            if key not in worth:
                worth[key] = _together(instance, entry.gpu, group)
            value = None if None in (value, worth[key]) else value + worth[key]
        best = value if best is None or (value is not None and value > best) else best
    return best


def _together(instance, gpu, group):
    """Most requests/s of some workloads on one GPU, by every batch and every number of units; None if they cannot."""
    data = instance.performance_of(gpu, instance.workloads[0].model)
    limit, best = round(1 / data.hardware.unit_share), None if group else 0.0
    for units in itertools.product(range(1, limit + 1), repeat=len(group)) if group else ():
        if sum(units) > limit:
            continue
        for batches in itertools.product(range(1, data.max_batch + 1), repeat=len(group)):
            members = [Member(one.model, batch, 1, many / limit)
                       for one, batch, many in zip(group, batches, units, strict=True)]
            found = data.predict("whole", members)
            if all(map(instance_serves(instance), group, found)):
                value = sum(one.throughput_rps for one in found)
                best = value if best is None else max(best, value)
    return best


def instance_serves(instance):
    """Whether a prediction keeps SLO and rate of a workload of the instance."""
    return lambda one, found: (
        found is not None
        and found.latency_ms <= instance.budget_ms(one) * (1 + TOLERANCE)
        and found.throughput_rps >= instance.planned_rps(one) * (1 - TOLERANCE)
    )
