"""Replays one replica by compiled code: a dynamic batcher in front of processes that run batches independently.

Times are in units of the hold time, which is how long a full batch occupies its process.
"""

import math

import numpy as np

from provision.models.base.compiled import compiled, inner
from provision.models.base.tolerances import TOLERANCE


@compiled
def late_by_part(
    arrivals: np.ndarray,
    batch: int,
    processes: int,
    delay: float,
    allowed: float,
    fixed_share: float,
    factors: np.ndarray,
    parts: int,
) -> np.ndarray:
    """Return the fraction of requests whose latency exceeds ``allowed``, in each part of a replay.

    A batch of n requests takes ``fixed_share + (1 - fixed_share) * n / batch`` times its factor. An idle process starts
    the next batch as soon as the batch is full or its oldest request has waited for ``delay``.

    Parameters
    ----------
    arrivals
        Arrival times, ascending, shape (requests,).
    batch, processes
        The most requests of a batch, and the number of processes.
    delay
        The longest time that a request waits for its batch to fill while a process is idle.
    allowed
        The latency above which a request is late; 1 is the latency of a full batch that starts at once.
    fixed_share
        The fraction of a full batch's time that a batch of any size takes.
    factors
        Factors on the times of successive batches, shape (any,); after the last factor the first is used again.
    parts
        The number of parts, each with the same number of requests.

    Returns
    -------
    ndarray
        The fractions, shape (parts,).
    """
    idle_from = np.zeros(processes)
    late = np.zeros(parts)
    each = math.ceil(len(arrivals) / parts)
    head, started = 0, 0
    while head < len(arrivals):
        process = np.argmin(idle_from)
        now = max(idle_from[process], due(arrivals, head, batch, delay))
        size = taken(arrivals, head, batch, now)
        takes = (fixed_share + (1 - fixed_share) * size / batch) * factors[started % len(factors)]
        idle_from[process] = now + takes
        latest = now + takes - allowed * (1 + TOLERANCE)
        at = head
        while at < head + size and arrivals[at] < latest:
            late[at // each] += 1
            at += 1
        head += size
        started += 1
    for part in range(parts):
        late[part] /= max(1, min(each, len(arrivals) - part * each))
    return late


@inner
def due(arrivals: np.ndarray, head: int, batch: int, delay: float) -> float:
    """The time at which the batch that begins with request ``head`` may start: when it is full, or ``delay`` has
    passed.
    """
    waited = arrivals[head] + delay
    return min(waited, arrivals[head + batch - 1]) if head + batch <= len(arrivals) else waited


@inner
def taken(arrivals: np.ndarray, head: int, batch: int, now: float) -> int:
    """The number of requests in a batch that begins with request ``head`` and starts at time ``now``."""
    size, most = 1, min(batch, len(arrivals) - head)
    while size < most and arrivals[head + size] <= now:
        size += 1
    return size
