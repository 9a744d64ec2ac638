"""ParvaGPU: segment configurator and allocator (SC 2024, Algorithms 1 and 2).

From the paper: TripletDecision and DemandMatching (Algorithm 1), SegmentRelocation and AllocationOptimization
(Algorithm 2), with the threshold of 4 GPCs. If the paper's text and the public program differ, or both are silent, this
module does the following:

- A segment is put on the fullest GPU with room for it, the first of equals, as in the program (the text goes through
  the GPUs from the first on).
- Segments of size 3 start at slot 4 only; therefore a GPU has at most one of them (section III-E1).
- Otherwise a GPU has room for a segment if MIG's placement table has room for the resulting set of instances; starts
  are chosen at the end. (The program compares sums of GPCs, and its fixed order of slots may make instances overlap.)
- If a rate is a multiple of the optimal segment's throughput, the last optimal segment counts as the last segment.
- Small segments (line 22) have size 2, completed by size 1, if one segment of size 2 carries more than two segments of
  size 1; otherwise they have size 1 (program). A service that can use neither size keeps its segment (the program would
  drop it).
- The result of the optimization is kept only if it needs no more GPUs than before.

Segments are packed best-fit onto the MIG GPUs of one fleet entry, by exact geometry.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol, TypeVar

import numpy as np

from provision.formulations.search.assemble import Layout, assemble
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import Segments, best_segments
from provision.models.hardware.geometry import Partition
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome, Search


class HoldsSegments(Protocol):
    """A GPU with segments, (slice type, workload)."""

    @property
    def segments(self) -> Sequence[tuple[int, int]]:
        """The segments on the GPU."""
        ...


AnyGpu = TypeVar("AnyGpu", bound=HoldsSegments)


class Packs(Protocol[AnyGpu]):
    """Puts segments on GPUs and removes them."""

    gpus: list[AnyGpu]

    def place(self, slice_type: int, workload: int) -> None:
        """Put a segment on a GPU."""
        ...

    def remove(self, gpu: AnyGpu, segment: tuple[int, int]) -> None:
        """Remove a segment from a GPU."""
        ...


class PackedGpu:
    """A GPU that is being filled: its number, the number of its slices of every type (``state``), and its (slice type,
    workload) segments.
    """

    def __init__(self, number: int, state: Partition) -> None:
        self.number, self.state = number, state
        self.segments: list[tuple[int, int]] = []


class Packing:
    """GPUs in the order in which they were opened; a segment is put on the fullest GPU that has room for it.

    Parameters
    ----------
    instance, segments
        The instance, whose only fleet entry has MIG, and its segments.
    admits
        A function that tells whether segments may share a GPU, given the list of their sizes in GPCs; by default they
        always may.
    """

    def __init__(self, instance: Instance, segments: Segments,
                 admits: Callable[[list[int]], bool] = lambda sizes: True) -> None:
        self.gpus: list[PackedGpu] = []
        size = [slice_type.compute for slice_type in segments.slice_types]
        geometry = segments.geometry(instance, 0)
        states = geometry.placements if geometry else {}
        held = {state: [c for c, n in zip(size, state, strict=True) for _ in range(n)] for state in states}
        self._used = {state: sum(sizes) for state, sizes in held.items() if admits(sizes)}
        self._empty: Partition = (0,) * len(size)
        self._hosts = [self._levels(slice_type) for slice_type in range(len(size))]
        self._queues: dict[Partition, list[int]] = {state: [] for state in self._used}

    def place(self, slice_type: int, workload: int) -> None:
        """Put a segment on the fullest GPU with room for it, the first among equals; if there is none, on a new GPU."""
        gpu = self._fullest(slice_type) or self._open()
        self._move(gpu, _changed(gpu.state, slice_type, 1))
        gpu.segments.append((slice_type, workload))

    def remove(self, gpu: PackedGpu, segment: tuple[int, int]) -> None:
        """Remove a segment from a GPU, which stays open for other segments."""
        self._move(gpu, _changed(gpu.state, segment[0], -1))
        gpu.segments.remove(segment)

    def layouts(self) -> list[Layout]:
        """The layouts of the GPUs in use."""
        return [Layout(0, tuple(gpu.segments)) for gpu in self.gpus if gpu.segments]

    def _levels(self, slice_type: int) -> list[list[Partition]]:
        """The states with room for one more slice of a type, in groups of equal use, fullest first."""
        levels: dict[int, list[Partition]] = {}
        for state, amount in self._used.items():
            if _changed(state, slice_type, 1) in self._used:
                levels.setdefault(amount, []).append(state)
        return [levels[amount] for amount in sorted(levels, reverse=True)]

    def _fullest(self, slice_type: int) -> PackedGpu | None:
        for states in self._hosts[slice_type]:
            numbers = [queue[0] for state in states if (queue := self._queues[state]) and self._first(state)]
            if numbers:
                return self.gpus[min(numbers)]
        return None

    def _first(self, state: Partition) -> bool:
        """Whether some GPU is in a state.

        The queue of a state may still hold GPUs that have left the state. Those at its front are removed, so that its
        first entry is a GPU in the state.
        """
        queue = self._queues[state]
        while queue and self.gpus[queue[0]].state != state:
            heappop(queue)
        return bool(queue)

    def _move(self, gpu: PackedGpu, state: Partition) -> None:
        gpu.state = state
        heappush(self._queues[state], gpu.number)

    def _open(self) -> PackedGpu:
        gpu = PackedGpu(len(self.gpus), self._empty)
        self.gpus.append(gpu)
        return gpu


def _changed(state: Partition, slice_type: int, change: int) -> Partition:
    """A state after a change of its number of slices of one type."""
    return (*state[:slice_type], state[slice_type] + change, *state[slice_type + 1 :])


FRAGMENTED_GPCS = 4
"""A GPU with at most this many allocated GPCs is split up by the optimization (section III-E2)."""
EVERY = 0
"""The value of ``max_processes`` that allows any number of processes in the data, as in the public program; the paper
profiles up to three processes.
"""


@dataclass(frozen=True)
class Variant:
    """A variant of ParvaGPU: with or without several processes per segment, with or without allocation optimization."""

    name: str
    max_processes: int | None = None
    optimize: bool = True

    def __call__(self, instance: Instance, control: Search) -> Outcome:
        """Plan an instance; returns the Outcome."""
        segments = best_segments(instance, self.max_processes or control.parameters["max_processes"] or None)
        refused = proved_infeasible(instance, segments)
        if refused:
            return refused
        build_seconds = control.elapsed_s
        layouts = self.layouts(instance, segments)
        plan = assemble(instance, segments, layouts, self.name)
        limit = instance.fleet[0].count
        if limit is not None and len(layouts) > limit:
            reason = f"{self.name} needs {len(layouts)} GPUs and the fleet has {limit}"
            return Outcome("unknown", "completed", reason=reason, build_seconds=build_seconds)
        return Outcome("feasible", "completed", plan, build_seconds=build_seconds)

    def layouts(self, instance: Instance, segments: Segments) -> list[Layout]:
        """The deployment map: the segments of every GPU."""
        packing = _relocate(instance, segments)
        before = packing.layouts()
        if not self.optimize:
            return before
        optimize(packing, segments)
        after = packing.layouts()
        return after if len(after) <= len(before) else before


def demand_matching(instance: Instance, segments: Segments) -> Iterator[tuple[int, int]]:
    """Yield (slice type, workload) for all segments: the optimal segments of each workload and its last segment
    (Algorithm 1, lines 14-22).
    """
    size = np.array([slice_type.compute for slice_type in segments.slice_types])
    ascending = np.argsort(size, kind="stable")
    for workload, throughput in enumerate(segments.throughput_rps):
        rate = instance.planned_rps(instance.workloads[workload])
        optimal = int(np.argmax(throughput / size))
        several = max(math.ceil(rate / throughput[optimal]) - 1, 0)
        left = min(rate - several * throughput[optimal], throughput[optimal])
        enough = (throughput >= left) & (throughput > 0)
        yield from [(optimal, workload)] * several
        yield int(ascending[np.argmax(enough[ascending])]), workload


def _relocate(instance: Instance, segments: Segments) -> Packing:
    """Pack the segments of all services onto GPUs, largest first (Algorithm 2, lines 2-11)."""
    packing = Packing(instance, segments, admits=lambda sizes: sizes.count(3) <= 1)
    relocated(packing, segments, demand_matching(instance, segments))
    return packing


def relocated(packing: Packs[AnyGpu], segments: Segments, pairs: Iterable[tuple[int, int]]) -> None:
    """Place some segments, (slice type, workload), largest first."""
    for slice_type, workload in sorted(pairs, key=lambda pair: -segments.slice_types[pair[0]].compute):
        packing.place(slice_type, workload)


def optimize(packing: Packs[AnyGpu], segments: Segments) -> None:
    """Split the segments of fragmented GPUs, last GPU first (Algorithm 2, lines 12-32)."""
    freed: dict[int, float] = {}
    for gpu in reversed(packing.gpus):
        if sum(segments.slice_types[slice_type].compute for slice_type, _ in gpu.segments) > FRAGMENTED_GPCS:
            continue
        for slice_type, workload in tuple(gpu.segments):
            due = freed.get(workload, 0.0) + segments.throughput_rps[workload, slice_type]
            small, freed[workload] = _small_segments(segments, workload, due)
            if small is None:
                freed[workload] = due - segments.throughput_rps[workload, slice_type]
                continue
            packing.remove(gpu, (slice_type, workload))
            for one in sorted(small, key=lambda k: -segments.slice_types[k].compute):
                packing.place(one, workload)


def _small_segments(segments: Segments, workload: int, due: float) -> tuple[list[int] | None, float]:
    """(slice types of sizes 1 and 2 that carry a rate ``due``, the requests/s that they lack; a negative number is an
    excess).

    The list is None if the service runs on neither size.
    """
    throughput = segments.throughput_rps[workload]
    one, two = (
        max(
            (k for k, slice_type in enumerate(segments.slice_types) if slice_type.compute == size),
            key=throughput.__getitem__,
            default=None,
        )
        for size in (1, 2)
    )
    rate_1 = throughput[one] if one is not None else 0.0
    rate_2 = throughput[two] if two is not None else 0.0
    if not rate_1 and not rate_2:
        return None, due
    small: list[int] = []
    if two is not None and rate_2 > 2 * rate_1:
        several = math.floor(due / rate_2) if rate_1 else math.ceil(due / rate_2)
        small += [two] * several
        due -= max(several, 0) * rate_2
    if one is not None and rate_1:
        several = math.ceil(due / rate_1)
        small += [one] * several
        due -= max(several, 0) * rate_1
    return small, due


def _method(variant: Variant, summary: str) -> Method:
    return Method(
        name=variant.name,
        summary=summary,
        run=variant,
        source="ParvaGPU, SC 2024, Algorithms 1 and 2",
        features=frozenset({"limited_counts", "with_mig", "without_mps", "isolated_data", "max_throughput"}),
        parameters={} if variant.max_processes else {"max_processes": EVERY},
    )


PARVAGPU = Variant("parvagpu")
METHODS = (
    _method(PARVAGPU, "MIG segments with MPS processes, relocated and optimized"),
    _method(Variant("parvagpu-single", max_processes=1), "ParvaGPU with one process per segment"),
    _method(Variant("parvagpu-unoptimized", optimize=False), "ParvaGPU without allocation optimization"),
)
