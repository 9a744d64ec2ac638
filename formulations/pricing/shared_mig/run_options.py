"""Computes which part of a shared slice a replica of each role takes at each level, for slices that closed networks
describe.

A lower rate may take more of a slice's time, since its batches are less full and then take longer per request. So in
plans, a role counts with the most time that any rate up to the role's own takes, however full its batches are. In
bounds, it counts with the least time that any rate of the role takes.
"""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.knapsacks import Levels
from provision.formulations.pricing.shared_mig.levels import Level, level_times_ms
from provision.formulations.search.roles import Role
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.tolerances import FORGIVEN, SINGLE, TOLERANCE
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.closed_network import ClosedNetwork, work_ms_array
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.policy import Policy
from provision.models.traffic.rule import LatencyRule


class Ways(NamedTuple):
    """The ways to run a replica of each role at each level. A way is a choice of model, batch size and number of
    processes.

    Attributes
    ----------
    start
        (roles + 1,) the ways of role r are those from ``start[r]`` up to ``start[r + 1]``.
    batch, model
        (levels, ways) the batch size, and an index into the models of the role.
    processes, use, memory_gib
        (levels, ways) what a way takes: processes (-1 if it is not allowed), a part of the slice's time, and memory.
    """

    start: NDArray[np.int64]
    batch: NDArray[np.int64]
    model: NDArray[np.int64]
    processes: NDArray[np.int64]
    use: NDArray[np.float64]
    memory_gib: NDArray[np.float64]

    def knapsacks(self, levels: Sequence[Level], units: int, relaxed: bool) -> Levels:
        """The ways as Levels of knapsacks, with utilisation in whole units: rounded up, or rounded down if ``relaxed``.
        """
        use = np.array([[level.use] for level in levels]) * (1 + FORGIVEN if relaxed else 1 - TOLERANCE)
        parts = self.use / use * units
        second = np.floor(parts * (1 - TOLERANCE)) if relaxed else np.ceil(parts)
        room = np.array([level.processes for level in levels], np.int64)
        kept = (self.processes >= 0) & (second <= units)
        gib = self.memory_gib * (1 - SINGLE if relaxed else 1)
        processes, second = np.where(kept, self.processes, -1), np.where(kept, second, 0)
        return Levels(self.start, processes.astype(np.int32, "C"), second.astype(np.int32, "C"),
                      gib.astype(np.float32, "C"), room, units)


def ways_of(data: FittedNetworks, profile: str, policy: Policy, rule: LatencyRule, roles: Sequence[Role],
            levels: Sequence[Level], relaxed: bool) -> Ways:
    """The undominated ways of all roles.

    Parameters
    ----------
    data, profile
        The networks, and the slice's profile.
    policy, rule
        The instance's policy, and its latency rule for shared slices.
    roles, levels
        The roles, and the levels.
    relaxed
        Whether the ways are for bounds.
    """
    gpu, forgiven = gpu_type(data.gpu), 1 + FORGIVEN if relaxed else 1.0
    compute, memory_gib = gpu.slice_compute(profile), gpu.slice_memory_gib(profile) * forgiven
    room = np.array([level.processes for level in levels])
    found = []
    for role in roles:
        of_models = [np.zeros((6, 0, len(levels)))]
        for number, name in enumerate(role.models):
            if name not in data.models:
                continue
            network = data.models[name].coefficients
            sizes = np.array([size for size in data.batches if size <= network.max_batch])
            most = min(network.max_processes, gpu.mps_clients)
            if rule.random_arrivals:
                ways = _all_busy(network, sizes, compute, policy, role, levels, relaxed, rule, most)
            else:
                ways = _at_mean_times(network, sizes, compute, policy, role, levels, relaxed)
            batch, processes, use, in_time = np.broadcast_arrays(*ways)
            held_gib = network.memory_gib(batch, processes)
            allowed = in_time & (processes <= np.minimum(most, room)) & (held_gib <= memory_gib)
            columns = np.array([batch, np.full(batch.shape, number), processes, use, held_gib, allowed], float)
            of_models.append(columns.reshape(6, -1, len(levels)))
        found.append(_undominated(np.concatenate(of_models, axis=1)))
    start = np.cumsum([0, *(columns.shape[1] for columns in found)])
    batch, model, processes, use, held_gib, allowed = np.concatenate(
        [np.zeros((6, 0, len(levels))), *found], axis=1).swapaxes(1, 2)
    processes = np.where(allowed, processes, -1)
    return Ways(start, batch.astype(int), model.astype(int), processes.astype(int), use, held_gib)


def _at_mean_times(network: ClosedNetwork, sizes: Ints, compute: int, policy: Policy, role: Role,
                   levels: Sequence[Level], relaxed: bool) -> tuple[Ints, Ints, Floats, Bools]:
    """For all batches at all levels, arrays that broadcast to (batches, levels): the batch, the processes that a role
    needs, the part of the slice's time that they take, and whether batches are in time.

    In plans, the latency also covers a batch of one request, which may take longer than a larger one: a replica may be
    routed less than its role's rate, too little to form larger batches.
    """
    forgiven, used = (1 + FORGIVEN, least_use) if relaxed else (1.0, most_use)
    budget_ms, fill_s = role.slo_ms * policy.part_of_slo * forgiven, policy.fill_ms(role.slo_ms) / 1000
    planned_ms = level_times_ms(network, sizes, levels, compute)[0].T
    single_ms = level_times_ms(network, np.ones(1, int), levels, compute)[0].T
    latency_ms = planned_ms if relaxed else np.maximum(planned_ms, single_ms)
    rps = 1000 * sizes[:, None] / planned_ms * (forgiven if relaxed else 1 - TOLERANCE)
    busy_s = busy_per_item_s(network, compute)
    use = np.array([[used(busy_s, int(size), role, fill_s)] for size in sizes])
    processes = np.maximum(np.ceil(role.rate_rps / rps), 1).astype(np.int64)
    return sizes[:, None], processes, use, latency_ms <= budget_ms


