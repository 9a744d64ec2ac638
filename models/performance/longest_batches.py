"""Longest batch times beside neighbours that are always busy, path by path: no average and no probability in them.

With such a time as its hold time every replica on a shared slice is a queue of its own, whatever the others do.
"""

import numpy as np


def network_hold_ms(
    think_ms: np.ndarray, slice_ms: np.ndarray, cycle_ms: np.ndarray, processes: np.ndarray
) -> np.ndarray:
    """Longest time of a batch of every replica on a slice that its processes share equally (processor sharing).

    A process thinks for Z and has S of work for the slice. While process i is on the slice, every other process j gets
    there what i gets, so no more than S_i in all; nor does it do more than its own work S_j in each of the
    1 + floor(t / cycle_j) visits that begin within t. Until i has ended t is therefore less than

        Z_i + S_i + sum over j of min(S_i, S_j (1 + floor(t / cycle_j))),

    and the least t that equals this is a bound. It is at most Z_i + P S_i with P processes. It holds whenever others
    start, stop or run smaller batches. With more than three processes it is conservative.

    Parameters
    ----------
    think_ms, slice_ms
        (replicas,) of a batch, each the largest of all batch sizes that may run.
    cycle_ms
        (replicas,) the least think and slice time together of any batch that may run.
    processes
        (replicas,) numbers of processes.

    Returns
    -------
    ndarray
        (replicas,) in ms.
    """
    others = processes - np.eye(len(processes), dtype=int)
    alone_ms = think_ms + slice_ms
    hold_ms, previous_ms = alone_ms, np.zeros(len(alone_ms))
    while (hold_ms > previous_ms).any():
        visits = 1 + np.floor(hold_ms[:, None] / cycle_ms)
        previous_ms, hold_ms = hold_ms, alone_ms + (others * np.minimum(slice_ms[:, None], slice_ms * visits)).sum(1)
    return hold_ms

