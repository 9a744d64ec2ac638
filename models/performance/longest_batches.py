"""Computes upper bounds on batch times beside busy neighbours. The bounds hold for every course of events, not just on
average. If the analysis takes this bound for the batch time of a replica, the replica is a queue of its own: its
latency no longer depends on its neighbours.
"""

import numpy as np


def network_hold_ms(think_ms: np.ndarray, slice_ms: np.ndarray, cycle_ms: np.ndarray,
                    processes: np.ndarray) -> np.ndarray:
    """(replicas,), an upper bound in ms on the batch time of every replica on a slice that all processes share equally
    (processor sharing).

    For each batch a process thinks for Z and needs the slice for S. While process i uses the slice, every other process
    j gets as much of the slice as i does, hence no more than S_i in total. Process j also uses no more than its own
    work S_j in each of its visits, and at most 1 + floor(t / cycle_j) visits begin within a time t. Before the batch of
    i ends, the time t since its start is therefore less than

        Z_i + S_i + sum over j of min(S_i, S_j (1 + floor(t / cycle_j))),

    and the least t that equals this expression is an upper bound. With P processes it is at most Z_i + P S_i. The bound
    also holds if other processes start, stop or run smaller batches. With more than three processes it is loose.

    Parameters
    ----------
    think_ms, slice_ms
        Shape (replicas,): the largest think time and slice time over all batch sizes that may run.
    cycle_ms
        Shape (replicas,): the least sum of think time and slice time over all batch sizes that may run.
    processes
        Shape (replicas,): the number of processes of every replica.

    Returns
    -------
    ndarray
        Shape (replicas,): the bounds in ms.
    """
    others = processes - np.eye(len(processes), dtype=int)
    alone_ms = think_ms + slice_ms
    hold_ms, previous_ms = alone_ms, np.zeros(len(alone_ms))
    while (hold_ms > previous_ms).any():
        visits = 1 + np.floor(hold_ms[:, None] / cycle_ms)
        previous_ms, hold_ms = hold_ms, alone_ms + (others * np.minimum(slice_ms[:, None], slice_ms * visits)).sum(1)
    return hold_ms

