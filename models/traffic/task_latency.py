"""The latency of a task at a replica with even arrivals where only full batches start (InSS, eq. 2).

``provision.models.traffic.queueing`` treats random arrivals, where a batch also starts after a delay.
"""

import numpy as np
from numpy.typing import ArrayLike

from provision.models.base.arrays import Floats


def task_latency_ms(
    queued: ArrayLike, batch: ArrayLike, rate_rps: ArrayLike, batch_ms: ArrayLike, running_ms: ArrayLike = 0.0
) -> Floats:
    """Latency of a task from its arrival to the end of its batch (eq. 2), in ms.

    When a batch or more waits already, these tasks are served batch by batch. Otherwise the task waits until arrivals
    have filled its batch and the process is idle.

    Parameters
    ----------
    queued
        Tasks that wait for a batch, this one included (W).
    batch
        Batch size (b).
    rate_rps
        Rate at which tasks arrive (lambda).
    batch_ms
        Execution latency of a batch (t_inf).
    running_ms
        What is left of the batch in service when the task arrives (exec).

    Returns
    -------
    ndarray
        In the broadcast shape of the arguments; infinite where the batch never fills.
    """
    running_ms, batch_ms = np.asarray(running_ms, float), np.asarray(batch_ms, float)
    missing, rate_rps = np.broadcast_arrays(np.maximum(np.subtract(batch, queued), 0), rate_rps)
    wait_ms = np.divide(1000 * missing, rate_rps, out=np.where(missing > 0, np.inf, 0.0), where=np.greater(rate_rps, 0))
    behind_ms = running_ms + np.ceil(np.divide(queued, batch)) * batch_ms
    return np.where(missing > 0, np.maximum(running_ms, wait_ms) + batch_ms, behind_ms)
