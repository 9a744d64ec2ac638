"""What slices may hold, as flat arrays for kernels: segments, and settings at which closed networks share them."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.shared_mig.levels import searched_levels
from provision.formulations.pricing.shared_mig.points import Choice, choices_of
from provision.formulations.search.partitions import partitions_of
from provision.formulations.search.segments import Segments, SliceType, cap_rps
from provision.heuristics.core.schedule import SliceSchedule
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.instance import Instance

NONE = -1
"""Stands for nothing in arrays of indices."""
MARGIN = 1 - TOLERANCE
"""The part of their capacity that slices and processes are planned for; the rest leaves room for rounding."""
ANY_NUMBER = 10**9
"""A number of replicas that stands for no limit."""


class SettingTables(NamedTuple):
    """A *setting* is a slice type that networks of one file share at a level; its *ways* run workloads there.

    A way is a replica of ``counted`` workloads, whose number matters; of other workloads it is one process, of which a
    replica may have several.

    Attributes
    ----------
    slice_type, room, clients, memory_gib
        (settings,) of a setting; ``room`` is the utilisation and ``clients`` the number of processes that it allows.
    first
        (settings + 1,) where the ways of each setting begin.
    workload, model, batch, processes
        (ways,) what a way runs; ``model`` counts in the models of the workload.
    most, least, busy, held_gib, limit
        (ways,): ``most`` is the part of a workload's planned rate that a way carries, ``least`` what it must carry for
        its batches to fill, ``busy`` the utilisation that all of the rate would cause, ``held_gib`` its memory,
        ``limit`` how often a slice may have it.
    segment
        (workloads, slice types) part of the rate that a segment carries.
    cap, fewest, replicas, counted
        (workloads,) part of the rate that one GPU may carry, numbers of replicas at least and at most, and whether
        every way is a replica.
    worth
        (workloads,) the least part of a GPU that carries the rate.
    slots, entry
        (partitions, slice types) and (partitions,): the partitions of the fleet.
    schedule
        The numbers that steer the search.
    """

    slice_type: Ints
    room: Floats
    clients: Ints
    memory_gib: Floats
    first: Ints
    workload: Ints
    model: Ints
    batch: Ints
    processes: Ints
    most: Floats
    least: Floats
    busy: Floats
    held_gib: Floats
    limit: Ints
    segment: Floats
    cap: Floats
    fewest: Ints
    replicas: Ints
    counted: Bools
    worth: Floats
    slots: Ints
    entry: Ints
    schedule: SliceSchedule


class _Way(NamedTuple):
    """A Choice of a workload at a setting."""

    setting: int
    workload: int
    model: int
    choice: Choice
    limit: int


def tables_of(instance: Instance, segments: Segments, schedule: SliceSchedule) -> SettingTables:
    """The SettingTables of an instance."""
    rate_rps = np.maximum([instance.planned_rps(one) for one in instance.workloads], 1e-9)
    counted = np.array([_is_counted(instance, at) for at in range(len(rate_rps))], bool)
    settings: list[tuple[int, float, int, float]] = []
    ways = list(_ways(instance, segments, counted, settings))
    slice_type, room, clients, memory_gib = np.array(settings).reshape(-1, 4).T
    setting, w, model, limit = np.array([(one.setting, one.workload, one.model, one.limit) for one in ways],
                                        np.int64).reshape(-1, 4).T
    _, batch, processes, least_rps, most_rps, busy, held_gib = np.array([one.choice for one in ways]).reshape(-1, 7).T
    segment = np.minimum(segments.throughput_rps / rate_rps[:, None] * MARGIN, 1)
    partitions = partitions_of(instance, segments)
    part_of_gpu = np.array([_part_of_gpu(instance, one) for one in segments.slice_types])
    taken = np.where(busy > 0, busy, processes / clients[setting] / most_rps) * rate_rps[w]
    fields = (
        slice_type.astype(np.int64), room, clients.astype(np.int64), memory_gib,
        np.searchsorted(setting, np.arange(len(settings) + 1)), w, model, batch.astype(np.int64),
        processes.astype(np.int64), most_rps * MARGIN / rate_rps[w], least_rps / rate_rps[w], busy * rate_rps[w],
        held_gib, limit, segment, cap_rps(instance) / rate_rps,
        np.array([one.min_replicas for one in instance.workloads]),
        np.array([one.max_replicas or ANY_NUMBER for one in instance.workloads]), counted,
        _worth(segment, part_of_gpu, w, taken * part_of_gpu[slice_type.astype(np.int64)[setting]]),
        partitions.slots, partitions.entry,
    )
    return SettingTables._make([*map(np.ascontiguousarray, fields), schedule])  # kernels are compiled for such arrays


def _is_counted(instance: Instance, at: int) -> bool:
    """Whether the number of a workload's replicas matters, or how many processes each has."""
    one = instance.workloads[at]
    return one.min_replicas > 1 or one.max_replicas is not None or instance.shared_rule.random_arrivals


