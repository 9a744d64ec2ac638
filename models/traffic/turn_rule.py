"""Computes the longest duty cycle with which a replica that runs in turn with others keeps the percentile of its SLO.

For Poisson arrivals, the module bounds at every load how many cycles a request waits for its start. The bound is
proven, up to the rounding of a Markov chain, by comparison with a server that starts a batch at every tick of a clock
(Bailey's bulk queue, 1954). It is tabulated on a grid of loads; for a load in between, the next higher load of the grid
is used. The tables of the P99 for usual batch sizes are shipped (``data/turn-cycles.npz``); another table is computed
on first use, which takes half a second, and kept on disk.

The clocked server: between two ticks, one *cycle* apart, A requests arrive, and each tick starts a batch of at most b
waiting requests. The queue after a tick is Q' = max(Q + A - b, 0). For Poisson arrivals Q is a Markov chain. Here the
chain ends at a longest queue; requests in longer queues count as late.

It is compared with a replica that runs in turn with others and does not wait until a batch fills. If requests wait, the
replica starts a batch of up to b of them within a cycle. Hence the replica is never more than one cycle behind the
clocked server. (Induction: when the clocked server starts a batch, the replica has started all requests of earlier
batches. The batch that the replica starts next, at most one cycle later, contains all requests of the server's batch
that are left.)

*First bound.* The comparison holds for every phase of the clock, so that each request may be judged by the phase that
gives the lowest bound. To bound the probability of a wait of more than 1 + m + p cycles, with m an integer and 0 <= p <
1, take the clock whose next tick comes p cycles after the request. If fewer than (m + 1) b requests are before it, the
clocked server starts the request at the latest m cycles after that tick, and the replica at most one cycle later. The
requests before it are the requests that the last tick left, distributed as Q', and the arrivals of the 1 - p cycles
since that tick.

*Second bound.* Requests wait less if turns come sooner than after a cycle; this bound uses it. Let the replica's last
turn before a request be u cycles ago and leave j requests waiting. Let n be the number of requests before it: those j
and the arrivals since the turn. The request starts at turn number 1 + floor(n / b) after the last turn. So it waits at
most 1 + floor(n / b) - u cycles. It is late only if n >= (m + 2) b, or if n >= (m + 1) b and u < 1 - p.

- The time from one turn to the next depends on earlier arrivals and on arrivals at other replicas, not on the arrivals
  in between. Let this time be L <= 1 cycles. Rare events grow faster than in proportion to the time. Therefore after a
  turn that leaves no request, the expected number of late requests, and the probability that the next turn leaves q or
  more, are at most L times those of a whole cycle. (The expected number with n >= (m + 1) b and u < 1 - p is at most L
  / (1 - p) times that of 1 - p cycles.)
- After a turn that leaves requests, both are at most those of a whole cycle.
- Let x_j be the probability of Q' = j. It follows that the number of turns that leave j requests is at most x_j / x_0
  times the number of cycles that pass after turns that leave none.

The bound is the number of late requests divided by the number of requests that arrive in these cycles alone.
"""

import sys
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from inspect import getsource
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from provision.models.base.kept import kept
from provision.models.base.tolerances import TOLERANCE

PRECISION = 1e-12
"""The chain ends where longer queues have less than this probability; requests in longer queues count as late."""

PHASES = 200
"""The number of phases into which a cycle is divided."""

MOST_LOAD = 0.995
"""The load above which the chain would be too long; above it all requests count as late."""


class Waits(NamedTuple):
    """Bounds on the times that requests wait at a replica that runs in turn, from arrival to the start of their batch.

    Attributes
    ----------
    cycles
        Times in cycles, ascending, shape (times,).
    late
        Upper bounds on the fraction of requests that wait longer than each time, shape (times,).
    """

    cycles: np.ndarray
    late: np.ndarray


def least_wait(batch: int, per_cycle: float, late: float) -> float:
    """Return the least time, in cycles, that at most a fraction ``late`` of the requests exceeds; it may be infinite.

    Parameters
    ----------
    batch
        The most requests that are started in a cycle.
    per_cycle
        The mean number of requests that arrive in a cycle, as a Poisson process.
    late
        The fraction of the requests, from 0 to 1.
    """
    waits = waits_of(batch, per_cycle)
    enough = waits.late <= late
    return float(waits.cycles[enough.argmax()]) if enough.any() else float("inf")


