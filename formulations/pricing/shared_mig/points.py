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
from provision.formulations.pricing.shared_mig.schedule import SCHEDULE
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.closed_network import ClosedNetwork
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry, Workload

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


def choices_of(instance: Instance, workloads: Sequence[Workload], network: ClosedNetwork, batches: Sequence[int],
               entry: FleetEntry, profile: str, levels: Sequence[Level], processes: int) -> list[list[Choice]]:
    """For each workload its choices on a slice, by level.

    Parameters
    ----------
    instance, workloads
        The problem, and some of its workloads, which have a common model.
    network, batches
        The closed network of this model, and the batch sizes of the data.
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
    found: list[list[Choice]] = []
    for first in range(0, len(workloads), SCHEDULE.block):
        block = workloads[first: first + SCHEDULE.block]
        found += [[one for one in choices
                   if one.processes <= levels[one.level].processes and one.memory_gib <= memory_gib]
                  for choices in find(instance, block, network, sizes, compute, levels, processes)]
    return found


def _at_mean_times(instance: Instance, workloads: Sequence[Workload], network: ClosedNetwork, sizes: Ints,
                   compute: int, levels: Sequence[Level], processes: int) -> list[list[Choice]]:
    """Choices with batch sizes that take little slice time per request, and that the workload's rate fills in time.

    A single request may take longer than a full batch. A lower rate, which fills smaller batches, may take more of the
    slice's time than a higher one. So a Choice has a least rate, at which a replica takes at least as much of the
    slice's time as at any lower rate.
    """
    latency_ms, slice_ms = level_times_ms(network, sizes, levels, compute)
    latency_ms = np.maximum(latency_ms, level_times_ms(network, np.ones(1, int), levels, compute)[0])
    least_rps = np.array([_least_rps(busy_per_item_s(network, compute)[:size]) for size in sizes.tolist()]) * FILLED
    busy = slice_ms / (1000 * sizes)
    found = []
    for one in workloads:
        least = least_rps / (instance.policy.fill_ms(one.slo_ms) / 1000)
        fits = (latency_ms <= instance.budget_ms(one) * (1 + TOLERANCE)) & (least <= instance.planned_rps(one))
        found.append([
            Choice(level, int(sizes[at]), many, float(least[at]), 1000 * int(sizes[at]) * many / latency,
                   float(busy[at]), float(network.memory_gib(sizes[at], many)))
            for level, row in enumerate(_least_busy(fits, busy)) for many in range(1, processes + 1) for at in row
            for latency in (float(latency_ms[level, at]),)])
    return found


def _least_rps(busy_s: Floats) -> float:
    """The least number of requests, in the time in which a batch may fill, at which full batches take at least as much
    of a slice's time as smaller batches at any lower rate.
    """
    filled = np.arange(1, len(busy_s))
    longest_s = np.maximum.accumulate(busy_s[::-1])[::-1]
    below = float((filled * longest_s[:-1]).max(initial=0.0))
    return max(len(filled), below / float(busy_s[-1]))


def _least_busy(fits: Bools, busy: Floats) -> list[list[int]]:
    """For each level, the indices of a few allowed batch sizes: the size with the least slice time per request, and
    from there every second smaller size. ``fits`` (levels, sizes) tells which are allowed.
    """
    best = np.where(fits, busy, np.inf).argmin(axis=1)
    smaller = fits & (np.arange(len(busy)) <= best[:, None])
    after = smaller[:, ::-1].cumsum(axis=1)[:, ::-1] - 1  # how many larger ones are among them
    chosen = smaller & (after % 2 == 0) & (after < 2 * SCHEDULE.choices)
    return [np.flatnonzero(row)[::-1].tolist() for row in chosen]


def _under_random_arrivals(instance: Instance, workloads: Sequence[Workload], network: ClosedNetwork, sizes: Ints,
                           compute: int, levels: Sequence[Level], processes: int) -> list[list[Choice]]:
    """For each number of processes, the batch size with which a replica carries most under the latency rule."""
    launching = np.array([one.launching for one in levels])
    think_ms, slice_ms = longest_work_ms(network, sizes, launching, compute)
    hold_ms, many = (think_ms + launching * slice_ms)[:, None], np.arange(1, processes + 1)
    budget_ms = np.array([instance.budget_ms(one) for one in workloads])
    every = instance.shared_rule.capacity_rps(sizes[:, None, None], many[:, None], hold_ms, hold_ms,
                                              budget_ms[:, None, None, None])
    best, most_rps = every.argmax(axis=1), every.max(axis=1)
    return [[Choice(level, int(sizes[batch[at, level]]), at + 1, 0.0, float(rps[at, level]), 0.0,
                    float(network.memory_gib(sizes[batch[at, level]], at + 1)))
             for at, level in np.argwhere(rps > 0).tolist()] for batch, rps in zip(best, most_rps, strict=True)]
