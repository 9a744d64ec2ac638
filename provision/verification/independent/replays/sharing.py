"""Replicas whose processes share a MIG slice: they work on the host, and then on the slice, of which each gets an equal
part.
"""

import numpy as np
from numpy.typing import NDArray

from .compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def shared(
    arrived: Floats, member: Ints, host: Floats, work: Floats, sizes: Ints, owner: Ints, delay: Floats
) -> Floats:
    """(requests,), the times at which requests are answered, in ms.

    ``member`` is the replica of every request, and ``owner`` the replica of every process. Row m of ``host`` and
    ``work`` has the host times and slice times of the batches of replica m, up to ``sizes[m]``. A batch starts on a
    free process as soon as it is full or its first request has waited for ``delay[m]``.
    """
    total, many, processes = len(arrived), len(sizes), len(owner)
    ended = np.empty(total)
    queue = np.empty((many, total), np.int64)
    head, tail = np.zeros(many, np.int64), np.zeros(many, np.int64)
    phase = np.zeros(processes, np.int64)  # 0: free, 1: on the host until ``until``, 2: on the slice, ``left`` to do
    until, left = np.zeros(processes), np.zeros(processes)
    start_of, size_of = np.zeros(processes, np.int64), np.zeros(processes, np.int64)
    now, came, served = 0.0, 0, 0
    while served < total:
        for p in range(processes):  # start all batches that can start now
            m = owner[p]
            if phase[p] == 0 and head[m] < tail[m]:
                size = min(sizes[m], tail[m] - head[m])
                if size == sizes[m] or now >= arrived[queue[m, head[m]]] + delay[m]:
                    start_of[p], size_of[p] = head[m], size
                    head[m] += size
                    phase[p], until[p], left[p] = 1, now + host[m, size - 1], work[m, size - 1]
        on_slice = 0
        following = arrived[came] if came < total else np.inf
        for p in range(processes):
            m = owner[p]
            if phase[p] == 2:
                on_slice += 1
            elif phase[p] == 1:
                following = min(following, until[p])
            elif head[m] < tail[m]:
                following = min(following, arrived[queue[m, head[m]]] + delay[m])
        for p in range(processes):
            if phase[p] == 2:
                following = min(following, now + left[p] * on_slice)
        passed = (following - now) / max(on_slice, 1)
        for p in range(processes):
            if phase[p] == 2:
                left[p] -= passed
                if left[p] <= 1e-9:
                    phase[p] = 0
                    for one in range(start_of[p], start_of[p] + size_of[p]):
                        ended[queue[owner[p], one]] = following
                    served += size_of[p]
            elif phase[p] == 1 and until[p] <= following:
                phase[p] = 2
        now = following
        while came < total and arrived[came] <= now:
            queue[member[came], tail[member[came]]] = came
            tail[member[came]] += 1
            came += 1
    return ended
