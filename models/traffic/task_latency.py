"""Computes the latency of a task at a replica with even arrivals at which only full batches start (InSS, eq. 2).

``provision.models.traffic.queueing`` treats random arrivals and batches that also start after a delay.
"""

import numpy as np
from numpy.typing import ArrayLike

from provision.models.base.arrays import Floats


def task_latency_ms(
    queued: ArrayLike, batch: ArrayLike, rate_rps: ArrayLike, batch_ms: ArrayLike, running_ms: ArrayLike = 0.0
) -> Floats:
    """Return the latency of a task from its arrival to the end of its batch (eq. 2), in ms.

    If tasks for at least a batch wait already, they are served batch by batch. Otherwise the task waits until arrivals
    have filled its batch and the process is idle.

    Parameters
    ----------
    queued
        The number of tasks that wait for a batch, with this task (W).
    batch
        The batch size (b).
    rate_rps
        The rate at which tasks arrive, in tasks/s (lambda).
    batch_ms
        The execution latency of a batch (t_inf).
    running_ms
        The time that the running batch still takes when the task arrives (exec).

    Returns
    -------
    ndarray
        The latencies, in the broadcast shape of the arguments; infinite where the batch never fills.
    """
    running_ms, batch_ms = np.asarray(running_ms, float), np.asarray(batch_ms, float)
    missing, rate_rps = np.broadcast_arrays(np.maximum(np.subtract(batch, queued), 0), rate_rps)
    wait_ms = np.divide(1000 * missing, rate_rps, out=np.where(missing > 0, np.inf, 0.0), where=np.greater(rate_rps, 0))
    behind_ms = running_ms + np.ceil(np.divide(queued, batch)) * batch_ms
    return np.where(missing > 0, np.maximum(running_ms, wait_ms) + batch_ms, behind_ms)
