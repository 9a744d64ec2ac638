"""Puts chosen segments into the slots of chosen partitions. A slot is a slice that a partition offers."""

import numpy as np

from provision.formulations.pricing.alone.assemble import Layout
from provision.formulations.search.partitions import Partitions
from provision.formulations.search.segments import Segments, cap_rps
from provision.models.base.arrays import Ints
from provision.models.problem.instance import Instance


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
