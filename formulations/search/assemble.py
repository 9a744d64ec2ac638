"""Turns layouts (which segments are on the same GPU) into a plan: slices get start positions, and replicas get rates.

Chosen segments go into the slots of chosen partitions. A slot is a slice that a partition offers.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.search.segments import Partitions, Segments, cap_rps
from provision.models.base.arrays import Floats, Ints
from provision.models.base.objects import uncollected
from provision.models.base.tolerances import DUST, PLANNED
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice, carried_rps
from provision.models.problem.instance import Instance

REPLICA, SLICE, GPU = (set(one.model_fields) for one in (Replica, Slice, PlannedGpu))
"""The names of the fields of the parts of plans."""


class Layout(NamedTuple):
    """The segments on one GPU of a fleet entry, as pairs (index of the slice type, index of the workload).

    With n workloads, a workload index w >= n stands for the shared slice with the index w - n.
    """

    entry: int
    segments: tuple[tuple[int, int], ...]


@uncollected()
def assemble(
    instance: Instance,
    segments: Segments,
    layouts: Iterable[Layout],
    method: str,
    shared: Sequence[tuple[Replica, ...]] = (),
) -> Plan:
    """Make the plan of a list of layouts.

    Parameters
    ----------
    instance
        The problem.
    segments
        The Segments of the problem.
    layouts
        One Layout per GPU. Each must fit the GPU's geometry.
    method
        The name to write into the plan.
    shared
        The replicas of each shared slice. Segments carry the rest of the workloads' rates.

    Returns
    -------
    Plan
        GPUs in the order of the layouts; slices in the order of their starts.
    """
    layouts = [layout for layout in layouts if layout.segments]
    alone = _replicas(instance, segments, layouts, shared)
    starts: dict[tuple[int, tuple[int, ...]], list[int]] = {}  # few layouts have different slice types
    gpus = []
    for layout in layouts:
        entry = instance.fleet[layout.entry]
        key = layout.entry, tuple(slice_type for slice_type, _ in layout.segments)
        if key not in starts:
            starts[key] = _starts(instance, segments, *key)
        slices = [
            Slice.of_checked({
                "profile": segments.slice_types[slice_type].profile,
                "start": start,
                "replicas": shared[index - len(instance.workloads)]
                if index >= len(instance.workloads)
                else (next(alone),),
            }, SLICE)
            for (slice_type, index), start in zip(layout.segments, starts[key], strict=True)
        ]
        slices.sort(key=lambda piece: piece.start)
        gpus.append(PlannedGpu.of_checked({"gpu": entry.gpu, "mig": entry.partitioned, "slices": tuple(slices),
                                           "node": None}, GPU))
    return instance.plan_of(method, gpus)


def _replicas(
    instance: Instance, segments: Segments, layouts: Sequence[Layout], shared: Sequence[tuple[Replica, ...]]
) -> Iterator[Replica]:
    """Yield the replica of each segment, in the order of layouts."""
    isolated = len(instance.workloads)
    table = np.array(
        [(at, *pair) for at, layout in enumerate(layouts) for pair in layout.segments if pair[1] < isolated], int
    )
    gpu, slice_type, workload = table.reshape(-1, 3).T
    columns = [segments.batch, segments.processes, segments.model]
    points = np.stack([column[workload, slice_type] for column in columns], axis=1, dtype=int).tolist()
    rates = _rates(instance, segments, layouts, gpu, slice_type, workload, shared)
    for index, (batch, processes, model), rate_rps in zip(workload.tolist(), points, rates, strict=True):
        one = instance.workloads[index]
        yield Replica.of_checked({
            "workload": one.name, "batch": batch, "processes": processes, "sm_share": 1.0, "rate_rps": rate_rps,
            "turn": None, "model": one.named(model),
        }, REPLICA)


def _starts(instance: Instance, segments: Segments, entry: int, slice_types: Sequence[int]) -> list[int]:
    """The memory slices at which slices of the given types start on a GPU of a fleet entry, in their order."""
    geometry, offered = segments.geometry(instance, entry), segments.of_entry(entry)
    if geometry is None:
        return [0]
    free: dict[int, list[int]] = {}
    for start, local in geometry.state_of([slice_types.count(slice_type) for slice_type in offered]):
        free.setdefault(offered[local], []).append(start)
    return [free[slice_type].pop(0) for slice_type in slice_types]


def _rates(
    instance: Instance, segments: Segments, layouts: Sequence[Layout], gpu: Ints, slice_type: Ints, workload: Ints,
    shared: Sequence[tuple[Replica, ...]],
) -> list[float]:
    """The requests/s of every segment, in order.

    What a workload's shared slices leave of its planned rate is divided among its segments in proportion to throughput.
    Where a workload limits its rate per GPU, the segments on a GPU carry no more than the limit less what the GPU's
    shared slices carry.
    """
    capacity = segments.throughput_rps[workload, slice_type]
    beside = _beside(instance, layouts, shared)
    elsewhere: defaultdict[str, float] = defaultdict(float)
    for (_, name), rate_rps in beside.items():
        elsewhere[name] += rate_rps
    planned = np.array([max(0.0, instance.planned_rps(one) - elsewhere[one.name]) for one in instance.workloads])
    caps = cap_rps(instance)
    for index in np.flatnonzero(np.isfinite(caps)):
        rows, name = np.flatnonzero(workload == index), instance.workloads[index].name
        room_rps = [max(caps[index] - beside[at, name], 0.0) for at in gpu[rows].tolist()]
        capacity[rows] *= capped(gpu[rows], capacity[rows], np.array(room_rps))
    total = np.bincount(workload, capacity, len(planned))
    return (capacity * (planned / np.where(total > 0, total, 1))[workload]).tolist()


def _beside(
    instance: Instance, layouts: Sequence[Layout], shared: Sequence[tuple[Replica, ...]]
) -> defaultdict[tuple[int, str], float]:
    """The requests/s that shared slices carry, by the index of their GPU and the name of the workload."""
    isolated = len(instance.workloads)
    found: defaultdict[tuple[int, str], float] = defaultdict(float)
    for gpu, layout in enumerate(layouts if shared else ()):
        for replica in (one for _, at in layout.segments if at >= isolated for one in shared[at - isolated]):
            found[gpu, replica.workload] += replica.rate_rps
    return found


def routed(instance: Instance, gpus: Sequence[PlannedGpu], method: str) -> Plan | None:
    """The plan of GPUs whose replicas have the rates that they can carry. None if they cannot carry all workloads.

    Each workload's rate is divided among its replicas in proportion to what they can carry, within the limit per GPU.
    ``method`` is the name to write into the plan.
    """
    planned = {one.name: instance.planned_rps(one) for one in instance.workloads}
    most_rps = dict(zip(planned, cap_rps(instance).tolist(), strict=True))
    carried, total = [carried_rps([gpu]) for gpu in gpus], defaultdict[str, float](float)
    for of_gpu in carried:
        for name, rps in of_gpu.items():
            total[name] += min(rps, most_rps[name])
    if any(total[name] < rps * (1 - PLANNED) for name, rps in planned.items()):
        return None
    return instance.plan_of(method, [gpu.with_rates({
        name: min(planned[name] / total[name], 1.0) * min(most_rps[name] / rps, 1.0)
        for name, rps in of_gpu.items() if rps}) for gpu, of_gpu in zip(gpus, carried, strict=True)])


def capped(gpu: Ints, capacity: Floats, most: Floats | float) -> Floats:
    """Factors that scale the capacities of the segments on each GPU down, so that their sum is at most ``most``.

    ``gpu``, ``capacity`` and ``most`` have one entry per segment.
    """
    return np.minimum(1, most / np.maximum(np.bincount(gpu, capacity)[gpu], DUST))


def deal(
    instance: Instance, segments: Segments, partitions: Partitions, gpus: Ints, chosen: Ints
) -> list[Layout] | None:
    """Put every workload's segments into slots of their slice type.

    Workloads that limit their rate per GPU come first. They skip GPUs that already carry as much of them as allowed. If
    no GPU with a free slot is left for a segment, another GPU is opened.

    Parameters
    ----------
    instance, segments, partitions
        The problem and its tables.
    gpus
        (partitions,) how many GPUs take each partition. Together they have a slot for every chosen segment.
    chosen
        (workloads, slice types) the number of segments of each workload. Further rows stand for shared slices.

    Returns
    -------
    list of Layout, or None when the fleet has no GPU left to open.
    """
    table = _Table(instance, segments, partitions, gpus)
    strict = np.isfinite(table.cap_rps)
    strict = np.concatenate([strict, np.zeros(len(chosen) - len(strict), bool)])
    for workload in [*np.flatnonzero(strict), *np.flatnonzero(~strict)]:
        for slice_type in np.flatnonzero(chosen[workload]):
            if not table.take(int(slice_type), int(workload), chosen[workload, slice_type]):
                return None
    return [Layout(entry, tuple(held)) for entry, held in zip(table.entry, table.held, strict=True)]


class _Table:
    """GPUs with their free slots: for each slice type, a queue of the GPUs with a free slot."""

    def __init__(self, instance: Instance, segments: Segments, partitions: Partitions, gpus: Ints) -> None:
        self.partitions, self.throughput_rps = partitions, segments.throughput_rps
        self.cap_rps = cap_rps(instance)
        self.left = [
            np.inf if entry.count is None else entry.count - gpus[partitions.entry == index].sum()
            for index, entry in enumerate(instance.fleet)
        ]
        self.entry: list[int] = []
        self.held: list[list[tuple[int, int]]] = []
        self.free: list[list[int]] = [[] for _ in segments.slice_types]
        for partition in np.repeat(np.arange(len(gpus)), gpus).tolist():
            self._open(partition)
        for queue in self.free:
            queue.reverse()

    def take(self, slice_type: int, workload: int, number: int) -> bool:
        """Give a workload ``number`` slots of a slice type; return False if the fleet has too few left."""
        queue = self.free[slice_type]
        at, refused = len(queue) - 1, 0
        for _ in range(number):
            # A GPU that refuses a workload will always refuse it, so slots before ``refused`` are not tried again.
            while at >= refused and not self._accepts(queue[at], slice_type, workload):
                at -= 1
            if at < refused:
                refused = len(queue)
                if not self._open_for(slice_type):
                    return False
                at = len(queue) - 1
            self.held[queue.pop(at)].append((slice_type, workload))
            at -= 1
        return True

    def _accepts(self, gpu: int, slice_type: int, workload: int) -> bool:
        cap = self.cap_rps[workload] if workload < len(self.cap_rps) else np.inf
        mine = [k for k, w in self.held[gpu] if w == workload] if cap < np.inf else ()
        return not mine or sum(min(self.throughput_rps[workload, k], cap) for k in (*mine, slice_type)) <= cap

    def _open_for(self, slice_type: int) -> bool:
        """Open a GPU with a slot of the slice type; return False if the fleet has none left."""
        offering = np.flatnonzero(self.partitions.slots[:, slice_type]).tolist()
        hosts = [partition for partition in offering if self.left[self.partitions.entry[partition]] > 0]
        if hosts:
            self._open(hosts[0])
            self.left[self.partitions.entry[hosts[0]]] -= 1
        return bool(hosts)

    def _open(self, partition: int) -> None:
        for slice_type, slots in enumerate(self.partitions.slots[partition]):
            self.free[slice_type].extend([len(self.held)] * slots)
        self.entry.append(int(self.partitions.entry[partition]))
        self.held.append([])
