"""Compiled replay of a serving station: a dynamic batcher before devices that each run several processes.

The batches that run on one device share it equally (processor sharing). A batch starts as soon as a process is idle and
the batch is full or its oldest request has waited for the queue delay; it goes to the device with the fewest batches.
"""

import math

import numpy as np

from provision.models.base.compiled import compiled
from provision.models.traffic.queue_replays import due, taken


@compiled
def answers(
    arrivals: np.ndarray, devices: int, processes: int, batch: int, delay: float, fixed: float, per_request: float
) -> np.ndarray:
    """When every request of a station is answered.

    Parameters
    ----------
    arrivals
        (requests,) times of arrival, in order.
    devices, processes
        Devices of the station, and processes on each of them.
    batch, delay
        Most requests of a batch, and the longest wait of a request while a process is idle.
    fixed, per_request
        A batch of n requests that has its device to itself takes ``fixed + per_request * n``.

    Returns
    -------
    ndarray
        (requests,) times, in the unit of ``arrivals``.
    """
    done = np.empty(len(arrivals))
    places = devices * processes
    left, finish = np.empty(places), np.full(places, math.inf)
    first, end = np.zeros(places, np.int64), np.zeros(places, np.int64)
    running, since = np.zeros(devices, np.int64), np.zeros(devices)
    head, now = 0, 0.0
    while head < len(arrivals) or running.sum() > 0:
        ends = np.argmin(finish)
        starts = math.inf
        if head < len(arrivals) and running.sum() < places:
            starts = max(now, due(arrivals, head, batch, delay))
        now = min(finish[ends], starts)
        device = ends // processes if finish[ends] <= starts else np.argmin(running)
        mine = slice(device * processes, (device + 1) * processes)
        left[mine] -= (now - since[device]) / max(running[device], 1)
        since[device] = now
        if finish[ends] <= starts:
            done[first[ends] : end[ends]] = now
            finish[ends] = math.inf
            running[device] -= 1
        else:
            place = device * processes + np.argmax(finish[mine])
            size = taken(arrivals, head, batch, now)
            left[place], finish[place] = fixed + per_request * size, now
            first[place], end[place] = head, head + size
            head += size
            running[device] += 1
        for mate in range(device * processes, (device + 1) * processes):
            if finish[mate] < math.inf:
                finish[mate] = now + max(left[mate], 0.0) * running[device]
    return done
