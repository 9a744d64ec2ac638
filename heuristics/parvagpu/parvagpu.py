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
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from provision.formulations.search.assemble import Layout, assemble
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import Segments, best_segments
from provision.heuristics.parvagpu.packing import AnyGpu, Packing, Packs
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome, Search

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
