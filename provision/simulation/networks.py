"""Closed networks of several models: think times and slice times of batches on a slice with processor sharing.

Every busy process alternates between its think time Z, in which it does not use the slice, and its slice time S. Think
times grow with the number of busy processes. During its slice time a process progresses at a speed in inverse
proportion to the number of processes that use the slice.
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
        The FittedNetworks, with ``models`` by name and the list of ``batches``.
    compute_slices
        The number of compute slices (GPCs) of the slice.
    replicas
        (model, planned batch size) of each replica.
    launching
        The number of busy processes for each row of think times, (rows,).

    Returns
    -------
    tuple
        Think times (rows, replicas, largest batch + 1), and slice times of a process that has the slice to itself
        (replicas, largest batch + 1), in ms, by batch size. A size that is not in ``batches`` has the times of the next
        larger one.
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
