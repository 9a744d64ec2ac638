"""A bound by the time of slices, under a latency rule for random arrivals, for closed networks and temporal sharing.

Whatever else runs on a slice, a request takes at least a certain part of the slice's time: the slice time of its batch,
divided by the most requests that the rule lets batches hold on average. A linear program gives every workload enough
time, on slices of the types where it takes least. Its duals are scaled until no partition's slices are worth more than
the partition's price. They then prove the bound.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.sparse import csr_array, eye_array, hstack, kron, vstack

from provision.formulations.linear.highs import linprog
from provision.formulations.search.problem import Group, Problem
from provision.models.base.tolerances import FORGIVEN, SOLVER
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.closed_network import work_ms_array
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.performance.gpulets import Gpulets
from provision.models.problem.instance import Instance
from provision.models.traffic.rule import LatencyRule

Floats = NDArray[np.float64]
STEP = 1.02
"""Ratio between successive rates that are tried."""
LOOSE_RATE = 1 + 2 * SOLVER
"""The factor by which rates are raised. It covers the fraction of the highest rate that plans leave unused."""


def time_bound(problem: Problem) -> float:
    """A lower bound on the objective; 0 if slices are shared by other models than closed networks or gpu-lets' turns.

    Parameters
    ----------
    problem
        A Problem with a latency rule for random arrivals that minimises cost or GPUs.
    """
    rates = np.array([group.rate_rps for group in problem.groups])
    found = []
    for pool in problem.pools:
        files = problem.instance.sharing_files(pool.gpu)
        turns = [data for data in files if isinstance(data, Gpulets)]
        if any(not isinstance(data, Gpulets | FittedNetworks) for data in files) or (turns and len(files) > 1):
            return 0.0
        if turns:
            most, partitions = _on_parts(problem, turns[0])
        else:
            most, partitions = _on_slices(problem, pool.slice_types), pool.partitions[:, list(pool.slice_types)]
        price = min((price for price, _ in pool.offered), default=0)
        found.append((most, partitions, np.full(len(partitions), float(price))))
    most, partitions, prices = zip(*found, strict=True)
    units = least_cost(rates, np.hstack(most) * LOOSE_RATE, block_diag(*partitions), np.concatenate(prices))
    return problem.objective(math.ceil(units - FORGIVEN))


def least_cost(rates_rps: Floats, most_rps: Floats, partitions: Floats, prices: Floats) -> float:
    """A lower bound on the price of partitions that have time for all rates.

    Parameters
    ----------
    rates_rps
        (groups,) the requests/s to carry.
    most_rps
        (groups, slice types) the requests/s of a group that a slice carries in all its time. Every group has one above
        0.
    partitions, prices
        (partitions, slice types) the numbers of slices, and (partitions,) the prices.
    """
    groups, slice_types = most_rps.shape
    priced = csr_array(np.hstack([np.zeros((len(prices), groups)), partitions]))
    each = csr_array((most_rps.ravel(), (np.arange(groups * slice_types), np.repeat(np.arange(groups), slice_types))))
    worthless = hstack([each, -kron(np.ones((groups, 1)), eye_array(slice_types))])
    rows = vstack([priced, worthless])
    found = linprog(np.concatenate([-rates_rps, np.zeros(slice_types)]), A_ub=rows,
                    b_ub=np.concatenate([prices, np.zeros(groups * slice_types)]))
    if found.status or found.x is None:
        return 0.0
    duals = np.maximum(found.x[:groups], 0.0)
    held = partitions @ (duals[:, None] * most_rps).max(axis=0)
    return float(duals @ rates_rps) * float((prices[held > 0] / held[held > 0]).min(initial=1.0))


def _on_slices(problem: Problem, slice_types: Sequence[int]) -> Floats:
    """(groups, slice types) the most requests/s of each group that a slice carries, alone or shared."""
    most = problem.single_rps[:, list(slice_types)].copy()
    for one in problem.shareable:
        if one.slice_type in slice_types and isinstance(one.data, FittedNetworks):
            profile = problem.segments.slice_types[one.slice_type].profile
            shared = [_network_rps(problem.instance, one.data, profile, group) for group in problem.groups]
            at = slice_types.index(one.slice_type)
            most[:, at] = np.maximum(most[:, at], shared)
    return most


def _network_rps(instance: Instance, data: FittedNetworks, profile: str, group: Group) -> float:
    """The most requests/s of a group that a shared slice could carry if the group had all of the slice's time.

    In a cycle, each of n processes serves one batch. A cycle takes at least the think time of a batch plus n times its
    slice time.
    """
    gpu, budget_ms, most = gpu_type(data.gpu), group.slo_ms * instance.policy.part_of_slo, 0.0
    for name in set(group.models) & set(data.models) if profile in data.profiles else ():
        network = data.models[name].coefficients
        size = np.array([one for one in data.batches if one <= network.max_batch])[:, None]
        count = np.arange(1, min(network.max_processes, gpu.mps_clients) + 1)
        think_ms, slice_ms = work_ms_array(network, size, count, gpu.slice_compute(profile))
        hold_ms = think_ms + count * slice_ms
        rps = instance.shared_rule.capacity_rps(size, count, hold_ms, hold_ms, budget_ms) * hold_ms / (count * slice_ms)
        most = max(most, float(rps.max()))
    return most


def _on_parts(problem: Problem, data: Gpulets) -> tuple[Floats, NDArray[np.int64]]:
    """(groups, shares) the most requests/s of each group on a share of a GPU, and (splits, shares) how GPUs are split.
    """
    instance, shares = problem.instance, sorted({share for split in data.splits for share in split})
    most = np.zeros((len(problem.groups), len(shares)))
    for at, group in enumerate(problem.groups):
        budget_ms = group.slo_ms * instance.policy.part_of_slo
        for name in set(group.models) & set(data.models):
            for number, share in enumerate(shares):
                busy_ms = np.array([data.models[name].execution_ms(one, share, data.scaling) for one in data.batches])
                rps = _turning_rps(instance.shared_rule, np.array(data.batches), busy_ms, budget_ms)
                most[at, number] = max(most[at, number], float(rps.max()))
    return most, np.array([[split.count(share) for share in shares] for split in data.splits])


def _turning_rps(rule: LatencyRule, batch: NDArray[np.int64], busy_ms: Floats, budget_ms: float) -> Floats:
    """(batches,) an upper bound on the requests/s of a replica that is alone or in a duty cycle as short as its own
    batch.
    """
    rps = rule.capacity_rps(batch, 1, busy_ms, busy_ms, budget_ms)
    while (more := (rps > 0) & (rule.cycle_room_ms(batch, rps, busy_ms, budget_ms) >= busy_ms)).any():
        rps = np.where(more, rps * STEP, rps)
    return rps
