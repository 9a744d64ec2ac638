"""The partitions of the GPUs of every fleet entry as one table, and the rows that all programs with partition counts
share.

    types      GPUs of a type  >=  those in its partitions
    slices slices of a type in the partitions >= what occupies them

This module makes the coefficients of both kinds of rows, as matrices or as linear terms over the variables of any
library.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from provision.formulations.search.segments import Segments
from provision.models.base.arrays import Ints
from provision.models.problem.instance import Instance


@dataclass(frozen=True)
class Partitions:
    """The undominated partitions of a fleet.

    ``entry`` (partitions,) is the fleet entry of each, and ``slots`` (partitions, slice types) its number of slices of
    each type.
    """

    entry: Ints
    slots: Ints

    def used(self, entries: Sequence[int]) -> csr_array:
        """(entries, partitions) 1 where a partition belongs to the fleet entry, else 0: the GPUs that it takes of the
        entry.
        """
        return csr_array(1.0 * (np.array(entries, int)[:, None] == self.entry))

    def offered(self) -> csr_array:
        """(slice types, partitions) the number of slices of each type that a GPU with the partition has."""
        return csr_array(1.0 * self.slots.T)

    def slices(self, gpus: Mapping[int, Any] | Iterable[tuple[int, Any]]) -> defaultdict[int, list[Any]]:
        """For each slice type, the linear terms whose sum is its number of slices. ``gpus`` are variables by partition.
        """
        terms: defaultdict[int, list[Any]] = defaultdict(list)
        for partition, many in gpus.items() if isinstance(gpus, Mapping) else gpus:
            for slice_type in np.flatnonzero(self.slots[partition]).tolist():
                terms[slice_type].append(int(self.slots[partition, slice_type]) * many)
        return terms


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
