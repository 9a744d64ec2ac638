"""Whole-GPU partitions of every fleet entry as one table, for models that count GPUs by partition."""

from dataclasses import dataclass

import numpy as np

from provision.formulations.search.segments import Segments
from provision.models.base.arrays import Ints
from provision.models.problem.instance import Instance


@dataclass(frozen=True)
class Partitions:
    """The undominated partitions of a fleet: (partitions,) fleet entries, and (partitions, slice types) slots."""

    entry: Ints
    slots: Ints


def partitions_of(instance: Instance, segments: Segments) -> Partitions:
    """Undominated partitions over the slice types of an instance's segments, fleet entries in order."""
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
