"""Fills a fleet for throughput, with the free slots of GPUs and with segments that are not needed.

1. Every GPU, used or not, gets the partition with the most throughput that has slots for the segments it holds. Free
   slots go to the workload that has the most throughput on their slice type.
2. A segment that its workload does not need goes to the best workload of its slice type, too. Segments with the
   largest gain come first.
"""

from collections.abc import Sequence

import numpy as np

from provision.formulations.pricing.alone.assemble import Layout
from provision.formulations.search.partitions import Partitions, partitions_of
from provision.formulations.search.segments import Segments, cap_rps
from provision.models.base.arrays import Floats, Ints
from provision.models.problem.instance import Instance


def filled(instance: Instance, segments: Segments, layouts: Sequence[Layout]) -> list[Layout]:
    """Extend layouts that carry all rates to all GPUs of the fleet.

    Parameters
    ----------
    instance, segments
        The problem and its segments; workloads may have any number of replicas.
    layouts
        Layouts on no more GPUs than there are.
    """
    used = np.bincount([layout.entry for layout in layouts], minlength=len(instance.fleet))
    empty = [Layout(at, ()) for at, entry in enumerate(instance.fleet) for _ in range((entry.count or 0) - used[at])]
    partitions, best = partitions_of(instance, segments), segments.throughput_rps.argmax(axis=0)
    full = [_full(segments, partitions, best, layout) for layout in (*layouts, *empty)]
    return full if np.isfinite(cap_rps(instance)).any() else _traded(instance, segments, best, full)


def _full(segments: Segments, partitions: Partitions, best: Ints, layout: Layout) -> Layout:
    """A layout whose free slots are filled with segments of the best workload of their slice type."""
    held = np.bincount([slice_type for slice_type, _ in layout.segments], minlength=len(segments.slice_types)).astype(
        int
    )
    most = segments.throughput_rps[best, np.arange(len(best))]
    free = (partitions.slots - held)[(partitions.entry == layout.entry) & (partitions.slots >= held).all(axis=1)]
    if not len(free):
        return layout
    slice_types = np.repeat(np.arange(len(most)), np.where(most > 0, free[(free @ most).argmax()], 0))
    return Layout(
        layout.entry, (*layout.segments, *((int(slice_type), int(best[slice_type])) for slice_type in slice_types))
    )


def _traded(instance: Instance, segments: Segments, best: Ints, layouts: Sequence[Layout]) -> list[Layout]:
    """Layouts in which some segments were given to another workload: a segment that its workload does not need goes to
    the workload that carries most on its slice type.
    """
    rps, held = segments.throughput_rps, [list(layout.segments) for layout in layouts]
    spare_rps = -np.array([instance.planned_rps(one) for one in instance.workloads])
    spare = -np.array([one.min_replicas for one in instance.workloads])
    for slice_type, one in (pair for gpu in held for pair in gpu):
        spare_rps[one] += rps[one, slice_type]
        spare[one] += 1
    places = [(gpu, at) for gpu, pairs in enumerate(held) for at in range(len(pairs))]
    for gpu, at in sorted(places, key=lambda place: _gain(rps, best, held[place[0]][place[1]]), reverse=True):
        slice_type, one = held[gpu][at]
        if best[slice_type] != one and spare_rps[one] >= rps[one, slice_type] and spare[one] > 0:
            held[gpu][at] = slice_type, int(best[slice_type])
            spare_rps[one] -= rps[one, slice_type]
            spare[one] -= 1
    return [Layout(layout.entry, tuple(pairs)) for layout, pairs in zip(layouts, held, strict=True)]


def _gain(rps: Floats, best: Ints, pair: tuple[int, int]) -> float:
    """The requests/s that are gained if a segment is given to the workload that carries most on its slice type."""
    slice_type, one = pair
    return rps[best[slice_type], slice_type] - rps[one, slice_type]
