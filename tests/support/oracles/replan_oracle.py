"""Brute force for replanning on one or two GPUs: every state of every GPU, every workload or nobody in every slice."""

import itertools

import provision
from provision.models.hardware.geometry import geometry


def tiny(rates):
    """Two workloads on A30s, which have few states, at the rates given."""
    points = {
        "a": [("1g.6gb", 4, 1, 40.0, 20.0), ("2g.12gb", 4, 1, 70.0, 12.0), ("2g.12gb", 8, 2, 90.0, 30.0),
              ("4g.24gb", 8, 1, 150.0, 15.0)],
        "b": [("1g.6gb", 2, 1, 25.0, 30.0), ("2g.12gb", 2, 1, 60.0, 20.0), ("4g.24gb", 4, 2, 110.0, 25.0)],
    }
    table = {"version": 1, "name": "tiny", "kind": "measured-segments", "gpu": "a30",
             "models": {name: {"points": rows} for name, rows in points.items()}}
    workloads = [{"name": name, "model": name, "slo_ms": 80.0, "rate_rps": rate, "min_replicas": 0}
                 for name, rate in zip("ab", rates, strict=True)]
    return provision.Instance(version=1, name="tiny", fleet=[{"gpu": "a30"}], performance=table, workloads=workloads)


def cheapest(instance, plan, change_cost, bill=float):
    """The least sum of GPUs and changes over all plans on the GPUs of a running plan and one more, all of one type.

    A slice that stays may go on (best batch, its processes), start something else, or idle; a new slice starts
    something or is not made. Every start and every destroyed slice costs ``change_cost``, so many GPUs ``bill``.
    """
    profiles = geometry(instance.fleet[0].type)
    options = [_options(instance, profiles, gpu.slices) for gpu in plan.gpus]
    options.append(_options(instance, profiles, ()))
    planned = [instance.planned_rps(workload) for workload in instance.workloads]
    best = None
    for combination in itertools.product(*options):
        cost = bill(sum(used for used, _, _ in combination))
        cost += change_cost * sum(changes for _, changes, _ in combination)
        carried = [sum(part[w] for _, _, part in combination) for w in range(len(planned))]
        if all(have >= need * (1 - 1e-9) for have, need in zip(carried, planned, strict=True)):
            best = cost if best is None else min(best, cost)
    return best


def _options(instance, shape, slices):
    """Undominated (used, changes, throughput by workload) of one GPU."""
    here = {(piece.start, piece.profile): piece for piece in slices}
    found = {(0, len(slices), (0.0,) * len(instance.workloads))}
    for state in shape.maximal_states:
        places = [(start, shape.profiles[kind].name) for start, kind in state]
        destroyed = len(here.keys() - set(places))
        choices = [_choices(instance, place, here.get(place)) for place in places]
        for choice in itertools.product(*choices):
            carried = [0.0] * len(instance.workloads)
            for _, workload, rps in choice:
                if workload is not None:
                    carried[workload] += rps
            found.add((1, destroyed + sum(one[0] for one in choice), tuple(carried)))
    return _undominated(found)


def _choices(instance, place, piece):
    """(changes, workload, throughput) of everything one slice may do."""
    choices = [(0, None, 0.0)]
    for w, workload in enumerate(instance.workloads):
        data = instance.performance_of(instance.fleet[0].gpu, workload.model)
        points = data.operating_points(workload.model, place[1])
        fine = points.latency_ms <= instance.budget_ms(workload)
        if fine.any():
            choices.append((1, w, float(points.throughput_rps[fine].max())))
        if piece and piece.replicas and piece.replicas[0].workload == workload.name:
            same = fine & (points.processes == piece.replicas[0].processes)
            if same.any():
                choices.append((0, w, float(points.throughput_rps[same].max())))
    return choices


def _undominated(options):
    return [
        one for one in options
        if not any(other != one and other[0] <= one[0] and other[1] <= one[1]
                   and all(a >= b for a, b in zip(other[2], one[2], strict=True)) for other in options)
    ]
