"""Compiled replay of one replica: a dynamic batcher before processes that run batches each at its own pace.

Times are in units of the hold time of a full batch: how long it keeps its process.
"""

import math

import numpy as np

from provision.models.base.compiled import compiled
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
    """Shares of the requests whose latency exceeds what is allowed, in parts of a replay.

    A batch of n requests takes ``fixed_share + (1 - fixed_share) * n / batch`` times its factor. A process that has
    ended a batch starts the next one as soon as it is full or its oldest request has waited for the delay.

    Parameters
    ----------
    arrivals
        (requests,) times of arrival, in order.
    batch, processes
        Most requests of a batch, and number of processes.
    delay
        Longest wait of a request while a process is idle.
    allowed
        Longest latency that is not late: 1 for a full batch that starts at once.
    fixed_share
        The part of a full batch's time that every batch takes.
    factors
        (batches,) factors on the times of successive batches; they are used again from the first on.
    parts
        Number of parts, of equally many requests.

    Returns
    -------
    ndarray
        (parts,) shares.
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


@compiled
def least_work(times_ns: np.ndarray, of_each_ns: np.ndarray) -> np.ndarray:
    """(requests,) replica that would be done first with all that it was sent, at ``of_each_ns`` per request."""
    owners, done_ns = np.empty(len(times_ns), np.int64), np.zeros(len(of_each_ns))
    for at in range(len(times_ns)):
        best = 0
        for one in range(len(of_each_ns)):
            if max(done_ns[one], times_ns[at]) + of_each_ns[one] < max(done_ns[best], times_ns[at]) + of_each_ns[best]:
                best = one
        owners[at] = best
        done_ns[best] = max(done_ns[best], times_ns[at]) + of_each_ns[best]
    return owners


@compiled
def due(arrivals: np.ndarray, head: int, batch: int, delay: float) -> float:
    """When the batch that begins with request ``head`` may start: when it is full, or its first request has waited."""
    waited = arrivals[head] + delay
    return min(waited, arrivals[head + batch - 1]) if head + batch <= len(arrivals) else waited


@compiled
def taken(arrivals: np.ndarray, head: int, batch: int, now: float) -> int:
    """How many requests a batch that starts ``now`` takes."""
    size, most = 1, min(batch, len(arrivals) - head)
    while size < most and arrivals[head + size] <= now:
        size += 1
    return size
