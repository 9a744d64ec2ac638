"""Settings of slices that closed networks share: a few ways to run a replica of each workload at every level.

At a level (``levels``), a batch takes at most Z + s S, whatever its neighbours do. So the rate of a process and the
slice time of a request are constants, and a Way carries any rate between two limits.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from provision.formulations.pricing.oracle import UNLIMITED, Running, Setting, Way
from provision.formulations.pricing.schedule import NETWORKS
from provision.formulations.pricing.shared_mig.levels import (
    Level,
    busy_per_item_s,
    level_times_ms,
    longest_work_ms,
    planned_levels,
)
from provision.formulations.search.problem import Group, Problem, Shareable
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.closed_network import ClosedNetwork
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.instance import Instance

MARGIN = 1 - TOLERANCE
"""The part of their capacity for which slices and processes are planned; the rest leaves room for rounding."""
FILLED = 1 + 1e-6
"""The least rate of a replica relative to the rate that fills its batches. It exceeds 1 by more than rounding errors.
"""

RateRange = tuple[int, int, int, float, float, float]
"""A level (by index), a batch size, a number of processes, the least and the most requests/s that they may carry, and
the part of the slice's time that one request/s takes, 0 where utilisation does not matter.
"""


def network_settings(problem: Problem, shared: Shareable, until: Deadline) -> Iterator[Setting]:
    """Yield a setting for every level of a slice type that at least two workloads can share, by the networks of one
    file. Raises TimeIsUpError at the deadline.
    """
    slice_type = problem.segments.slice_types[shared.slice_type]
    entry, data = problem.instance.fleet[slice_type.entry], shared.data
    if not isinstance(data, FittedNetworks) or slice_type.profile not in data.profiles:
        return
    levels = planned_levels(entry.type.slice_mps_clients(slice_type.profile),
                             problem.instance.shared_rule.random_arrivals)
    found = list(_ways(problem, shared, data, levels))
    until.check()
    for number, level in enumerate(levels):
        ways = [way for at, way in found if at == number]
        if sum(len(problem.groups[at].members) for at in {way.group for way in ways}) > 1:
            yield Setting(ways, level.use * MARGIN, level.processes,
                          entry.type.slice_memory_gib(slice_type.profile) * MARGIN, workloads=2)


def _ways(problem: Problem, shared: Shareable, data: FittedNetworks, levels: Sequence[Level]
          ) -> Iterator[tuple[int, Way]]:
    """Yield the ways at all levels, each with the index of its level; models that an earlier file describes have none.
    """
    instance, slice_type = problem.instance, problem.segments.slice_types[shared.slice_type]
    gpu, profile = instance.fleet[slice_type.entry].type, slice_type.profile
    before = [one.data for one in problem.shareable if one.slice_type == shared.slice_type]
    known = {model for file in before[: before.index(data)] for model in file.models}
    asked: dict[tuple[str, bool], list[int]] = {}
    for at, group in enumerate(problem.groups):
        workload = instance.workloads[group.members[0]]
        # Whether the number of replicas matters; else it is the number of processes of each replica.
        counted = (workload.min_replicas > 1 or workload.max_replicas is not None
                   or instance.shared_rule.random_arrivals)
        for name in () if workload.tokens else group.models:
            if name in data.models and name not in known:
                asked.setdefault((name, counted), []).append(at)
    rate_ranges = _under_random_arrivals if instance.shared_rule.random_arrivals else _at_mean_times
    for (name, counted), of_model in asked.items():
        network = data.models[name].coefficients
        sizes = np.array([size for size in data.batches if size <= network.max_batch], np.int64)
        most = min(network.max_processes, gpu.slice_mps_clients(profile))
        for block in (of_model[first: first + NETWORKS.block] for first in range(0, len(of_model), NETWORKS.block)):
            groups = [problem.groups[at] for at in block]
            for at, several in zip(block, rate_ranges(instance, groups, network, sizes, gpu.slice_compute(profile),
                                                      levels, most if counted else 1), strict=True):
                for level, batch, processes, least_rps, most_rps, busy in several:
                    memory_gib = float(network.memory_gib(batch, processes))
                    if processes <= levels[level].processes and memory_gib <= gpu.slice_memory_gib(profile):
                        run = Running(problem.groups[at].models.index(name), batch, processes, 1.0)
                        yield level, Way(at, run, 0, least_rps, most_rps * MARGIN, busy, memory_gib,
                                         UNLIMITED if counted else most, counted)


def _at_mean_times(instance: Instance, groups: Sequence[Group], network: ClosedNetwork, sizes: Ints, compute: int,
                   levels: Sequence[Level], processes: int) -> Iterator[list[RateRange]]:
    """Yield for each group the batch sizes that take little slice time per request, and that the group's rate fills in
    time, with up to ``processes`` processes.

    A single request may take longer than a full batch. A lower rate, which fills smaller batches, may take more of the
    slice's time than a higher one. So there is a least rate, at which a replica takes at least as much of the slice's
    time as at any lower rate.
    """
    latency_ms, slice_ms = level_times_ms(network, sizes, levels, compute)
    latency_ms = np.maximum(latency_ms, level_times_ms(network, np.ones(1, int), levels, compute)[0])
    least_rps = np.array([_least_rps(busy_per_item_s(network, compute)[:size]) for size in sizes.tolist()]) * FILLED
    busy = slice_ms / (1000 * sizes)
    for group in groups:
        least = least_rps / (instance.policy.fill_ms(group.slo_ms) / 1000)
        budget_ms = group.slo_ms * instance.policy.part_of_slo * (1 + TOLERANCE)
        fits = (latency_ms <= budget_ms) & (least <= group.rate_rps)
        yield [(level, int(sizes[at]), many, float(least[at]),
                1000 * int(sizes[at]) * many / float(latency_ms[level, at]), float(busy[at]))
               for level, row in enumerate(_least_busy(fits, busy)) for many in range(1, processes + 1) for at in row]


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
    chosen = smaller & (after % 2 == 0) & (after < 2 * NETWORKS.choices)
    return [np.flatnonzero(row)[::-1].tolist() for row in chosen]


def _under_random_arrivals(instance: Instance, groups: Sequence[Group], network: ClosedNetwork, sizes: Ints,
                           compute: int, levels: Sequence[Level], processes: int) -> Iterator[list[RateRange]]:
    """Yield for each group, for each number of processes up to ``processes``, the batch size with which a replica
    carries most under the latency rule.
    """
    launching = np.array([one.launching for one in levels])
    think_ms, slice_ms = longest_work_ms(network, sizes, launching, compute)
    hold_ms, many = (think_ms + launching * slice_ms)[:, None], np.arange(1, processes + 1)
    budget_ms = np.array([group.slo_ms * instance.policy.part_of_slo for group in groups])
    every = instance.shared_rule.capacity_rps(sizes[:, None, None], many[:, None], hold_ms, hold_ms,
                                              budget_ms[:, None, None, None])
    for batch, most_rps in zip(every.argmax(axis=1), every.max(axis=1), strict=True):
        yield [(level, int(sizes[batch[at, level]]), at + 1, 0.0, float(most_rps[at, level]), 0.0)
               for at, level in np.argwhere(most_rps > 0).tolist()]
