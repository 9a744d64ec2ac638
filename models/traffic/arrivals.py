"""The arrival processes that an instance can state, samples of them, and the routing of requests to replicas.

Every process is stationary: a sample begins at a random moment. The mean rate of a process is the workload's rate.

Every replica has a weight, its fraction of the workload's requests. ``random``: a replica is drawn by weight for each
request. ``round_robin``: weighted round robin. ``least_loaded``: the replica that has the fewest requests, waiting and
running, per weight, as nginx's ``least_conn``; the latency rule treats it like ``random``, which assumes without a
proof that it is not worse. A simulation routes by the queues that it replays (`provision.simulation.fewest`).
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from provision.models.base.errors import InputError
from provision.models.base.fields import Positive, Record, Text

EVEN = 1e-6
"""The coefficient of variation below which gaps count as constant; the shape of the Gamma distribution would be too
large.
"""

MOST_CV = 20.0


class Poisson(Record):
    """A Poisson process: requests arrive independently of each other."""

    process: Literal["poisson"] = "poisson"


class Renewal(Record):
    """Independent inter-arrival times with a Gamma distribution; ``cv`` 0 is constant, 1 is Poisson, and above 1 is
    bursty.
    """

    process: Literal["renewal"] = "renewal"
    cv: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=MOST_CV)]


class Mmpp(Record):
    """A Poisson process whose rate switches between a high and a low value, after exponentially distributed times.

    Attributes
    ----------
    high_over_mean
        The high rate divided by the mean rate.
    high_share
        The fraction of the time at the high rate.
    mean_high_s
        The mean duration of a period at the high rate, in seconds.
    """

    process: Literal["mmpp"] = "mmpp"
    high_over_mean: Annotated[float, Field(strict=True, allow_inf_nan=False, gt=1)]
    high_share: Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0, lt=1)]
    mean_high_s: Positive

    @model_validator(mode="after")
    def _within_the_mean(self) -> "Mmpp":
        if self.high_over_mean * self.high_share > 1:
            raise ValueError(
                f"high_over_mean {self.high_over_mean:g} for {self.high_share:g} of the time is more than the mean "
                f"rate; lower one of them so that their product is at most 1"
            )
        return self

    @property
    def low_over_mean(self) -> float:
        """The low rate divided by the mean rate."""
        return (1 - self.high_over_mean * self.high_share) / (1 - self.high_share)


class Trace(Record):
    """Recorded arrivals: the path of a file with one time in seconds per line, ascending; they are scaled to the
    workload's
    rate.
    """

    process: Literal["trace"] = "trace"
    path: Text


Arrivals = Annotated[Poisson | Renewal | Mmpp | Trace, Field(discriminator="process")]
"""Any arrival process; the field ``process`` tells which."""

POISSON = Poisson()


def arrival_times_s(arrivals: Poisson | Renewal | Mmpp | Trace, rate_rps: float, seconds: float,
                    random: np.random.Generator) -> np.ndarray:
    """Draw a sample of an arrival process.

    Parameters
    ----------
    arrivals
        The process.
    rate_rps
        The mean rate of the process, in requests/s.
    seconds
        The length of the sample; a trace may end earlier.
    random
        The random number generator; a trace does not use it.

    Returns
    -------
    ndarray
        Arrival times in s, ascending, from 0 to below ``seconds``, shape (requests,).

    Raises
    ------
    InputError
        If the file of a trace cannot be used.
    """
    if rate_rps == 0:
        return np.zeros(0)
    if isinstance(arrivals, Trace):
        times_s = trace_shape(arrivals.path) / rate_rps
    elif isinstance(arrivals, Mmpp):
        times_s = _mmpp_s(arrivals, rate_rps, seconds, random)
    else:
        times_s = _renewal_s(1.0 if isinstance(arrivals, Poisson) else arrivals.cv, rate_rps, seconds, random)
    return times_s[times_s < seconds]


@lru_cache(maxsize=4)
def unit_times(arrivals: Poisson | Renewal | Mmpp, count: int, seed: int) -> np.ndarray:
    """About ``count`` arrival times at a mean rate of 1, ascending; cached."""
    return arrival_times_s(arrivals, 1.0, float(count), np.random.default_rng(seed))


@lru_cache(maxsize=16)
def trace_shape(path: str) -> np.ndarray:
    """Recorded times from 0 on, scaled to a mean rate of 1, shape (requests,). Raises InputError if the file cannot be
    read, has fewer than two different times, or times out of order.
    """
    try:
        times_s = np.array([float(line) for line in Path(path).read_text().split()])
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: no list of arrival times: {why}; write one time in seconds per line") from None
    if not np.isfinite(times_s).all():
        raise InputError(f"{path}: a time is not finite; leave it out")
    back = np.flatnonzero(np.diff(times_s) < 0)
    if len(back):
        raise InputError(f"{path}: time {times_s[back[0] + 1]:g} comes after {times_s[back[0]]:g}; sort the times")
    if len(times_s) < 2 or times_s[-1] == times_s[0]:
        raise InputError(f"{path}: has fewer than two different times; record for longer")
    return (times_s - times_s[0]) * (len(times_s) - 1) / (times_s[-1] - times_s[0])


def _renewal_s(cv: float, rate_rps: float, seconds: float, random: np.random.Generator) -> np.ndarray:
    """Arrival times with Gamma gaps, until after ``seconds``.

    The process is stationary: time 0 falls into a gap that is drawn with probability in proportion to its length, at a
    uniformly drawn point of the gap. The first arrival is the end of that gap.
    """
    expected = rate_rps * seconds
    several = math.ceil(expected + 5 * (1 + cv) * math.sqrt(expected)) + 1
    times = [_gaps_s(rate_rps, cv, 1, random, longer=1) * random.random()]
    while times[-1][-1] < seconds:
        times.append(times[-1][-1] + np.cumsum(_gaps_s(rate_rps, cv, several, random)))
    return np.concatenate(times)


def _gaps_s(rate_rps: float, cv: float, count: int, random: np.random.Generator, longer: int = 0) -> np.ndarray:
    """Draw inter-arrival times in s. If ``longer`` is 1, their usual density is multiplied by their length, as for the
    gap into which a random moment falls.
    """
    if cv < EVEN:
        return np.full(count, 1 / rate_rps)
    shape = 1 / cv**2
    return random.gamma(shape + longer, 1 / (shape * rate_rps), count)


def _mmpp_s(arrivals: Mmpp, rate_rps: float, seconds: float, random: np.random.Generator) -> np.ndarray:
    """Arrival times in s of an MMPP until ``seconds``: those of a Poisson process of rate 1 whose time is scaled by the
    integral of the alternating rate.
    """
    mean_low_s = arrivals.mean_high_s * (1 - arrivals.high_share) / arrivals.high_share
    cycles = math.ceil(seconds / (arrivals.mean_high_s + mean_low_s))
    several = 2 * (cycles + 10 * math.ceil(math.sqrt(cycles)) + 10)
    high = (np.arange(several) + (random.random() >= arrivals.high_share)) % 2 == 0
    lengths_s = random.exponential(np.where(high, arrivals.mean_high_s, mean_low_s))
    rates = rate_rps * np.where(high, arrivals.high_over_mean, arrivals.low_over_mean)
    moments_s = np.concatenate([[0.0], lengths_s.cumsum()])
    expected = np.concatenate([[0.0], (lengths_s * rates).cumsum()])
    total = float(np.interp(seconds, moments_s, expected))
    marks = np.sort(random.random(random.poisson(total))) * total
    return np.interp(marks, expected, moments_s)


Routing = Literal["random", "round_robin", "least_loaded"]


def steadiest_bound(arrivals: Poisson | Renewal | Mmpp | Trace) -> Poisson | Renewal | Mmpp | Trace:
    """Return arrivals at least as irregular as those at a replica of any weight under ``random`` routing.

    With weight 1 the replica has the workload's own arrivals; with a small weight its arrivals are nearly Poisson.
    """
    return POISSON if isinstance(arrivals, Renewal) and arrivals.cv <= 1 else arrivals


def by_lot(count: int, parts: Sequence[float], random: np.random.Generator) -> np.ndarray:
    """Draw the replica of each of ``count`` requests by the weights ``parts``; return indices of replicas, (count,)."""
    return random.choice(len(parts), size=count, p=np.array(parts) / sum(parts))


def in_turns(count: int, parts: Sequence[float]) -> np.ndarray:
    """Route ``count`` requests by weighted round robin.

    A replica with weight w is due at the times (k + 1/2) / w for k = 0, 1, ... Each request goes to the replica that is
    due first; among several, to that with the lowest index.

    Returns
    -------
    ndarray
        Indices of replicas, (count,). At any time each replica has its fraction of all requests so far, give or take
        about one request.
    """
    if len(parts) < 2:
        return np.zeros(count, np.int64)
    turns = [math.ceil(count * part) + 1 if part else 0 for part in parts]
    due = np.concatenate([(np.arange(n) + 0.5) / part if n else [] for n, part in zip(turns, parts, strict=True)])
    order = np.argsort(due, kind="stable")[:count]
    return np.repeat(np.arange(len(parts)), turns)[order]


def service_factors(cv: float, count: int, random: np.random.Generator) -> np.ndarray:
    """Draw lognormal factors with mean 1 on the times of ``count`` batches; if ``cv`` is 0, a single 1.

    Parameters
    ----------
    cv
        The coefficient of variation of the batch times.
    """
    if cv == 0:
        return np.ones(1)
    variance = np.log1p(cv**2)
    return random.lognormal(-variance / 2, np.sqrt(variance), max(count, 1))
