"""The patience that a replica needs at a load, by long replays: the numerical part of the latency rule.

Patience is what a latency budget leaves beside the time of a full batch; ``queue_delay`` says how much of it the
batcher may wait. Times are in units of the hold time: how long a full batch keeps its process. A load is the part of
the throughput of full batches that arrives.

A replay estimates the share of late requests, and the spread between its parts tells how far off that may be. Patience
counts as enough when the share is below its limit by ``CERTAINTY`` standard errors. So patience errs to the long side;
that is a measured margin and no proof.
"""

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import scipy

from provision.models.base.errors import InputError
from provision.models.traffic.arrivals import POISSON, Mmpp, Poisson, Renewal, Trace, trace_shape, unit_times
from provision.models.traffic.replica_kernels import late_by_part
from provision.models.traffic.spread import service_factors

REQUESTS = 2**20
"""Requests of a replay."""

PARTS = 16
CERTAINTY = 2.0
SEED = 14

FEWEST_LATE = 50
"""A recorded trace must be long enough for so many late requests."""

FEWEST_CYCLES = 64
"""With fewer bursts than this in a replay, the high rate of an MMPP is taken to last for ever."""

PRECISION = 0.0005
"""Patience is found to within this part of itself: just short of a hold time loads are 20 times as sensitive."""

GROWTH = 1.25
"""Steps in which a patience that is enough is looked for."""

LEAST_SHARE = 1e-9
"""Smaller shares of late requests are not told apart."""

LONGEST = 1000.0
"""Patience, in hold times over processes, beyond which no load is looked for."""


class Queue(NamedTuple):
    """What decides how a replica's requests queue, apart from its batch size, its processes and its load.

    Attributes
    ----------
    arrivals
        Those at the replica. The bursts of an MMPP are measured in latency budgets: ``mean_high_s`` counts those.
    percentile
        Of the latency that must keep the SLO.
    fixed_share
        The part of a full batch's time that every batch takes; 1 where smaller batches are not known to be faster.
    service_cv
        Coefficient of variation of the batch times.
    """

    arrivals: Poisson | Renewal | Mmpp | Trace = POISSON
    percentile: float = 99.0
    fixed_share: float = 1.0
    service_cv: float = 0.0

    @property
    def late(self) -> float:
        """The share of the requests that may be late."""
        return 1 - self.percentile / 100


def least_patience(
    queue: Queue, batch: int, processes: int, load: float, start: float = 0.0, requests: int = REQUESTS
) -> float:
    """The shortest patience with which a replica keeps its percentile, in hold times.

    Parameters
    ----------
    queue, batch, processes, load
        The Queue and the replica.
    start
        Patience known not to be more than enough, such as that of a smaller load.
    requests
        Of every replay.

    Returns
    -------
    float
        To within ``PRECISION`` of itself, on the long side; infinite beyond ``LONGEST``.
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


def lateness(
    queue: Queue, batch: int, processes: int, load: float, patience: float, delay: float | None = None,
    requests: int = REQUESTS,
) -> float:
    """How far the late requests of a replay, with certainty, exceed those that may be late: a difference of logarithms.

    Below 0 the percentile is kept.
    """
    shares = late_shares(queue, batch, processes, load, patience, delay, requests)
    certain = shares.mean() + CERTAINTY * shares.std(ddof=1) / len(shares) ** 0.5
    return float(np.log(max(certain, LEAST_SHARE) / queue.late))


def queue_delay(queue: Queue, patience: float) -> float:
    """The queue delay that the rule plans with, and that the batcher must be given, in hold times.

    All of the patience where batch times are constant. Where they vary, what lets all but half of the late requests
    meet the budget when their batch starts by the delay.
    """
    sigma = np.sqrt(np.log1p(queue.service_cv**2))
    longest = np.exp(sigma * scipy.stats.norm.isf(queue.late / 2) - sigma**2 / 2)
    return float(max(patience + 1 - longest, 0.0))


def late_shares(
    queue: Queue,
    batch: int,
    processes: int,
    load: float,
    patience: float,
    delay: float | None = None,
    requests: int = REQUESTS,
    seed: int = SEED,
) -> np.ndarray:
    """Shares of late requests in the parts of a replay; the queue delay is ``queue_delay`` unless it is given.

    Raises
    ------
    InputError
        When a trace is too short for the percentile.
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
