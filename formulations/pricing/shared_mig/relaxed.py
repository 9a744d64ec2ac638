"""Bounds on the rates of processes on slices that closed networks share, at levels that cover all patterns.

They are for a relaxation that divides rates freely and does not distinguish the slices of a type. They are computed
from the networks' mean times, so they are not valid under rules for random arrivals.
"""

from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.shared_mig.levels import Level, level_times_ms
from provision.formulations.pricing.shared_mig.schedule import SCHEDULE
from provision.formulations.search.segments import Segments, SliceType
from provision.models.base.arrays import Floats
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.closed_network import work_ms_array
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload

ANY_NUMBER = 10**6
"""More processes than any slice has."""


def _levels() -> list[Level]:
    """The levels for bounds: one for each number of processes that plans have, and one for each interval of
    utilisation, with any number of processes.

    A level for an interval has the slowdown at the lower end of the interval. In the last interval, batches slow down
    more than beside the most processes that are counted.
    """
    lower = (*SCHEDULE.bounded_uses, 1 - 1 / (SCHEDULE.most_processes + 1))
    ends = zip(lower, (*lower[1:], 1.0), strict=True)
    by_number = [Level(number, number, number, 1.0) for number in range(2, SCHEDULE.most_processes + 1)]
    return by_number + [Level(1 / (1 - low), 2, ANY_NUMBER, high) for low, high in ends]


LEVELS = _levels()
"""Levels that together cover every way to share a slice."""


class Relaxed(NamedTuple):
    """Arrays (workloads, slice types, levels): the highest rate of a process, and the least utilisation of one
    request/s.

    ``rps`` is 0 where no batch is within the latency budget.
    """

    rps: Floats
    busy: Floats


def relaxed(instance: Instance, segments: Segments) -> Relaxed:
    """The highest rates and least utilisations of every workload on every slice type at each of LEVELS, loosened by the
    verifier's tolerances.

    Parameters
    ----------
    instance, segments
        The problem and its Segments. At most one data file may describe the shared slices of each GPU type.
    """
    tables = np.zeros((2, len(instance.workloads), len(segments.slice_types), len(LEVELS)))
    for w, workload in enumerate(instance.workloads):
        for k, slice_type in enumerate(segments.slice_types):
            tables[:, w, k] = _best(instance, workload, slice_type)
    return Relaxed(*tables)


def clients(instance: Instance, slice_type: SliceType, level: Level) -> int:
    """The number of processes that may share a slice of a slice type at a level."""
    return min(level.processes, instance.fleet[slice_type.entry].type.slice_mps_clients(slice_type.profile))


def _best(instance: Instance, workload: Workload, slice_type: SliceType) -> Floats:
    """(2, levels) the highest rate and the least utilisation per request/s; zeros if the data does not describe the
    slice.
    """
    entry, found = instance.fleet[slice_type.entry], np.zeros((2, len(LEVELS)))
    data = instance.sharing_of(entry.gpu, [workload.model])
    if not isinstance(data, FittedNetworks) or slice_type.profile not in data.profiles or not entry.mps:
        return found
    network, compute = data.models[workload.model].coefficients, entry.type.slice_compute(slice_type.profile)
    batch = np.array([size for size in data.batches if size <= network.max_batch], np.int64)
    latency_ms, _ = level_times_ms(network, batch, LEVELS, compute)
    fits = latency_ms <= instance.budget_ms(workload) * (1 + TOLERANCE)
    fits &= network.memory_gib(batch, 1) <= entry.type.slice_memory_gib(slice_type.profile) * (1 + TOLERANCE)
    sizes = np.arange(1, network.max_batch + 1)
    least_busy = np.minimum.accumulate(work_ms_array(network, sizes, 1, compute)[1] / (1000 * sizes))
    fill_s = instance.policy.fill_ms(workload.slo_ms) / 1000
    filled = np.minimum(batch, 1 + instance.planned_rps(workload) * fill_s * (1 + TOLERANCE)).astype(int)
    found[0] = np.where(fits, 1000 * batch / latency_ms, 0.0).max(axis=1)
    found[1] = np.where(fits, least_busy[filled - 1], np.inf).min(axis=1)
    found[1, found[0] == 0] = 0.0
    return found
