"""Levels at which slices are shared, and what each workload does on every kind of slice at every level.

A *level* bounds how much slower work gets on a shared slice: P when P processes share it, 1/(1 - U) when it is used
up to U. Then a batch takes Z + slowdown S at most, so that the largest batch under the latency budget, the slice
time of a request and the rate of one process are constants.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from provision.models.closed_network import work_ms_array
from provision.models.errors import UnsupportedError
from provision.models.segments import ROUNDING

MOST_PROCESSES = 12
"""Processes on one shared slice, at most: launching slows with their number."""
UTILISATIONS = (0.0, 0.3, 0.45, 0.55, 0.65, 0.72, 0.78, 0.83, 0.87, 0.9, 1 - 1 / (MOST_PROCESSES + 1))
"""Ends of intervals; the last is where more processes than the most are no slower than utilisation alone."""


class Level(NamedTuple):
    """How a shared slice is run: work slows by ``slowdown`` while it is used to ``capacity`` by ``processes``.

    ``launching`` is the number of processes whose launching is reckoned with.
    """

    slowdown: float
    capacity: float
    processes: float
    launching: int


def _by_use(utilisations, processes=MOST_PROCESSES):
    """Levels of slices that are used up to these utilisations, where that slows less than the number of processes."""
    return [Level(1 / (1 - u), u, processes, processes) for u in utilisations if 1 / (1 - u) < processes]


def _by_number(most):
    """Levels of slices shared by 2 up to ``most`` processes."""
    return [Level(p, 1.0, p, p) for p in range(2, most + 1)]


def _relaxed():
    """Levels that cover every way to run a shared slice: an interval slows as its lower and holds as its upper end."""
    ends = zip(UTILISATIONS, (*UTILISATIONS[1:], 1.0), strict=True)
    return _by_number(MOST_PROCESSES) + [Level(1 / (1 - low), high, math.inf, 2) for low, high in ends]


RELAXED = _relaxed()
"""Levels of the relaxation."""
QUICK = [*_by_use(UTILISATIONS[1:]), *_by_number(MOST_PROCESSES)[-1:]]
"""Levels of the first attempts."""
THOROUGH = _by_number(6) + _by_use((0.55, 0.65, 0.75, 0.83, 0.9))
"""Levels of the attempts to save a GPU more."""
FINE = THOROUGH + [level for most in (2, 3, 4, 6) for level in _by_use(np.arange(0.1, 0.9, 0.05).tolist(), most)]
"""Levels of the last attempt: few processes that are not always busy."""


@dataclass(frozen=True)
class Shared:
    """What a process does on a shared slice, arrays (workloads, kinds, levels); a batch of 0 for cannot.

    ``rps`` is the rate that one process carries (``most_rps`` at any batch), ``busy`` the utilisation that one
    request/s causes, ``memory_gib`` that of one process.
    """

    batch: np.ndarray
    rps: np.ndarray
    most_rps: np.ndarray
    busy: np.ndarray
    memory_gib: np.ndarray


def shared(instance, segments, levels):
    """The best batch of every workload on every kind of slice at every level.

    It is the one that needs least slice time per request within the latency budget; ``most_rps`` is the highest
    rate that a process carries at any batch. Budget and memory have the verifier's tolerance.

    Raises
    ------
    UnsupportedError
        When the networks of a GPU type stand in several files.
    """
    _one_file_per_gpu(instance)
    ways = [_ways(instance, one, kind, levels) for one in instance.workloads for kind in segments.kinds]
    shape = (len(instance.workloads), len(segments.kinds), 5, len(levels))
    return Shared(*np.moveaxis(np.array(ways).reshape(shape), 2, 0))


def _one_file_per_gpu(instance):
    """Refuse sharing data in several files: which pairs share a slice would depend on the file."""
    for gpu in {entry.gpu for entry in instance.fleet}:
        models = {one.model for one in instance.workloads if instance.sharing_of(gpu, [one.model])}
        if models and instance.sharing_of(gpu, models) is None:
            raise UnsupportedError(f"mixed-counts needs the closed networks of {gpu} in one file; merge the files")


def _ways(instance, workload, kind, levels):
    """The fields of Shared, in order, for one workload on one kind, (5, levels)."""
    ways, entry = np.zeros((5, len(levels))), instance.fleet[kind.entry]
    data = instance.sharing_of(entry.gpu, [workload.model])
    if data is None or kind.profile not in data.profiles or not entry.mps:
        return ways
    network = data.models[workload.model].coefficients
    batch = np.array([size for size in data.batches if size <= network.max_batch])
    if not len(batch):
        return ways
    launching, slowdown = (np.array([[getattr(one, what)] for one in levels]) for what in ("launching", "slowdown"))
    think_ms, slice_ms = work_ms_array(network, batch, launching, entry.type.slice_compute(kind.profile))
    latency_ms, memory_gib = think_ms + slice_ms * slowdown, network.memory_gib(batch, 1)
    fits = latency_ms <= instance.budget_ms(workload) * (1 + ROUNDING)
    fits &= memory_gib <= entry.type.slice_memory_gib(kind.profile) * (1 + ROUNDING)
    rps, busy = np.where(fits, 1000 * batch / latency_ms, 0), slice_ms / (1000 * batch)
    best = np.argmin(np.where(fits, busy, np.inf), axis=1)
    at = np.arange(len(levels))
    found = np.array([batch[best], rps[at, best], rps.max(axis=1), busy[best], memory_gib[best]])
    return np.where(fits.any(axis=1), found, 0)
