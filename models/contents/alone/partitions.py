"""Whole-GPU partitions of every fleet entry as one table, for models that count GPUs by partition."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Partitions:
    """The undominated partitions of a fleet: (partitions,) fleet entry and (partitions, kinds) slots."""

    entry: np.ndarray
    slots: np.ndarray


def partitions_of(instance, segments):
    """Undominated partitions over the kinds of an instance's segments, fleet entries in order."""
    entries, rows = [], []
    for entry in range(len(instance.fleet)):
        kinds = segments.of_entry(entry)
        geometry = segments.geometry(instance, entry)
        found = geometry.undominated_partitions if geometry else ((1,),) if kinds else ()
        for counts in found:
            row = np.zeros(len(segments.kinds), int)
            row[kinds] = counts
            entries.append(entry)
            rows.append(row)
    return Partitions(np.array(entries, int), np.array(rows, int).reshape(len(rows), len(segments.kinds)))
