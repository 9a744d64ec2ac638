"""Splits a workload that is too large for one GPU, as iGniter's public program does (github.com/icloud-ecnu/igniter).

The workload gets whole GPUs, with the largest batch that keeps its latency budget alone. Each whole GPU gets 0.9 of its
throughput with this batch, rounded up, as long as more than this rate is left. The rest of the rate is placed like any
workload.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from provision.models.hardware.gpu import WHOLE
from provision.models.performance.igniter import igniter_data
from provision.models.plans.plan import PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload

LOADED = 0.9
"""A whole GPU that serves a part of a workload gets at most this fraction of its throughput."""


class Split(NamedTuple):
    """The whole GPUs for parts of workloads that are too large, and the instance with the rest of their rates."""

    gpus: tuple[PlannedGpu, ...]
    rest: Instance


def split(instance: Instance, too_large: Iterable[int]) -> Split | None:
    """Give whole GPUs to the workloads of the given indices, which are too large for one GPU.

    Returns None if one of these workloads never keeps its SLO, or would need more replicas than it may have.
    """
    workloads, gpus = list(instance.workloads), []
    for at in too_large:
        workload = workloads[at]
        batch, carried_rps = _largest(instance, workload)
        loaded_rps, planned_rps = min(math.ceil(LOADED * carried_rps), carried_rps), instance.planned_rps(workload)
        number = math.ceil(planned_rps / loaded_rps) - 1 if batch else 0
        if number < 1 or (workload.max_replicas is not None and number + 1 > workload.max_replicas):
            return None
        replica = Replica(workload=workload.name, batch=batch, rate_rps=loaded_rps)
        whole = PlannedGpu(gpu=instance.fleet[0].gpu, mig=False, slices=(Slice(profile=WHOLE, replicas=(replica,)),))
        gpus += [whole] * number
        left_rps = (planned_rps - number * loaded_rps) / instance.policy.planned_rps(1.0)
        workloads[at] = workload.model_copy(update={"rate_rps": left_rps})
    return Split(tuple(gpus), instance.replace(workloads=tuple(workloads)))


def _largest(instance: Instance, workload: Workload) -> tuple[int, float]:
    """(batch, requests/s) of the largest batch that keeps the latency budget on a whole GPU; zeros if none does."""
    data = igniter_data(instance.performance)[instance.fleet[0].gpu]
    points = data.operating_points(workload.model, WHOLE)
    meets = np.flatnonzero(np.isclose(points.sm_share, 1) & (points.latency_ms <= instance.budget_ms(workload)))
    if not len(meets):
        return 0, 0.0
    best = meets[points.batch[meets].argmax()]
    return int(points.batch[best]), float(points.throughput_rps[best])
