"""How long a task waits for its batch and runs in it (InSS, eq. 2).

``provision.models.traffic.queueing`` is about the same replica when arrivals are random and a delay starts batches
that are not full; here arrivals come at an even rate and only full batches start.
"""

import numpy as np
from numpy.typing import ArrayLike

from provision.models.base.arrays import Floats


def task_latency_ms(
    queued: ArrayLike, batch: ArrayLike, rate_rps: ArrayLike, batch_ms: ArrayLike, running_ms: ArrayLike = 0.0
) -> Floats:
    """Latency of a task from its arrival to the end of its batch (eq. 2), in ms.

    A backlog of a batch or more is served batch by batch; else the task waits until arrivals have filled its batch
    and the process is idle.

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
        Of the arguments' broadcast shape; infinite where nothing ever fills the batch.
    """
    running_ms, batch_ms = np.asarray(running_ms, float), np.asarray(batch_ms, float)
    missing, rate_rps = np.broadcast_arrays(np.maximum(np.subtract(batch, queued), 0), rate_rps)
    wait_ms = np.divide(1000 * missing, rate_rps, out=np.where(missing > 0, np.inf, 0.0), where=np.greater(rate_rps, 0))
    behind_ms = running_ms + np.ceil(np.divide(queued, batch)) * batch_ms
    return np.where(missing > 0, np.maximum(running_ms, wait_ms) + batch_ms, behind_ms)
