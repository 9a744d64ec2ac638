"""Fills a fleet for throughput: every GPU, used or not, gets the partition with the most throughput that has slots for
the segments it holds. Free slots go to the workload that has the most throughput on their slice type.
"""

from collections.abc import Sequence

import numpy as np

from provision.formulations.search.assemble import Layout
from provision.formulations.search.fleet import Partitions, partitions_of
from provision.formulations.search.segments import Segments
from provision.models.base.arrays import Ints
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
    return [_full(segments, partitions, best, layout) for layout in (*layouts, *empty)]


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
