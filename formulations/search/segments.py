"""What the GPUs of a fleet offer to the search: segments, partitions and pools.

Segments are workloads' best operating points alone on each slice type. Partitions are the ways to divide a GPU of each
fleet entry into slices, as one table. A pool is the GPUs of one type, with their prices in exact whole numbers of one
unit.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.models.base.arrays import Floats, Ints
from provision.models.base.objects import Identity
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.geometry import Geometry, geometry
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.tokens.data import TokenModels
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.prediction import engine_rps
from provision.models.problem.workload import FleetEntry, Workload
from provision.models.traffic.rule import Traffic

NO_POINT = (0.0, 0.0, 0, 0)
"""The operating point of a replica that carries nothing."""


class SliceType(NamedTuple):
    """A profile on the GPUs of one fleet entry. ``compute`` and ``memory`` count its slices; both are 1 for a whole
    GPU.
    """

    entry: int
    profile: str
    compute: int
    memory: int


@dataclass(frozen=True)
class Segments:
    """The operating points of highest throughput within the latency budget (ParvaGPU's optimal triplets).

    Arrays are (workloads, slice types): ``throughput_rps`` in requests/s, ``latency_ms`` in ms, ``batch`` in requests,
    ``processes``, and ``model``, an index into the workload's ``models``. A throughput of 0 says that no operating
    point keeps the budget. Under the queueing rule, the throughput is the highest rate at which tasks keep the budget.
    """

    slice_types: tuple[SliceType, ...]
    throughput_rps: Floats
    latency_ms: Floats
    batch: Ints
    processes: Ints
    model: Ints

    def of_entry(self, entry: int) -> list[int]:
        """The indices of the slice types that the GPUs of a fleet entry offer."""
        return [index for index, slice_type in enumerate(self.slice_types) if slice_type.entry == entry]

    def geometry(self, instance: Instance, entry: int) -> Geometry | None:
        """The MIG geometry over the slice types of a fleet entry, in their order; None for whole GPUs."""
        gpu = instance.fleet[entry]
        names = [self.slice_types[index].profile for index in self.of_entry(entry)]
        return geometry(gpu.type, names) if gpu.partitioned and names else None


def best_segments(instance: Instance, max_processes: int | None = None) -> Segments:
    """The segments of an instance, as read-only arrays. Slice types are in the order of the fleet and of its profiles.

    The segments of the last few instances are cached. A slice type on which no workload can run alone is included only
    if workloads may share its slices.

    Parameters
    ----------
    instance
        The problem.
    max_processes
        The most processes of an operating point; None for no limit beyond the fleet's.
    """
    return _best_segments(Identity(instance), max_processes)


@lru_cache(maxsize=4)
def _best_segments(key: Identity[Instance], max_processes: int | None) -> Segments:
    instance = key.one
    budgets = np.array([instance.budget_ms(workload) for workload in instance.workloads]) * (1 + TOLERANCE)
    rows: dict[tuple[str, int, Traffic], list[int]] = {}
    for index, workload in enumerate(instance.workloads):
        for number, model in enumerate(() if workload.tokens else workload.models):
            rows.setdefault((model, number, instance.policy.traffic_of(workload)), []).append(index)
    columns = [
        (_slice_type(number, entry, profile), column)
        for number, entry in enumerate(instance.fleet)
        for profile in entry.profiles
        if (column := _column(instance, entry, profile, rows, budgets, max_processes)).any()
        or _shareable(instance, entry, profile)
    ]
    values = np.array([column for _, column in columns]).reshape(len(columns), len(budgets), 5)
    throughput, latency, *chosen = values.transpose(2, 1, 0)
    batch, processes, model_index = (column.astype(int) for column in chosen)
    for table in (throughput, latency, batch, processes, model_index):
        table.flags.writeable = False
    return Segments(tuple(slice_type for slice_type, _ in columns), throughput, latency, batch, processes, model_index)


def _slice_type(number: int, entry: FleetEntry, profile: str) -> SliceType:
    mig = entry.type.profiles.get(profile)
    return SliceType(number, profile, mig.compute if mig else 1, mig.memory if mig else 1)


def _shareable(instance: Instance, entry: FleetEntry, profile: str) -> bool:
    """Whether workloads that miss their SLOs alone on a slice of this profile may keep them when they share one."""
    files = (instance.sharing_of(entry.gpu, [workload.model]) for workload in instance.workloads)
    return entry.mps and any(data.helps_sharing(profile) for data in files if data)


def _column(
    instance: Instance,
    entry: FleetEntry,
    profile: str,
    rows: Mapping[tuple[str, int, Traffic], Sequence[int]],
    budgets: Floats,
    max_processes: int | None,
) -> Floats:
    """(workloads, 5) throughput, latency, batch, processes and model on one slice type; zeros where nothing is
    feasible.
    """
    column = np.zeros((len(budgets), 5))
    limit = _most_processes(entry, profile)
    limit = limit if max_processes is None else min(limit, max_processes)
    for (model, number, traffic), served in rows.items():
        data, indices = instance.performance_of(entry.gpu, model, profile), np.array(served)
        if data is not None:
            rule = instance.policy.rule.under(traffic)
            found = rule.best_points(instance.points_of(data, model, profile), limit, budgets[indices])
            better = found[:, 0] > column[indices, 0]
            column[indices[better]] = np.insert(found[better], 4, number, axis=1)
    for index, workload in enumerate(instance.workloads):
        for number, model in enumerate(workload.models if workload.tokens else ()):
            data = instance.performance_of(entry.gpu, model, profile)
            point = token_point(instance, data, profile, workload, model)
            if point[0] > column[index, 0]:
                column[index] = (*point, number)
    return column


def best_point(
    instance: Instance, entry: FleetEntry, profile: str, workload: Workload, model: str, processes: int
) -> tuple[float, float, int, int]:
    """A model's best operating point with a given number of processes; zeros if none keeps the budget.

    Returns
    -------
    tuple
        Throughput in requests/s, latency in ms, batch, processes.
    """
    data = instance.performance_of(entry.gpu, model, profile)
    if data is None or processes > _most_processes(entry, profile):
        return 0.0, 0.0, 0, processes
    if workload.tokens:
        return token_point(instance, data, profile, workload, model)
    points = instance.points_of(data, model, profile).where_processes(processes)
    budgets_ms = np.array([instance.budget_ms(workload) * (1 + TOLERANCE)])
    throughput_rps, latency_ms, batch, most = instance.policy.rule_for(workload).best_points(
        points, processes, budgets_ms
    )[0].tolist()
    return throughput_rps, latency_ms, int(batch), int(most)


def token_point(instance: Instance, data: PerformanceFile | None, profile: str, workload: Workload, model: str
                ) -> tuple[float, float, int, int]:
    """The rate that a replica carries (requests/s), the latency of a mean request alone (ms), batch and processes;
    zeros if no setting keeps the SLO.

    The batch is the engine's limit on sequences at a time; of the limits that the data lists, the one with the highest
    rate is taken.
    """
    tokens = workload.tokens
    if not isinstance(data, TokenModels) or tokens is None or tokens.most_held > data.longest(model, profile):
        return NO_POINT
    one = data.models[model].slices[profile]
    best = NO_POINT
    for sequences in data.engine.max_sequences:
        rate_rps = engine_rps(instance, data, workload, model, profile, sequences)
        alone_ms = one.alone_ms(tokens, data.engine_of(model, profile, sequences))
        best = max(best, (rate_rps, alone_ms, sequences, 1))
    return best if best[0] > 0 else NO_POINT


def _most_processes(entry: FleetEntry, profile: str) -> int:
    return entry.type.slice_mps_clients(profile) if entry.mps else 1


def cap_rps(instance: Instance) -> Floats:
    """(workloads,) the most requests/s of a workload on one GPU; infinite where there is no limit."""
    return np.array(
        [
            one.max_share_per_gpu * instance.planned_rps(one) if one.max_share_per_gpu < 1 and one.rate_rps else np.inf
            for one in instance.workloads
        ]
    )


@dataclass(frozen=True)
class Partitions:
    """The undominated partitions of a fleet.

    ``entry`` (partitions,) is the fleet entry of each, and ``slots`` (partitions, slice types) its number of slices of
    each type.
    """

    entry: Ints
    slots: Ints


def partitions_of(instance: Instance, segments: Segments) -> Partitions:
    """The undominated partitions over the slice types of an instance's segments, in the order of fleet entries."""
    entries, rows = [], []
    for entry in range(len(instance.fleet)):
        slice_types = segments.of_entry(entry)
        geometry = segments.geometry(instance, entry)
        found = geometry.undominated_partitions if geometry else (((1,),) if slice_types else ())
        for counts in found:
            row = np.zeros(len(segments.slice_types), int)
            row[slice_types] = counts
            entries.append(entry)
            rows.append(row)
    return Partitions(np.array(entries, int), np.array(rows, int).reshape(len(rows), len(segments.slice_types)))


BEYOND = 10
"""A GPU that the fleet lacks costs this many times as much as a dearest GPU for every replica would."""
Tier = tuple[int, int | None]
"""A price in whole units, and the number of GPUs at that price; None for as many as needed."""


@dataclass(frozen=True)
class Pool:
    """The GPUs of one type, with their prices and partitions.

    Attributes
    ----------
    tiers, count
        The price tiers, cheapest first, and the number of GPUs that the fleet has (None for no limit). The last tier
        has no limit on its number. Its price is a price of the fleet or, if the fleet's GPUs are limited, that of GPUs
        that the fleet lacks.
    gpu, mig, entry, slice_types
        The type, the first fleet entry of it, and the indices of its slice types.
    partitions
        (partitions, all slice types) the number of slices of each type in each partition.
    """

    tiers: tuple[Tier, ...]
    count: int | None
    gpu: str
    mig: bool
    entry: int
    slice_types: tuple[int, ...]
    partitions: NDArray[np.int64]

    @property
    def offered(self) -> tuple[Tier, ...]:
        """The tiers of GPUs that the fleet has."""
        return self.tiers if self.count is None else self.tiers[:-1]

    @property
    def worth(self) -> int:
        """The price of the dearest GPU that the fleet has, at least 1 unit."""
        return max(1, *(price for price, _ in self.offered))

    def cost(self, many: int) -> int:
        """The price of ``many`` GPUs in units; the cheapest tiers are used first."""
        total = 0
        for price, count in self.tiers:
            taken = many if count is None else min(many, count)
            total, many = total + price * taken, many - taken
        return total


def prices_of(instance: Instance) -> tuple[Fraction, list[int]]:
    """The unit of which all prices of a fleet are whole multiples, and the price of each fleet entry in that unit."""
    weights = [Fraction(f"{objective_of(instance).weight(entry):.12g}") for entry in instance.fleet]
    unit = Fraction(math.gcd(*(weight.numerator for weight in weights)) or 1,
                    math.lcm(*(weight.denominator for weight in weights)))
    return unit, [int(weight / unit) for weight in weights]


def pools_of(instance: Instance, segments: Segments, prices: Sequence[int], replicas: int) -> tuple[Pool, ...]:
    """The pools of a fleet. GPUs that have no slice for any workload are left out.

    Parameters
    ----------
    instance, segments
        The problem and its segments.
    prices
        (fleet entries,) prices in whole units. If an entry has no limit on its count, dearer ones of its type are left
        out.
    replicas
        The most replicas that are to be placed.
    """
    table = partitions_of(instance, segments)
    found: dict[tuple[str, bool], list[int]] = {}
    for index, entry in enumerate(instance.fleet):
        found.setdefault((entry.gpu, entry.partitioned), []).append(index)
    pools = []
    for (gpu, mig), entries in found.items():
        partitions = table.slots[table.entry == entries[0]]
        if len(partitions) and partitions.any():
            tiers = sorted(((prices[at], instance.fleet[at].count) for at in entries), key=lambda tier: tier[0])
            endless = [index for index, (_, count) in enumerate(tiers) if count is None]
            many = None if endless else sum(count or 0 for _, count in tiers)
            last = (BEYOND * replicas * (max(prices) or 1), None)
            tiers = tiers[: endless[0] + 1] if endless else [*tiers, last]
            slice_types = tuple(segments.of_entry(entries[0]))
            pools.append(Pool(tuple(tiers), many, gpu, mig, entries[0], slice_types, partitions))
    return tuple(pools)
