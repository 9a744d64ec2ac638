"""The partitions of every fleet entry's GPUs as one table, and the rows that all models with partition counts share.

    types      GPUs of a type  >=  those in its partitions
    slices     slices of a type in the partitions  >=  what stands on them

This module makes the coefficients of both kinds of rows, as matrices or as linear terms of any library's variables.
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
    """The undominated partitions of a fleet: (partitions,) fleet entries, and (partitions, slice types) slots."""

    entry: Ints
    slots: Ints

    def used(self, entries: Sequence[int]) -> csr_array:
        """(entries, partitions) the GPUs of some fleet entries that each partition takes: 1 of its own entry."""
        return csr_array(1.0 * (np.array(entries, int)[:, None] == self.entry))

    def offered(self) -> csr_array:
        """(slice types, partitions) the slices of every type that a GPU has in each partition."""
        return csr_array(1.0 * self.slots.T)

    def of_entry(self, entry: int, gpus: Sequence[Any]) -> list[Any]:
        """The variables of the partitions of a fleet entry; ``gpus`` has one for each partition."""
        return [gpus[at] for at in np.flatnonzero(self.entry == entry).tolist()]

    def slices(self, gpus: Mapping[int, Any] | Iterable[tuple[int, Any]]) -> defaultdict[int, list[Any]]:
        """For each slice type, linear terms that count its slices; ``gpus`` are variables by partition."""
        terms: defaultdict[int, list[Any]] = defaultdict(list)
        for partition, many in gpus.items() if isinstance(gpus, Mapping) else gpus:
            for slice_type in np.flatnonzero(self.slots[partition]).tolist():
                terms[slice_type].append(int(self.slots[partition, slice_type]) * many)
        return terms


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
