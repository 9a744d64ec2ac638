"""Closed networks of several models: the work of batches on a slice that they share equally (processor sharing).

Every busy process alternates between think time Z, in which it leaves the slice to others, and slice time S. Think
times grow with the number of processes that are busy; slice time is worked off at the speed that the number of
processes on the slice leaves to each.
"""

from collections.abc import Sequence

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.performance.closed_network import work_ms_array
from provision.models.performance.fitted_networks import FittedNetworks


def network_times(
    data: FittedNetworks, compute_slices: int, replicas: Sequence[tuple[str, int]], launching: Ints
) -> tuple[Floats, Floats]:
    """Times of the two stages of batches.

    Parameters
    ----------
    data
        FittedNetworks with ``models`` by name and the grid of ``batches``.
    compute_slices
        Of the slice.
    replicas
        (model, planned batch) of each replica.
    launching
        Numbers of busy processes, one for each row of think times.

    Returns
    -------
    tuple
        (rows, replicas, largest batch + 1) think times, and (replicas, largest batch + 1) slice times of a process
        that has the slice to itself, in ms, of a batch by its size, rounded up to the grid.
    """
    largest = max(batch for _, batch in replicas)
    think_ms, slice_ms = np.zeros((len(launching), len(replicas), largest + 1)), np.zeros((len(replicas), largest + 1))
    for at, (model, batch) in enumerate(replicas):
        sizes = np.array(sorted(size for size in data.batches if size <= batch))
        sizes = sizes[np.searchsorted(sizes, np.arange(1, batch + 1))]
        network = data.models[model].coefficients
        think, work = work_ms_array(network, sizes, np.maximum(launching, 1)[:, None], compute_slices)
        think_ms[:, at, 1 : batch + 1], slice_ms[at, 1 : batch + 1] = think, work
    return think_ms, slice_ms
