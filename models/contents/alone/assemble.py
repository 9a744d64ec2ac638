"""From a layout (which segments share a GPU) to a plan: slices get places, replicas their rates."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from provision.models.contents.alone.segments import cap_rps
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice


class Layout(NamedTuple):
    """The segments on one GPU of a fleet entry, each (kind, workload) by index.

    Indices from the number of workloads on stand for shared slices.
    """

    entry: int
    segments: tuple


def assemble(instance, segments, layouts, method, shared=()):
    """The plan of a list of layouts.

    Parameters
    ----------
    instance
        The problem.
    segments
        Its Segments.
    layouts
        One Layout per GPU; every one must be feasible for the GPU's geometry.
    method
        The name to write into the plan.
    shared
        Tuples of replicas, one per shared slice; the segments carry what these leave of a workload's rate.

    Returns
    -------
    Plan
        GPUs in the order given, slices in the order of their starts.
    """
    layouts = [layout for layout in layouts if layout.segments]
    rates = iter(_rates(instance, segments, layouts, shared))
    starts = _Starts(instance, segments)
    gpus = []
    for layout in layouts:
        entry = instance.fleet[layout.entry]
        slices = [
            Slice(
                profile=segments.kinds[kind].profile,
                start=start,
                replicas=shared[index - len(instance.workloads)]
                if index >= len(instance.workloads)
                else (_replica(instance, segments, kind, index, next(rates)),),
            )
            for (kind, index), start in zip(layout.segments, starts.of(layout), strict=True)
        ]
        slices.sort(key=lambda piece: piece.start)
        gpus.append(PlannedGpu(gpu=entry.gpu, mig=entry.partitioned, slices=tuple(slices)))
    return Plan(version=1, instance=instance.name, digest=instance.digest, method=method, gpus=tuple(gpus))


def _replica(instance, segments, kind, workload, rate_rps):
    return Replica(
        workload=instance.workloads[workload].name,
        batch=int(segments.batch[workload, kind]),
        processes=int(segments.processes[workload, kind]),
        rate_rps=rate_rps,
        model=instance.workloads[workload].named(segments.model[workload, kind]),
    )


class _Starts:
    """Start slots of the segments of a layout; GPUs with the same kinds in the same order are worked out once."""

    def __init__(self, instance, segments):
        entries = range(len(instance.fleet))
        self.geometry = [segments.geometry(instance, entry) for entry in entries]
        self.kinds = [segments.of_entry(entry) for entry in entries]
        self.known = {}

    def of(self, layout):
        """Starts, in the order of the layout's segments."""
        key = (layout.entry, tuple(kind for kind, _ in layout.segments))
        if key not in self.known:
            self.known[key] = self._place(*key)
        return self.known[key]

    def _place(self, entry, kinds):
        if self.geometry[entry] is None:
            return [0]
        free = {}
        for start, local in self.geometry[entry].place([kinds.count(kind) for kind in self.kinds[entry]]):
            free.setdefault(self.kinds[entry][local], []).append(start)
        return [free[kind].pop(0) for kind in kinds]


def _rates(instance, segments, layouts, shared):
    """Rate of every segment, in order: what is left of each workload's planned rate, in proportion to throughput.

    Where a workload may have only a part of its rate on one GPU, GPUs are filled up to that part.
    """
    isolated = len(instance.workloads)
    table = np.array(
        [(at, *pair) for at, layout in enumerate(layouts) for pair in layout.segments if pair[1] < isolated], int
    )
    gpu, kind, workload = table.reshape(-1, 3).T
    capacity = segments.throughput_rps[workload, kind]
    elsewhere = Counter()
    for replica in (one for replicas in shared for one in replicas):
        elsewhere[replica.workload] += replica.rate_rps
    planned = np.array([max(0.0, instance.planned_rps(one) - elsewhere[one.name]) for one in instance.workloads])
    caps = cap_rps(instance)
    for index in np.flatnonzero(np.isfinite(caps)):
        rows = np.flatnonzero(workload == index)
        capacity[rows] *= _capped(gpu[rows], capacity[rows], caps[index])
    total = np.bincount(workload, capacity, len(planned))
    return (capacity * (planned / np.where(total > 0, total, 1))[workload]).tolist()


def _capped(gpu, capacity, most):
    """Factors that scale the capacities on each GPU down to at most ``most``."""
    on_gpu = np.bincount(gpu, capacity)[gpu]
    return np.minimum(1, most / on_gpu)
