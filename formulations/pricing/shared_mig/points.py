"""A few operating points for each workload on a slice that closed networks share at a level.

At a level (``levels``), a batch takes at most Z + s S, whatever its neighbours do. So the rate of a process and the
slice time of a request are constants. In ``run_options`` each role has a given rate; a Choice of this module carries
any rate between two limits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.shared_mig.levels import Level, level_times_ms
from provision.formulations.pricing.shared_mig.run_options import busy_per_item_s, longest_work_ms
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.closed_network import ClosedNetwork
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry, Workload

CHOICES = 3
"""The most batch sizes of a workload at a level. There are several because a part of its rate fills only smaller
batches.
"""
FILLED = 1 + 1e-6
"""The least rate of a replica relative to the rate that fills its batches. It exceeds 1 by more than rounding errors.
"""


class Choice(NamedTuple):
    """A batch size and a number of processes, for any rate from ``least_rps`` to ``most_rps``.

    ``busy`` is the part of the slice's time that one request/s takes; 0 where utilisation does not matter.
    """

    level: int
    batch: int
    processes: int
    least_rps: float
    most_rps: float
    busy: float
    memory_gib: float


def choices_of(instance: Instance, workload: Workload, network: ClosedNetwork, batches: Sequence[int],
               entry: FleetEntry, profile: str, levels: Sequence[Level], processes: int) -> list[Choice]:
    """The choices of a workload on a slice, by level.

    Parameters
    ----------
    instance, workload
        The problem, and one of its workloads.
    network, batches
        The closed network of its model, and the batch sizes of the data.
    entry, profile
        The slice's fleet entry and profile.
    levels
        The levels for plans.
    processes
        The largest number of processes.
    """
    sizes = np.array([size for size in batches if size <= network.max_batch], np.int64)
    compute, memory_gib = entry.type.slice_compute(profile), entry.type.slice_memory_gib(profile)
    find = _under_random_arrivals if instance.shared_rule.random_arrivals else _at_mean_times
    found = find(instance, workload, network, sizes, compute, levels, processes)
    return [one for one in found if one.processes <= levels[one.level].processes and one.memory_gib <= memory_gib]


def _at_mean_times(instance: Instance, workload: Workload, network: ClosedNetwork, sizes: Ints, compute: int,
                   levels: Sequence[Level], processes: int) -> list[Choice]:
    """Choices with batch sizes that take little slice time per request, and that the workload's rate fills in time.

    A single request may take longer than a full batch. A lower rate, which fills smaller batches, may take more of the
    slice's time than a higher one. So a Choice has a least rate, at which a replica takes at least as much of the
    slice's time as at any lower rate.
    """
    latency_ms, slice_ms = level_times_ms(network, sizes, levels, compute)
    latency_ms = np.maximum(latency_ms, level_times_ms(network, np.ones(1, int), levels, compute)[0])
    busy_s, fill_s = busy_per_item_s(network, compute), instance.policy.fill_ms(workload.slo_ms) / 1000
    least_rps = np.array([_least_rps(busy_s[:size], fill_s) for size in sizes.tolist()]) * FILLED
    fits = (latency_ms <= instance.budget_ms(workload) * (1 + TOLERANCE)) & (
        least_rps <= instance.planned_rps(workload))
    busy = slice_ms / (1000 * sizes)
    chosen = [_least_busy(row, busy).tolist() for row in fits]
    return [Choice(level, int(sizes[at]), many, float(least_rps[at]), 1000 * int(sizes[at]) * many / latency,
                   float(busy[at]), float(network.memory_gib(sizes[at], many)))
            for level, row in enumerate(chosen) for many in range(1, processes + 1) for at in row
            for latency in (float(latency_ms[level, at]),)]


def _least_rps(busy_s: Floats, fill_s: float) -> float:
    """The least rate at which full batches take at least as much of a slice's time as smaller batches at any lower
    rate.
    """
    filled = np.arange(1, len(busy_s))
    longest_s = np.maximum.accumulate(busy_s[::-1])[::-1]
    below = float((filled / fill_s * longest_s[:-1]).max(initial=0.0))
    return max(len(filled) / fill_s, below / float(busy_s[-1]))


def _least_busy(fits: Bools, busy: Floats) -> Ints:
    """(choices,) indices of at most CHOICES allowed batch sizes: the size with the least slice time per request, and
    from there every second smaller size.
    """
    allowed = np.flatnonzero(fits)
    return allowed[: np.argmin(busy[allowed]) + 1][::-2][:CHOICES] if len(allowed) else allowed


def _under_random_arrivals(instance: Instance, workload: Workload, network: ClosedNetwork, sizes: Ints, compute: int,
                           levels: Sequence[Level], processes: int) -> list[Choice]:
    """For each number of processes, the batch size with which a replica carries most under the latency rule."""
    launching = np.array([one.launching for one in levels])
    think_ms, slice_ms = longest_work_ms(network, sizes, launching, compute)
    hold_ms, many = think_ms + launching * slice_ms, np.arange(1, processes + 1)
    rps = instance.shared_rule.capacity_rps(sizes[:, None, None], many[:, None], hold_ms[:, None], hold_ms[:, None],
                                        instance.budget_ms(workload))
    best = rps.argmax(axis=0)
    return [Choice(level, int(sizes[best[at, level]]), at + 1, 0.0, float(rps[best[at, level], at, level]), 0.0,
                   float(network.memory_gib(sizes[best[at, level]], at + 1)))
            for at, level in np.ndindex(best.shape) if rps[best[at, level], at, level] > 0]
