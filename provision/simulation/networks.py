"""Closed networks with several classes: batch latencies while given processes of several models are busy.

Every busy process alternates between think time Z and slice time S on a processor-sharing slice. By Schweitzer's
approximate mean value analysis a process of class i takes T_i = Z_i + S_i (1 + sum_j Q_j - Q_i / n_i), where
Q_j = n_j (T_j - Z_j) / T_j of the n_j processes of class j are on the slice at any time.
"""

from collections.abc import Sequence

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.performance.closed_network import work_ms_array
from provision.models.performance.fitted_networks import FittedNetworks

PRECISION = 1e-9


def network_times(data: FittedNetworks, compute_slices: int, replicas: Sequence[tuple[str, int]], busy: Ints) -> Floats:
    """Batch latencies of all replicas on a slice.

    Parameters
    ----------
    data
        FittedNetworks with ``models`` by name and the grid of ``batches``.
    compute_slices
        Of the slice.
    replicas
        (model, planned batch) of each replica.
    busy
        (rows, replicas) numbers of busy processes.

    Returns
    -------
    ndarray
        (rows, replicas, largest batch + 1) latency in ms of a batch by its size, rounded up to the grid, beside
        neighbours with full batches; meaningless where a replica has nobody busy.
    """
    launching = np.maximum(busy.sum(axis=1), 1)
    full = [_work_ms(data, model, [batch], launching, compute_slices) for model, batch in replicas]
    think_ms, slice_ms = (np.concatenate(parts, axis=1) for parts in zip(*full, strict=True))
    others = _others(think_ms, slice_ms, busy)
    times = np.zeros((*busy.shape, max(batch for _, batch in replicas) + 1))
    for at, (model, batch) in enumerate(replicas):
        sizes = np.array(sorted(size for size in data.batches if size <= batch))
        sizes = sizes[np.searchsorted(sizes, np.arange(1, batch + 1))]
        think, work = _work_ms(data, model, sizes, launching, compute_slices)
        times[:, at, 1 : batch + 1] = think + work * (1 + others[:, at, None])
    return times


def _work_ms(
    data: FittedNetworks, model: str, sizes: Sequence[int] | Ints, launching: Ints, compute_slices: int
) -> tuple[Floats, ...]:
    """Think and slice times, each (rows, sizes)."""
    times = work_ms_array(data.models[model].coefficients, np.array(sizes), launching[:, None], compute_slices)
    return np.broadcast_arrays(*times)


def _others(think_ms: Floats, slice_ms: Floats, busy: Ints) -> Floats:
    """(rows, replicas) mean number of other processes on the slice, as a process of each replica finds it."""
    present, previous = np.maximum(busy, 1), np.inf
    times = think_ms + slice_ms * present.sum(axis=1, keepdims=True)
    while np.max(np.abs(previous / times - 1)) > PRECISION:
        previous = times
        on_slice = busy * (1 - think_ms / times)
        others = on_slice.sum(axis=1, keepdims=True) - on_slice / present
        times = think_ms + slice_ms * (1 + others)
    return others