def _ways(instance: Instance, segments: Segments, counted: Bools, settings: list[tuple[int, float, int, float]]
          ) -> Iterator[_Way]:
    """Yield the ways to run each workload on each slice type at each level of utilisation.

    A slice type at a level is a setting. For every setting that two workloads can share, (slice type, room, clients,
    memory in GiB) is appended to ``settings``.
    """
    for number, slice_type in enumerate(segments.slice_types):
        entry = instance.fleet[slice_type.entry]
        known: set[str] = set()
        for data in instance.sharing_files(entry.gpu) if entry.mps else ():
            if isinstance(data, FittedNetworks) and slice_type.profile in data.profiles:
                levels = searched_levels(entry.type.slice_mps_clients(slice_type.profile),
                                        instance.shared_rule.random_arrivals)
                found = list(_of_file(instance, slice_type, data, known, counted))
                for level, one in enumerate(levels):
                    here = [way for way in found if way.choice.level == level]
                    if len({way.workload for way in here}) > 1:
                        yield from (way._replace(setting=len(settings)) for way in here)
                        settings.append((number, one.use * MARGIN, one.processes,
                                         entry.type.slice_memory_gib(slice_type.profile) * MARGIN))
                known |= set(data.models)


def _of_file(instance: Instance, slice_type: SliceType, data: FittedNetworks, known: set[str], counted: Bools
             ) -> Iterator[_Way]:
    """The ways of one file's networks on a slice type, but for models that a file before it describes."""
    entry = instance.fleet[slice_type.entry]
    clients = entry.type.slice_mps_clients(slice_type.profile)
    levels = searched_levels(clients, instance.shared_rule.random_arrivals)
    for w, workload in enumerate(instance.workloads):
        for model, name in enumerate(() if workload.tokens else workload.models):
            if name in data.models and name not in known:
                network = data.models[name].coefficients
                most = min(network.max_processes, clients)
                found = choices_of(instance, workload, network, data.batches, entry, slice_type.profile, levels,
                                   most if counted[w] else 1)
                yield from (_Way(0, w, model, one, ANY_NUMBER if counted[w] else most) for one in found)


def _part_of_gpu(instance: Instance, slice_type: SliceType) -> float:
    entry = instance.fleet[slice_type.entry]
    return slice_type.compute / entry.type.compute_slices if entry.partitioned else 1.0


def _worth(segment: Floats, part_of_gpu: Floats, workload: Ints, taken: Floats) -> Floats:
    """Least part of a GPU for each workload's rate, by segments in fractions and by ways."""
    with np.errstate(divide="ignore"):
        worth = np.where(segment > 0, part_of_gpu / segment, np.inf).min(axis=1, initial=np.inf)
    np.minimum.at(worth, workload, taken)
    return np.where(np.isfinite(worth), worth, 1.0)
