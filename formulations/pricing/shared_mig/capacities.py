"""Bounds on the rates of replicas that share a slice (closed networks): the rates with all processes busy."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from provision.formulations.pricing.level_capacities import Best, LevelCapacities, Table
from provision.formulations.pricing.rates import GENEROUS
from provision.formulations.pricing.shared_mig.levels import MORE_PROCESSES, MOST_PROCESSES
from provision.formulations.pricing.shared_mig.run_options import (
    Visits,
    least_hold_ms,
    longest_work_ms,
    shortest_visits,
)
from provision.formulations.search.problem import Group
from provision.models.performance.closed_network import ClosedNetwork, work_ms_array
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.instance import Instance
from provision.models.problem.workload import LEAST_RPS, FleetEntry
from provision.models.traffic.rule import LatencyRule

Floats = NDArray[np.float64]


def capacities(instance: Instance, entry: FleetEntry, profile: str, data: FittedNetworks, groups: Sequence[Group]
               ) -> LevelCapacities | None:
    """The tables of a slice type; None if the networks do not describe how it is shared.

    A level is a number P of processes on the slice. A batch takes Z + P S, with think time Z and slice time S. Under a
    rule for random arrivals, it may take less, but no less than ``least_hold_ms``.
    """
    clients = entry.type.slice_mps_clients(profile)
    if profile not in data.profiles or not entry.mps or clients < 2:
        return None
    rule, compute = instance.shared_rule, entry.type.slice_compute(profile)
    memory_gib = entry.type.slice_memory_gib(profile) * GENEROUS
    least_gib = min(float(one.coefficients.memory_gib(1, 1)) for one in data.models.values())
    clients = min(clients, int(memory_gib / least_gib))
    counts = [*range(2, MOST_PROCESSES + 1), *MORE_PROCESSES] if rule.random_arrivals else range(2, clients + 1)
    counts = [*(count for count in counts if count <= clients), clients + 1]
    best = Best((max(len(counts) - 1, 0), len(groups), max(clients, 1)))
    full_rps = np.full(len(groups), LEAST_RPS)
    visits = shortest_visits(data, {name for group in groups for name in group.models}, profile)
    first: dict[object, int] = {}
    asked: dict[str, list[int]] = {}
    for at, group in enumerate(groups):
        if first.setdefault(group.workload_class, at) == at:
            for name in data.models.keys() & {*group.models}:
                asked.setdefault(name, []).append(at)
    for name, several in sorted(asked.items()):
        network = data.models[name].coefficients
        batch = np.array([size for size in data.batches if size <= network.max_batch])
        full_rps[several] = np.maximum(full_rps[several], _full_rps(network, batch, compute))
        budget_ms = np.array([groups[at].slo_ms for at in several]) * instance.policy.part_of_slo * GENEROUS
        for level, (count, following) in enumerate(pairwise(counts)):
            processes = np.arange(1, min(network.max_processes, following - 1) + 1)[:, None]
            rps = _carried_rps(network, batch, processes, count, compute, rule, budget_ms[:, None, None], visits)
            rps = np.where(network.memory_gib(batch, processes) <= memory_gib, rps, 0.0) * GENEROUS
            for at, of_group in zip(several, rps, strict=True):
                best.offer(level, at, groups[at].models.index(name), of_group, batch)
    for at, group in enumerate(groups):
        best.same(at, first[group.workload_class])
        full_rps[at] = full_rps[first[group.workload_class]]
    if not rule.random_arrivals:  # P processes take P S of the slice's time, or more
        full_rps = np.full(len(groups), np.inf)
    units = np.array([following - 1 for _, following in pairwise(counts)], int)
    return LevelCapacities(Table(best.rps, best.model, best.batch, units, units, 0.0, full_rps), None, data.batches)


def _carried_rps(network: ClosedNetwork, batch: NDArray[np.int64], processes: NDArray[np.int64], count: int,
                 compute: int, rule: LatencyRule, budget_ms: Floats, visits: Visits) -> Floats:
    """(budgets, processes, batches) the most requests/s of a replica on a slice with ``count`` or more processes;
    ``budget_ms`` is (budgets, 1, 1).
    """
    if rule.random_arrivals:
        think_ms, slice_ms = longest_work_ms(network, batch, np.array([count]), compute)
        hold_ms = least_hold_ms(think_ms[:, 0], slice_ms[:, 0], processes, np.array(count), visits)
    else:
        think_ms, slice_ms = work_ms_array(network, batch, count, compute)
        hold_ms = np.broadcast_to(think_ms + count * slice_ms, (len(processes), len(batch)))
    return rule.capacity_rps(batch, processes, hold_ms, hold_ms, budget_ms)


def _full_rps(network: ClosedNetwork, batch: NDArray[np.int64], compute: int) -> float:
    """The most requests/s that a slice carries if it gives all its time to one model."""
    return float((1000 * batch / work_ms_array(network, batch, 1, compute)[1]).max()) * GENEROUS
