"""Operating points for patterns that carry rates, on slices that closed networks share.

Under rules for random arrivals, batch times are taken with all processes busy
(`provision.models.performance.closed_network`). So the rate that a replica carries depends on the operating points of
its neighbours, but not on the rates that are routed to them, and a workload can be split at any rates.

Under other rules, all processes are busy only for the objective max_throughput. A batch then takes Z + P S, with think
time Z, slice time S and P processes on the slice. It is the same bound if neighbours begin visits without end.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from provision.formulations.pricing.rates import GENEROUS
from provision.formulations.pricing.schedule import NETWORKS
from provision.formulations.pricing.shared_mig.levels import longest_work_ms
from provision.formulations.search.problem import Group
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import MISSING
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.closed_network import ClosedNetwork, work_ms_array
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.instance import Instance

ASIDE = 1e-9
"""The relative rounding error of hold times."""
ENDLESS_MS = 1e-9
"""A cycle so short that a neighbour always uses the slice."""


class RateOptions(NamedTuple):
    """Operating points on slices of one profile, in order of rising slice time.

    Arrays over points: ``group``, ``model`` (an index into the models of the group), ``batch`` and ``processes``;
    ``slice_ms``, ``cycle_ms`` and ``memory_gib``, the longest slice time of a batch, the least time between the starts
    of two batches, and the memory of all processes; and ``name``, the index of the model in ``longest_cycle_ms``.
    ``think_ms`` (points, processes) is the longest think time on a slice with 1, 2, ... processes.

    Hold times are divided into cells. ``cell_ms`` (points, cells + 1) is where each begins, and where the last ends.
    ``rps`` (points, cells) is the rate at the beginning of each cell, the highest in it; 0 where the latency rule
    allows none.

    ``longest_cycle_ms`` (models,) is the longest ``cycle_ms`` of any point of a model. Arrays over groups:
    ``most_rps`` is the rate of one replica that counts, ``total_rps`` that of all replicas of a group in a pattern.
    For the objective max_throughput, every rate counts, and both have the highest rate of any pattern. ``beyond`` is
    the value of a request/s beyond ``total_rps``. ``room_gib`` is the memory of the slice.
    """

    group: Ints
    model: Ints
    batch: Ints
    processes: Ints
    slice_ms: Floats
    cycle_ms: Floats
    memory_gib: Floats
    name: Ints
    think_ms: Floats
    cell_ms: Floats
    rps: Floats
    longest_cycle_ms: Floats
    most_rps: Floats
    total_rps: Floats
    beyond: float
    room_gib: float


def rate_options(instance: Instance, data: FittedNetworks, profile: str, groups: Sequence[Group], fills: bool
                 ) -> RateOptions:
    """The operating points of groups on slices of a profile, within the limits of bounds. The data must know a model of
    some group.

    ``fills`` tells whether the objective is max_throughput.
    """
    gpu, rule = gpu_type(data.gpu), instance.shared_rule
    clients, compute = gpu.slice_mps_clients(profile), gpu.slice_compute(profile)
    room_gib = gpu.slice_memory_gib(profile) * GENEROUS
    names = sorted({name for group in groups for name in group.models if name in data.models})
    least_gib = min(data.models[name].coefficients.memory_gib(1, 1) for name in names)
    clients = max(min(clients, int(room_gib / least_gib)), 1)
    asked_rps = np.array([group.asked_rps for group in groups])
    most_rps = np.minimum(asked_rps, [group.cap_rps for group in groups]) * GENEROUS
    columns: list[dict[str, Any]] = []
    for at, group in enumerate(groups):
        budget_ms = group.slo_ms * instance.policy.part_of_slo * GENEROUS
        least_rps = group.asked_rps * (1 - MISSING) if group.most == 1 else 0.0
        for number, name in enumerate(group.models):
            if name in data.models:
                network = data.models[name].coefficients
                found = _points(network, data.batches, compute, clients, rule.random_arrivals)
                first_ms, last_ms = found["hold_ms"][:, 0], np.minimum(found["hold_ms"][:, -1], budget_ms)
                fits = (first_ms <= last_ms) & (found["memory_gib"] <= room_gib)
                found = {key: value[fits] for key, value in found.items()}
                found["cell_ms"] = _cells(found.pop("hold_ms"), last_ms[fits], rule.random_arrivals)
                hold_ms = found["cell_ms"][:, :-1]
                rps = GENEROUS * rule.capacity_rps(found["batch"][:, None], found["processes"][:, None], hold_ms,
                                                   hold_ms, budget_ms)
                found["rps"] = np.where(rps >= least_rps, rps, 0.0)
                found |= {"group": np.full(len(rps), at), "model": np.full(len(rps), number),
                          "name": np.full(len(rps), names.index(name))}
                columns.append({key: value[rps[:, 0] > 0] for key, value in found.items()})
    merged = {key: np.concatenate([one[key] for one in columns]) for key in columns[0]}
    order = np.argsort(merged["slice_ms"], kind="stable")
    merged = {key: np.ascontiguousarray(value[order]) for key, value in merged.items()}
    cycle_ms = np.zeros(len(names))
    np.maximum.at(cycle_ms, merged["name"], merged["cycle_ms"])
    members = np.array([len(group.members) for group in groups])
    if fills:
        most_rps = np.full(len(groups), merged["rps"].max(initial=0.0) * clients)
    return RateOptions(**merged, longest_cycle_ms=cycle_ms, most_rps=most_rps, total_rps=most_rps * members,
                       beyond=float(fills), room_gib=room_gib)


def _points(network: ClosedNetwork, batches: Sequence[int], compute: int, clients: int, random_arrivals: bool
            ) -> dict[str, Any]:
    """The operating points of a network: what does not depend on the latency rule.

    ``hold_ms`` (points, clients) are the longest times of a batch beside neighbours with 0, 1, ... processes.
    """
    sizes, all_busy = np.array([size for size in batches if size <= network.max_batch]), np.arange(1, clients + 1)
    think_ms, slice_ms = (longest_work_ms(network, sizes, all_busy, compute) if random_arrivals
                          else work_ms_array(network, sizes[:, None], all_busy, compute))
    alone_ms = np.add(*work_ms_array(network, np.arange(1, sizes[-1] + 1), 1, compute))
    cycle_ms = np.minimum.accumulate(alone_ms)[sizes - 1] if random_arrivals else np.full(len(sizes), ENDLESS_MS)
    of, processes = (one.ravel() for one in np.meshgrid(
        np.arange(len(sizes)), np.arange(1, min(network.max_processes, clients) + 1), indexing="ij"))
    together = np.minimum(processes[:, None] + all_busy - 1, clients)
    return {"batch": sizes[of], "processes": processes, "slice_ms": slice_ms[of, 0], "cycle_ms": cycle_ms[of],
            "memory_gib": network.memory_gib(sizes[of], processes), "think_ms": think_ms[of],
            "hold_ms": think_ms[of[:, None], together - 1] + together * slice_ms[of]}


def _cells(hold_ms: Floats, last_ms: Floats, random_arrivals: bool) -> Floats:
    """(points, cells + 1) the ends of cells of hold times.

    Random arrivals: equal factors from the first hold time to ``last_ms``. Else: one cell begins at each hold time.
    """
    if not random_arrivals:
        return np.column_stack([hold_ms, 2 * hold_ms[:, -1]]) * (1 - 2 * ASIDE)
    step = np.log(last_ms / hold_ms[:, 0]) / NETWORKS.cells + np.finfo(float).eps
    return hold_ms[:, [0]] * np.exp(step[:, None] * np.arange(NETWORKS.cells + 1))
