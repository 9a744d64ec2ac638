"""Levels at which slices are shared, and the operating points of each workload on every kind of slice at each.

A *level* bounds how much slower work gets on a shared slice: P when P processes share it, 1/(1 - U) when it is used
up to U. Then a batch takes Z + slowdown S at most, so that the largest batch under the latency budget, the slice
time of a request and the rate of one process are constants.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.errors import UnsupportedError
from provision.models.base.tolerances import TOLERANCE
from provision.models.contents.alone.segments import Segments, SliceKind
from provision.models.performance.closed_network import work_ms_array
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload

MOST_PROCESSES = 12
"""Processes on one shared slice, at most: launching slows with their number."""
UTILISATIONS = (0.0, 0.3, 0.45, 0.55, 0.65, 0.72, 0.78, 0.83, 0.87, 0.9, 1 - 1 / (MOST_PROCESSES + 1))
"""Lower ends of intervals of utilisation; at the last, more than MOST_PROCESSES slow no more than utilisation does."""


class SharingLevel(NamedTuple):
    """How a shared slice is run: work slows by ``slowdown`` while it is used to ``capacity`` by ``processes``.

    ``launching`` is the number of processes that count as launching batches.
    """

    slowdown: float
    capacity: float
    processes: float
    launching: int


def _by_use(utilisations: Sequence[float], processes: int = MOST_PROCESSES) -> list[SharingLevel]:
    """Levels of slices that are used up to these utilisations, where that slows less than the number of processes."""
    return [SharingLevel(1 / (1 - u), u, processes, processes) for u in utilisations if 1 / (1 - u) < processes]


def _by_number(most: int) -> list[SharingLevel]:
    """Levels of slices shared by 2 up to ``most`` processes."""
    return [SharingLevel(p, 1.0, p, p) for p in range(2, most + 1)]


def _relaxed() -> list[SharingLevel]:
    """Levels that cover every way to share a slice: their lower end gives the slowdown, their upper end the room."""
    ends = zip(UTILISATIONS, (*UTILISATIONS[1:], 1.0), strict=True)
    return _by_number(MOST_PROCESSES) + [SharingLevel(1 / (1 - low), high, math.inf, 2) for low, high in ends]


RELAXED = _relaxed()
"""Levels of the relaxation."""
_USES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
LEVELS = [*_by_number(6), *(level for most in (3, 4, 6, MOST_PROCESSES) for level in _by_use(_USES, most))]
"""Levels at which slices are planned."""
CHOICES = 3
"""Most batch sizes of a workload at a level; it needs several because a part of its rate fills only smaller ones."""
FILLED = 1 + 1e-6
"""The least rate of a process, as a factor on the rate that fills its batches: more than rounding takes away."""


Row = tuple[float, ...]
"""The fields of Shared for one choice, in order."""


class Shared(NamedTuple):
    """How a process runs on a shared slice: arrays (workloads, kinds, levels, choices); batch is 0 where it cannot.

    ``rps`` is the rate that one process carries at most and ``least_rps`` at least, so that its batches fill;
    ``busy`` is the utilisation that one request/s causes, ``memory_gib`` that of one process, ``processes`` how many
    a replica may have.
    """

    batch: Floats
    rps: Floats
    least_rps: Floats
    busy: Floats
    memory_gib: Floats
    processes: Floats


def shared(instance: Instance, segments: Segments) -> Shared:
    """The best batch sizes of every workload on every kind of slice at every one of LEVELS.

    These take the least slice time per request within the latency budget, and the workload's rate fills them in time.
    Budget and memory are exceeded by no more than the verifier tolerates.

    Raises
    ------
    UnsupportedError
        When the networks of a GPU type stand in several files.
    """
    return _tables(instance, segments, LEVELS, _choices, CHOICES)


def relaxed(instance: Instance, segments: Segments) -> Shared:
    """Bounds on every batch size at RELAXED levels, as one choice: the highest rate and the least slice time."""
    return _tables(instance, segments, RELAXED, _most, 1)


def clients(instance: Instance, kind: SliceKind, level: SharingLevel) -> float:
    """Processes that may share a slice of a SliceKind at a SharingLevel."""
    return min(level.processes, instance.fleet[kind.entry].type.slice_mps_clients(kind.profile))


def _tables(
    instance: Instance,
    segments: Segments,
    levels: Sequence[SharingLevel],
    choose: Callable[["_Ways", int], list[Row]],
    choices: int,
) -> Shared:
    for gpu in {entry.gpu for entry in instance.fleet}:
        _refuse_several_files(instance, gpu)
    tables = np.zeros((len(instance.workloads), len(segments.kinds), 6, len(levels), choices))
    for w, workload in enumerate(instance.workloads):
        for k, kind in enumerate(segments.kinds):
            ways = _ways(instance, workload, kind, levels)
            if ways is None:
                continue
            for level in np.flatnonzero(ways.fits.any(axis=1)).tolist():
                found = choose(ways, level)
                tables[w, k, :, level, : len(found)] = np.transpose(found)
    return Shared(*np.moveaxis(tables, 2, 0))


def _refuse_several_files(instance: Instance, gpu: str) -> None:
    """Refuse networks of one GPU type in several files: which workloads may share a slice would depend on the file."""
    models = sorted({one.model for one in instance.workloads if instance.sharing_of(gpu, [one.model])})
    if models and instance.sharing_of(gpu, models) is None:
        raise UnsupportedError(f"mixed-slices needs the closed networks of {gpu} in one file; merge the files")


class _Ways(NamedTuple):
    """A workload's batch sizes on a kind of slice, (sizes,); ``fits`` and ``rps`` are (levels, sizes).

    ``busy`` is that of full batches, ``least_busy`` that of the best ones that the workload's rate fills.
    """

    batch: Ints
    fits: Bools
    rps: Floats
    least_rps: Floats
    rate_rps: float
    busy: Floats
    least_busy: Floats
    memory_gib: Floats
    processes: int


def _ways(instance: Instance, workload: Workload, kind: SliceKind, levels: Sequence[SharingLevel]) -> _Ways | None:
    """The _Ways at some levels; None when the data does not describe the workload on slices of this kind."""
    entry = instance.fleet[kind.entry]
    data = instance.sharing_of(entry.gpu, [workload.model])
    if not isinstance(data, FittedNetworks) or kind.profile not in data.profiles or not entry.mps:
        return None
    network, compute = data.models[workload.model].coefficients, entry.type.slice_compute(kind.profile)
    batch = np.array([size for size in data.batches if size <= network.max_batch], np.int64)
    launching, slowdown = (np.array([[getattr(one, what)] for one in levels]) for what in ("launching", "slowdown"))
    think_ms, slice_ms = work_ms_array(network, batch, launching, compute)
    latency_ms, memory_gib = think_ms + slice_ms * slowdown, network.memory_gib(batch, 1)
    fits = latency_ms <= instance.budget_ms(workload) * (1 + TOLERANCE)
    fits &= memory_gib <= entry.type.slice_memory_gib(kind.profile) * (1 + TOLERANCE)
    sizes, rate_rps = np.arange(1, network.max_batch + 1), instance.planned_rps(workload)
    least_busy = np.minimum.accumulate(work_ms_array(network, sizes, 1, compute)[1] / (1000 * sizes))
    fill_s = instance.policy.fill_ms(workload.slo_ms) / 1000
    filled = np.minimum(batch, 1 + rate_rps * fill_s * (1 + TOLERANCE)).astype(int)
    return _Ways(batch, fits, 1000 * batch / latency_ms, (batch - 1) / fill_s * FILLED, rate_rps,
                 slice_ms / (1000 * batch), least_busy[filled - 1], memory_gib, network.max_processes)


def _choices(ways: _Ways, level: int) -> list[Row]:
    """The batch size of least slice time that the rate fills, and every other smaller one: the fields of Shared."""
    fits = np.flatnonzero(ways.fits[level] & (ways.least_rps <= ways.rate_rps))
    chosen = fits[: np.argmin(ways.busy[fits]) + 1][::-2][:CHOICES] if len(fits) else ()
    return [
        (ways.batch[at], ways.rps[level, at], ways.least_rps[at], ways.busy[at], ways.memory_gib[at], ways.processes)
        for at in chosen
    ]


def _most(ways: _Ways, level: int) -> list[Row]:
    """The best of every field of Shared, with the largest batch."""
    fits = ways.fits[level]
    least_busy = ways.least_busy[fits].min()
    return [(ways.batch[fits].max(), ways.rps[level, fits].max(), 0.0, least_busy, 0.0, ways.processes)]
