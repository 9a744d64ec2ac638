"""Brute force for gpu-lets: what one GPU carries, by trying every set of replicas through the scalar path."""

import itertools

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.operating_points import Member


def fewest_gpus(instance):
    """The fewest GPUs that carry all rates, at most one replica of a workload on each part."""
    [data] = instance.performance
    found = set()
    for split in data.splits:
        places = list(itertools.product(range(len(split)), range(len(instance.workloads))))
        for batches in itertools.product([None, *data.batches], repeat=len(places)):
            placed = [
                (one, Member(instance.workloads[one].model, batch, 1, split[part], turn=part))
                for (part, one), batch in zip(places, batches, strict=True) if batch
            ]
            found.add(_carried(instance, data, placed))
    columns = np.array(sorted(found)).T
    size = columns.shape[1]
    solved = milp(np.ones(size), constraints=[LinearConstraint(columns, lb=1 - 1e-9)], integrality=np.ones(size),
                  bounds=Bounds(0, 50))
    return round(solved.fun)


def _carried(instance, data, placed):
    """Parts of the rates that a GPU carries; zeros where an SLO or the memory breaks."""
    rates = [0.0] * len(instance.workloads)
    predictions = data.predict(WHOLE, [member for _, member in placed])
    held_gib = sum(found.memory_gib for found in predictions)
    late = any(found.latency_ms > instance.budget_ms(instance.workloads[one]) * (1 + 1e-9)
               for (one, _), found in zip(placed, predictions, strict=True))
    if late or held_gib > gpu_type(data.gpu).memory_gib:
        return tuple(rates)
    for (one, _), found in zip(placed, predictions, strict=True):
        rates[one] += found.throughput_rps / instance.planned_rps(instance.workloads[one])
    return tuple(min(rate, 1.0) for rate in rates)