def _all_busy(network: ClosedNetwork, sizes: Ints, compute: int, policy: Policy, role: Role, levels: Sequence[Level],
              relaxed: bool, rule: LatencyRule, most: int) -> tuple[Ints, Ints, Floats, Bools]:
    """Like `_at_mean_times`, for every number of processes up to ``most`` with all of them busy; the arrays broadcast
    to (processes, batches, levels).

    In plans, a batch on a slice with P processes takes at most Z + P S. In bounds, the longest batch takes at least
    Z + n S, its time beside no others. Besides, n busy processes whose batches never take longer than a hold time take
    at least n S / hold of the slice's time, and the rule limits the hold time.
    """
    forgiven = 1 + FORGIVEN if relaxed else 1.0
    launching = np.array([level.launching for level in levels])
    think_ms, slice_ms = longest_work_ms(network, sizes, launching, compute)
    count = np.arange(1, min(most, max(level.processes for level in levels)) + 1)[:, None, None]
    longest_ms = _rooms_ms(cast("Hashable", rule), tuple(sizes.tolist()), most, role.rate_rps,
                           role.slo_ms * policy.part_of_slo * forgiven).T[:len(count), :, None] * forgiven
    hold_ms = think_ms + (count if relaxed else launching) * slice_ms
    with np.errstate(divide="ignore"):
        use = count * slice_ms / longest_ms * relaxed / forgiven
    return sizes[:, None], count, use, hold_ms <= longest_ms


@lru_cache(maxsize=4096)
def _rooms_ms(rule: Any, sizes: tuple[int, ...], most: int, rate_rps: float, budget_ms: float
              ) -> NDArray[np.float64]:
    """(batches, processes) the longest hold times, in ms, with which a replica keeps the rule at a rate."""
    return rule.room_ms(np.array(sizes)[:, None], rate_rps, 0.0, budget_ms, np.arange(1, most + 1))


def longest_work_ms(network: ClosedNetwork, sizes: NDArray[np.int64], launching: NDArray[np.int64], compute: int
                     ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two arrays (batches, levels), in ms: the longest think time (spent outside the slice) and the longest slice time
    of all batches up to each of these sizes.
    """
    every = np.broadcast_to(np.arange(1, sizes[-1] + 1)[:, None], (sizes[-1], len(launching)))
    think_ms, slice_ms = work_ms_array(network, every, launching, compute)
    return np.maximum.accumulate(think_ms)[sizes - 1], np.maximum.accumulate(slice_ms)[sizes - 1]


def busy_per_item_s(network: ClosedNetwork, compute: int) -> NDArray[np.float64]:
    """(batches,) the slice time per request in batches of 1, 2, ... requests, in seconds."""
    sizes = np.arange(1, network.max_batch + 1)
    return work_ms_array(network, sizes, 1, compute)[1] / (1000 * sizes)


def most_use(busy_s: NDArray[np.float64], batch: int, role: Role, fill_s: float) -> float:
    """The largest fraction of a slice's time that a replica takes at any rate up to a role's rate, however full its
    batches are. The arguments are those of `least_use`.
    """
    filled = np.arange(batch)
    here = filled <= role.rate_rps * fill_s * (1 + FORGIVEN)
    longest_s = np.maximum.accumulate(busy_s[:batch][::-1])[::-1]
    rates_rps = np.minimum(role.rate_rps, np.append((filled[:-1] + 1) / fill_s, np.inf))
    return float((rates_rps * longest_s)[here].max())


def least_use(busy_s: NDArray[np.float64], batch: int, role: Role, fill_s: float) -> float:
    """The smallest fraction of a slice's time that a replica takes at any rate of a role, from ``rate_rps`` to
    ``upto_rps``. Batches have at most ``batch`` requests and wait at most ``fill_s`` seconds to fill; ``busy_s`` is the
    result of `busy_per_item_s`.
    """
    filled = np.arange(batch)
    here = filled <= role.upto_rps * fill_s * (1 + FORGIVEN)
    here &= (filled + 1 >= role.rate_rps * fill_s * (1 - FORGIVEN)) | (filled == batch - 1)
    rates_rps = np.maximum(role.rate_rps, filled / fill_s)
    return float((rates_rps * busy_s[:batch])[here].min()) * (1 - FORGIVEN)


def _undominated(ways: Floats) -> Floats:
    """At each level, the allowed ways that no other allowed way dominates. They come first at each level; rows that
    have no such way at any level are left out.

    ``ways`` (6, ways, levels) are batches, models, processes, use, memory, and 1 for ways that are allowed, else 0.
    """
    no_more = np.logical_and.reduce([needs[:, None] <= needs for needs in ways[2:5]])
    first = np.tri(ways.shape[1], k=-1, dtype=bool).T[:, :, None]
    allowed = ways[5] > 0
    better = no_more & allowed[:, None] & (~no_more.swapaxes(0, 1) | first)
    kept = allowed & ~better.any(axis=0)
    order = np.argsort(~kept, axis=0, kind="stable")[: kept.sum(axis=0).max(initial=0)]
    return np.take_along_axis(np.concatenate([ways[:5], kept[None]]), order[None], axis=1)
