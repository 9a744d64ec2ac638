"""Finds the patience that a replica needs at a load by long replays: the numerical part of the latency rule.

The *patience* is the latency budget minus the time of a full batch; ``queue_delay`` tells how much of it the batcher
may wait. The *hold time* is how long a full batch occupies its process; times are in units of it. The *load* is the
arrival rate divided by the throughput with full batches.

A replay estimates the fraction of late requests, and the variation between its parts gives a standard error. A patience
is accepted when the fraction is below its limit by ``CERTAINTY`` standard errors. Therefore the patience found errs on
the long side. This margin is statistical; nothing is proven.

Replays one replica by compiled code: a dynamic batcher in front of processes that run batches independently.

Times are in units of the hold time, which is how long a full batch occupies its process.
"""

import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import scipy

from provision.models.base.compiled import compiled, inner
from provision.models.base.errors import InputError
from provision.models.base.tolerances import TOLERANCE
from provision.models.traffic.arrivals import (
    POISSON,
    Mmpp,
    Poisson,
    Renewal,
    Trace,
    service_factors,
    trace_shape,
    unit_times,
)

REQUESTS = 2**20
"""The number of requests of a replay."""

PARTS = 16
CERTAINTY = 2.0
SEED = 14

FEWEST_LATE = 50
"""The least number of requests of a recorded trace that may be late; a trace must be long enough for it."""

FEWEST_CYCLES = 64
"""If a replay has fewer bursts of an MMPP than this, the process is treated as if its rate were high all the time."""

PRECISION = 0.0005
"""The relative accuracy of the patience. It is fine because the load is 20 times as sensitive to a patience just below
1.
"""

GROWTH = 1.25
"""The factor from one trial to the next when a sufficient patience is searched."""

LEAST_SHARE = 1e-9
"""Fractions of late requests below this count as equal."""

LONGEST = 1000.0
"""The largest patience that is tried, in hold times divided by processes."""


class Queue(NamedTuple):
    """The queue at a replica, except for its batch size, its number of processes and its load.

    Attributes
    ----------
    arrivals
        The arrival process at the replica. Here ``mean_high_s`` of an MMPP is in units of the latency budget.
    percentile
        The percentile of the latency that must keep the SLO, in percent.
    fixed_share
        The fraction of a full batch's time that a batch of any size takes; 1 if smaller batches are not known to be
        faster.
    service_cv
        The coefficient of variation of the batch times.
    """

    arrivals: Poisson | Renewal | Mmpp | Trace = POISSON
    percentile: float = 99.0
    fixed_share: float = 1.0
    service_cv: float = 0.0

    @property
    def late(self) -> float:
        """The fraction of the requests that may be late."""
        return 1 - self.percentile / 100


def least_patience(queue: Queue, batch: int, processes: int, load: float, start: float = 0.0,
                   requests: int = REQUESTS) -> float:
    """The shortest patience with which a replica keeps its percentile, in hold times.

    Parameters
    ----------
    queue, batch, processes, load
        The queue, and the replica's batch size, number of processes and load.
    start
        A patience that is known to be at most the result, such as the patience at a smaller load.
    requests
        The number of requests in every replay.

    Returns
    -------
    float
        The patience, too long by at most the fraction ``PRECISION``; infinite beyond ``LONGEST``.
    """
    @cache
    def excess(patience: float) -> float:
        return lateness(queue, batch, processes, load, patience, requests=requests)

    if excess(start) <= 0:
        return start
    low, high = start, max(GROWTH * start, 0.25 / processes)
    while excess(high) > 0:
        low, high = high, GROWTH * high
        if high * processes > LONGEST:
            return float("inf")
    found = scipy.optimize.brentq(excess, low, high, xtol=PRECISION * high / 2)
    return float(min(found + PRECISION * high / 2, high))


def lateness(queue: Queue, batch: int, processes: int, load: float, patience: float, delay: float | None = None,
             requests: int = REQUESTS) -> float:
    """The logarithm of the fraction of late requests divided by the fraction that may be late; 0 or less is allowed.

    The fraction of late requests is taken ``CERTAINTY`` standard errors above its estimate.
    """
    shares = late_shares(queue, batch, processes, load, patience, delay, requests)
    certain = shares.mean() + CERTAINTY * shares.std(ddof=1) / len(shares) ** 0.5
    return float(np.log(max(certain, LEAST_SHARE) / queue.late))


def queue_delay(queue: Queue, patience: float) -> float:
    """The queue delay that the rule plans with, and to which the batcher must be set, in hold times.

    With constant batch times it is the whole patience. With varying batch times it is shorter: of batches that start at
    the end of the delay, the fraction that exceeds the budget is only half of the fraction of requests that may be
    late.
    """
    sigma = np.sqrt(np.log1p(queue.service_cv**2))
    longest = np.exp(sigma * scipy.stats.norm.isf(queue.late / 2) - sigma**2 / 2)
    return float(max(patience + 1 - longest, 0.0))


def late_shares(queue: Queue, batch: int, processes: int, load: float, patience: float, delay: float | None = None,
                requests: int = REQUESTS, seed: int = SEED) -> np.ndarray:
    """Replay a replica's queue, and return the fraction of late requests in each part of the replay, shape (PARTS,).

    ``load`` is the rate as a fraction of the throughput. ``patience`` and ``delay``, the queue delay, are in hold
    times; by default ``delay`` is that of ``queue_delay``. Raises InputError if a trace is too short for the
    percentile.
    """
    per_hold = load * batch * processes
    times = _sample(queue, requests, seed, per_hold * (1 + patience))
    factors = _factors(queue.service_cv, requests, seed)
    delay = queue_delay(queue, patience) if delay is None else delay
    return late_by_part(times / per_hold, batch, processes, delay, 1 + patience, queue.fixed_share, factors, PARTS)


def _sample(queue: Queue, requests: int, seed: int, per_budget: float) -> np.ndarray:
    """Arrival times at a mean rate of 1; ``per_budget`` is the mean number of arrivals in a latency budget."""
    arrivals = queue.arrivals
    if isinstance(arrivals, Trace):
        times = trace_shape(arrivals.path)[:requests]
        if len(times) * queue.late < FEWEST_LATE:
            needed = round(FEWEST_LATE / queue.late)
            raise InputError(
                f"{arrivals.path}: {len(times)} arrivals are too few for percentile {queue.percentile:g}; record "
                f"{needed} or lower the percentile"
            )
        return times
    if not isinstance(arrivals, Mmpp):
        return unit_times(arrivals, requests, seed)
    bursts = arrivals.mean_high_s * per_budget
    if requests * arrivals.high_share < FEWEST_CYCLES * bursts:
        return unit_times(POISSON, requests, seed) / arrivals.high_over_mean
    return unit_times(arrivals.model_copy(update={"mean_high_s": bursts}), requests, seed)


@lru_cache(maxsize=8)
def _factors(cv: float, count: int, seed: int) -> np.ndarray:
    return service_factors(cv, count, np.random.default_rng(seed + 1))


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
