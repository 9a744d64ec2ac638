"""Replays queues request by request.

There are replays of a replica that batches, of replicas with least-loaded routing, of replicas that take turns
(temporal sharing), and of replicas whose processes share a MIG slice. Such processes work on the host first, and then
on the slice, of which each gets an equal part.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function, compiled when it is first called."""
    return cast("Callable[P, R]", njit(cache=True)(function))


@compiled
def batched(arrived: Floats, answer: Floats, hold: Floats, processes: int, delay: float) -> Floats:
    """(requests,) when requests are answered, in ms, at a replica that its neighbours do not slow down.

    A batch starts on a free process as soon as it is full or its first request has waited for ``delay``. The answers of
    a batch of k requests take ``answer[k - 1]`` ms from its start, and its process is busy for ``hold[k - 1]`` ms.
    """
    most, total = len(answer), len(arrived)
    ended = np.empty(total)
    free = np.zeros(processes)
    first = 0
    while first < total:
        process = 0
        for one in range(1, processes):
            if free[one] < free[process]:
                process = one
        due = arrived[first] + delay
        if first + most <= total:
            due = min(due, arrived[first + most - 1])
        start = max(free[process], due)
        after = first + 1
        while after < total and after < first + most and arrived[after] <= start:
            after += 1
        size = after - first
        for request in range(first, after):
            ended[request] = start + answer[size - 1]
        free[process] = start + hold[size - 1]
        first = after
    return ended


@compiled
def fewest(held: Floats, weight: Floats, credit: Floats) -> int:
    """The index of the replica that gets the next request, chosen as by nginx's least_conn.

    It is the replica with the fewest requests ``held``, divided by its ``weight``. Of several such replicas, it is the
    next by weighted round robin; ``credit`` is the state of the round robin and is changed in place. A replica with
    weight 0 gets no request. All arrays are (replicas,).
    """
    least = np.inf
    for one in range(len(weight)):
        if weight[one] > 0:
            least = min(least, held[one] / weight[one])
    best, whole = -1, 0.0
    for one in range(len(weight)):
        if weight[one] > 0 and held[one] / weight[one] <= least:
            credit[one] += weight[one]
            whole += weight[one]
            if best < 0 or credit[one] > credit[best]:
                best = one
    credit[best] -= whole
    return best


@compiled
def least_loaded(
    arrived: Floats, answer: Floats, hold: Floats, sizes: Ints, processes: Ints, delay: Floats, weight: Floats
) -> Floats:
    """(requests,) when requests are answered, in ms, if each goes to the replica with the fewest requests per weight.

    Waiting and running requests are counted. Row r of ``answer`` and ``hold`` has the batch times of replica r, up to
    ``sizes[r]``. Between two arrivals, replicas do not affect each other. So each replica is advanced by itself to the
    next arrival.
    """
    total, many = len(arrived), len(sizes)
    ended = np.full(total, np.inf)
    waiting = np.full((many, total), -1)
    head, tail = np.zeros(many, np.int64), np.zeros(many, np.int64)
    free = np.zeros((many, int(processes.max())))
    left = np.zeros((many, 2 * int(processes.max()) * int(sizes.max()) + 2))  # a ring with the ends of running requests
    oldest, newest = np.zeros(many, np.int64), np.zeros(many, np.int64)
    ring = left.shape[1]
    held, credit = np.zeros(many), np.zeros(many)
    for request in range(total + 1):
        now = arrived[request] if request < total else np.inf
        for r in range(many):
            while head[r] < tail[r]:
                process = 0
                for one in range(1, processes[r]):
                    if free[r, one] < free[r, process]:
                        process = one
                due = arrived[waiting[r, head[r]]] + delay[r]
                if tail[r] - head[r] >= sizes[r]:
                    due = min(due, arrived[waiting[r, head[r] + sizes[r] - 1]])
                start = max(free[r, process], due)
                if start >= now:
                    break
                size = 0
                while size < sizes[r] and head[r] + size < tail[r] and arrived[waiting[r, head[r] + size]] <= start:
                    size += 1
                for one in range(size):
                    end = start + answer[r, size - 1]
                    ended[waiting[r, head[r] + one]] = end
                    left[r, newest[r] % ring] = end
                    newest[r] += 1
                    if newest[r] - oldest[r] > ring:
                        oldest[r] += 1
                free[r, process] = start + hold[r, size - 1]
                head[r] += size
        if request == total:
            break
        for r in range(many):
            running = 0
            for one in range(oldest[r], newest[r]):
                if left[r, one % ring] > now:
                    running += 1
            while oldest[r] < newest[r] and left[r, oldest[r] % ring] <= now:
                oldest[r] += 1
            held[r] = running + tail[r] - head[r]
        best = fewest(held, weight, credit)
        waiting[best, tail[best]] = request
        tail[best] += 1
    return ended


@compiled
def turns(arrived: Floats, member: Ints, times: Floats, sizes: Ints) -> Floats:
    """(requests,) when requests are answered, in ms, at replicas that take turns.

    One after another, each replica that has requests runs one batch. ``member`` is the replica of every request, in the
    order of arrival. Row m of ``times`` has the batch times of replica m.
    """
    total, many = len(arrived), len(sizes)
    ended = np.empty(total)
    queue = np.empty((many, total), np.int64)
    head, tail = np.zeros(many, np.int64), np.zeros(many, np.int64)
    now, came, served, at = 0.0, 0, 0, 0
    while served < total:
        while came < total and arrived[came] <= now:
            queue[member[came], tail[member[came]]] = came
            tail[member[came]] += 1
            came += 1
        for _ in range(many):
            if head[at] < tail[at]:
                break
            at = (at + 1) % many
        if head[at] == tail[at]:
            now = arrived[came]
            continue
        size = min(sizes[at], tail[at] - head[at])
        now += times[at, size - 1]
        for one in range(size):
            ended[queue[at, head[at] + one]] = now
        head[at] += size
        served += size
        at = (at + 1) % many
    return ended


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
