"""The contents of slices in mixed plans, as flat arrays for kernels: settings of shared slices, ways, segments."""

from typing import NamedTuple

import numpy as np

from provision.formulations.mixed.levels import LEVELS, SharingLevel, clients, shared
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.tolerances import TOLERANCE
from provision.models.contents.alone.partitions import partitions_of
from provision.models.contents.alone.segments import Segments, SliceKind
from provision.models.problem.instance import Instance

MARGIN = 1 - TOLERANCE
"""The part of their capacity that slices and processes are planned for; the rest leaves room for rounding."""


class SettingTables(NamedTuple):
    """A *setting* is a kind of slice shared at a level; its *ways* are workloads at batch sizes.

    Attributes
    ----------
    kind, level, room, clients, memory_gib
        (settings,) of a setting; ``room`` is the utilisation it allows.
    first
        (settings + 1,) where the ways of each setting begin.
    workload, batch, most, least, busy, held_gib, processes
        (ways,): ``most`` is the part of a workload's planned rate that one process carries, ``least`` what a replica
        must carry to fill its batches, ``busy`` the utilisation that all of the rate would cause, ``held_gib`` the
        memory of a process, ``processes`` the most of a replica.
    segment
        (workloads, kinds) part of the rate that a segment carries.
    slots, entry
        (partitions, kinds) and (partitions,): the partitions of the fleet.
    split
        (workloads,) whether every process is a replica of its own, since several are asked for.
    worth
        (workloads,) the least part of a GPU that carries the rate.
    """

    kind: Ints
    level: Ints
    room: Floats
    clients: Floats
    memory_gib: Floats
    first: Ints
    workload: Ints
    batch: Floats
    most: Floats
    least: Floats
    busy: Floats
    held_gib: Floats
    processes: Floats
    segment: Floats
    slots: Ints
    entry: Ints
    split: Bools
    worth: Floats


def tables_of(instance: Instance, segments: Segments) -> SettingTables:
    """The SettingTables of an instance."""
    rate_rps = np.array([instance.planned_rps(one) for one in instance.workloads])
    safe_rps = np.maximum(rate_rps, 1e-9)
    split = np.array([one.min_replicas > 1 for one in instance.workloads])
    found = shared(instance, segments)
    kind, level, w, choice = np.nonzero(found.batch.transpose(1, 2, 0, 3))
    batch, rps, least_rps, busy, held_gib, processes = (one[w, kind, level, choice] for one in found)
    setting, first = np.unique(np.stack([kind, level], axis=1), axis=0, return_index=True)
    limits = [_limits(instance, segments.kinds[k], LEVELS[one]) for k, one in setting]
    room, most_clients, memory_gib = np.array(limits, float).reshape(-1, 3).T
    segment = np.minimum(segments.throughput_rps / safe_rps[:, None] * MARGIN, 1)
    partitions = partitions_of(instance, segments)
    part_of_gpu = np.array([_part_of_gpu(instance, one) for one in segments.kinds])
    setting_kind, setting_level = setting.reshape(-1, 2).T
    fields = (
        setting_kind, setting_level, room, most_clients, memory_gib, np.append(first, len(w)),
        w, batch, rps * MARGIN / safe_rps[w], least_rps / safe_rps[w], busy * rate_rps[w], held_gib,
        np.where(split[w], np.inf, processes), segment, partitions.slots, partitions.entry, split,
        _worth(segment, part_of_gpu, w, busy * rate_rps[w] * part_of_gpu[kind]),
    )
    return SettingTables(*map(np.ascontiguousarray, fields))  # kernels are compiled for one layout


def _limits(instance: Instance, kind: SliceKind, level: SharingLevel) -> tuple[float, float, float]:
    """(utilisation, processes, GiB) that a shared slice allows."""
    memory_gib = instance.fleet[kind.entry].type.slice_memory_gib(kind.profile)
    return level.capacity * MARGIN, clients(instance, kind, level), memory_gib * MARGIN


def _part_of_gpu(instance: Instance, kind: SliceKind) -> float:
    entry = instance.fleet[kind.entry]
    return kind.compute / entry.type.compute_slices if entry.partitioned else 1.0


def _worth(segment: Floats, part_of_gpu: Floats, workload: Ints, taken: Floats) -> Floats:
    """Least part of a GPU for each workload's rate, by segments in fractions and by ways."""
    with np.errstate(divide="ignore"):
        worth = np.where(segment > 0, part_of_gpu / segment, np.inf).min(axis=1, initial=np.inf)
    np.minimum.at(worth, workload, taken)
    return np.where(np.isfinite(worth), worth, 1.0)