@lru_cache(maxsize=64)
def waits_of(batch: int, per_cycle: float) -> Waits:
    """The Waits at a replica that runs in turn, for Poisson arrivals."""
    if per_cycle > MOST_LOAD * batch:
        return Waits(np.zeros(1), np.ones(1))
    queue = after_ticks(batch, per_cycle)
    arrived = _arrived_before(per_cycle)
    batches = np.arange(1, (len(queue) + arrived.shape[1]) // batch + 3)
    missing = batches[:, None] * batch - np.arange(arrived.shape[1])
    beyond = np.maximum(1 - arrived.sum(axis=1), 0)[:, None]
    waiting = np.append(queue[::-1].cumsum()[::-1], np.zeros(1))
    full = arrived @ waiting[missing.clip(0, len(queue))].T + beyond
    full_from_none = arrived @ (missing <= 0).T + beyond
    late = np.minimum(full[::-1, :-1], _by_turns(full / queue[0], full_from_none))
    return Waits(1 + np.arange(late.size) / PHASES, np.minimum.accumulate(late.T.ravel().clip(0, 1)))


def _by_turns(full: np.ndarray, full_from_none: np.ndarray) -> np.ndarray:
    """The second bound of the module's text, shape (phases, batches - 1).

    Both arguments have shape (phases, batches). ``full_from_none`` is the probability that at least 1, 2, ... full
    batches wait at the end of a phase, after a tick that left no request. ``full`` is the same after any tick, divided
    by x_0.
    """
    phases = np.arange(PHASES, 0, -1)[:, None]  # requests before its end are late with one batch too many
    until, none_until = full.cumsum(axis=0), full_from_none.cumsum(axis=0)
    early, late = until[::-1, :-1], (until[-1] - until)[::-1, 1:]
    found: np.ndarray = (early + late + (PHASES / phases - 1) * none_until[::-1, :-1]) / PHASES
    return found


def after_ticks(batch: int, per_cycle: float) -> np.ndarray:
    """Stationary probabilities of the number of waiting requests after a tick: element j is the probability of j
    requests.

    The chain ends where Chernoff's bound on the queue's tail falls below PRECISION; longer queues count as its last
    state.
    """
    decay = _decay(batch, per_cycle)
    length = int(np.ceil(np.log(PRECISION) / np.log(decay))) + 2 * batch + 10
    grown = min(max(_most_arrivals(per_cycle) - batch, 0), length - 2)
    # The balance equations of all states but the first, whose weight is set to 1, by the diagonals of their matrix.
    rows = np.repeat(_arriving(np.arange(batch + grown + 1), per_cycle)[:, None], length - 1, axis=1)
    rows[batch] -= 1
    last = np.arange(grown + 1)
    rows[batch + last, length - 2 - last] += scipy.special.pdtrc(batch + last, per_cycle)
    from_first = _arriving(batch + np.arange(1, length), per_cycle)
    from_first[-1] += scipy.special.pdtrc(batch + length - 1, per_cycle)
    found = np.append(1.0, scipy.linalg.solve_banded((grown, batch), rows, -from_first)).clip(0)
    shares: np.ndarray = found / found.sum()
    return shares


def _decay(batch: int, per_cycle: float) -> float:
    """The ratio of the queue's geometric tail, 1 / z, where z > 1 is the root of z^batch = exp(per_cycle (z - 1))."""
    def excess(log_z: float) -> float:
        return batch * log_z - per_cycle * np.expm1(log_z)

    high = 2 * (batch / per_cycle - 1)
    while excess(high) > 0:
        high *= 2
    peak = np.log(batch / per_cycle)
    return float(np.exp(-scipy.optimize.brentq(excess, peak, max(high, 2 * peak))))


def _arrived_before(per_cycle: float) -> np.ndarray:
    """Probabilities of the number of arrivals from the last tick to the end of each phase, (phases, numbers)."""
    means = per_cycle * (np.arange(PHASES) + 1) / PHASES
    return _arriving(np.arange(_most_arrivals(per_cycle)), means[:, None])


def _arriving(number: np.ndarray, mean: float | np.ndarray) -> np.ndarray:
    """Poisson probabilities of numbers of arrivals."""
    return np.asarray(np.exp(number * np.log(mean) - mean - scipy.special.gammaln(number + 1)))


def _most_arrivals(mean: float) -> int:
    """A number of arrivals that is exceeded only with a probability below rounding errors, for Poisson arrivals."""
    return int(mean + 12 * np.sqrt(mean) + 30)


Floats = NDArray[np.float64]
LEAST_LOAD, HIGHEST_LOAD, STEP = 0.05, 0.965, 1.02
"""The grid of loads: the least load, the highest load, and the factor from one load to the next.

No replica is planned for more load than the highest.
"""
SHIPPED_BATCHES, SHIPPED_PERCENTILE = range(1, 65), 99.0
"""The batch sizes and the percentile for which tables are shipped."""


class Needs(NamedTuple):
    """Ascending loads, and for each load the number of cycles within which the percentile of the requests starts."""

    loads: Floats
    cycles: Floats


@lru_cache(maxsize=1024)
def needs_of(batch: int, percentile: float) -> Needs:
    """The Needs of a batch size; a load is the mean number of arrivals per cycle divided by the batch size."""
    if percentile == SHIPPED_PERCENTILE and batch in SHIPPED_BATCHES:
        return Needs(_loads(), shipped_cycles()[SHIPPED_BATCHES.index(batch)])
    depends_on = f"{_version()} {batch} {percentile}".encode()
    return Needs(_loads(), kept(depends_on, lambda: computed_cycles(batch, percentile)))


def computed_cycles(batch: int, percentile: float) -> Floats:
    """Compute the cycles of ``needs_of`` at all loads of the grid."""
    cycles = [least_wait(batch, batch * load, 1 - percentile / 100) for load in _loads().tolist()]
    return np.maximum.accumulate(cycles)


@lru_cache(maxsize=1)
def shipped_cycles() -> Floats:
    """(batch sizes, loads), the shipped tables of cycles."""
    with files("provision.models.traffic").joinpath("data/turn-cycles.npz").open("rb") as file:
        found: Floats = np.load(file)["cycles"]
    return found


def tabulated() -> Floats:
    """Compute ``shipped_cycles`` again; this takes a minute."""
    return np.array([computed_cycles(batch, SHIPPED_PERCENTILE) for batch in SHIPPED_BATCHES])


def _loads() -> Floats:
    """The loads of the grid, ascending."""
    steps = int(np.log(HIGHEST_LOAD / LEAST_LOAD) / np.log(STEP)) + 1
    return HIGHEST_LOAD * STEP ** np.arange(-steps, 1.0)


@lru_cache(maxsize=1)
def _version() -> str:
    """A digest of the source on which the tables depend."""
    return sha256((getsource(sys.modules[__name__]) + f"{LEAST_LOAD} {HIGHEST_LOAD} {STEP}").encode()).hexdigest()


def cycle_room_ms(percentile: float, batch: ArrayLike, rate_rps: ArrayLike, wait_ms: ArrayLike) -> Floats:
    """Return the longest duty cycles with which requests start in time, in ms.

    Parameters
    ----------
    percentile
        The percentage of the requests that must start in time.
    batch, rate_rps, wait_ms
        Arrays or numbers that broadcast against each other: the batch size, the rate, and the longest time that a
        request may wait for its start.

    Returns
    -------
    ndarray
        The cycles in ms, in the broadcast shape; 0 where ``wait_ms`` is not above 0. Shorter cycles keep the percentile
        too.
    """
    of = np.broadcast_arrays(batch, rate_rps, wait_ms)
    size, rate, wait = (np.ravel(one) for one in of)
    found = np.zeros(size.shape)
    for one in np.unique(size).tolist():
        at, needs = size == one, needs_of(int(one), percentile)
        with np.errstate(divide="ignore"):
            filled_ms = 1000 * one / rate[at, None] * needs.loads
        found[at] = np.minimum(filled_ms, np.maximum(wait[at, None], 0.0) / needs.cycles).max(axis=1)
    return found.reshape(of[0].shape)


def most_in_turns_rps(percentile: float, batch: int, cycle_ms: float, wait_ms: float) -> float:
    """The highest rate, in requests/s, at which the percentile of the requests starts in time; 0 if there is none."""
    needs = needs_of(batch, percentile)
    reached = int(np.searchsorted(needs.cycles, wait_ms / cycle_ms * (1 + TOLERANCE), side="right"))
    return float(needs.loads[reached - 1]) * 1000 * batch / cycle_ms if reached else 0.0


def wait_ms(percentile: float, batch: int, rate_rps: float, cycle_ms: float) -> float:
    """A time in ms within which the percentile of the requests starts; infinite beyond the highest load of the grid."""
    needs = needs_of(batch, percentile)
    at = int(np.searchsorted(needs.loads, rate_rps * cycle_ms / (1000 * batch) * (1 - TOLERANCE)))
    return float(needs.cycles[at]) * cycle_ms if at < len(needs.loads) else float("inf")
