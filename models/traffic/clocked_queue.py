"""A server that starts a batch at every tick of a clock: Bailey's bulk queue (1954), and what it bounds.

With A arrivals between ticks and batches of b the queue after a tick is Q' = max(Q + A - b, 0). For Poisson arrivals
its distribution follows from a finite chain; what the chain cuts off counts as late.

Whoever starts a batch of what waits, up to b, within a cycle of any moment at which requests wait is never more than
one cycle behind the clocked server. Such is a replica that takes turns with others and lets no batch wait to fill. (By
induction: when the clocked server starts a batch, the requests before it have started at the replica; what the replica
starts next, at most one cycle later, holds all of that batch that is left.)

That holds for every clock, so each request may be judged by the one that suits it best. To allow 1 + m + p cycles, m
whole and p a part, take the clock whose next tick comes p cycles after the request. With fewer than (m + 1) b before it
there it starts at the tick m cycles later at the latest, and at the replica a cycle after that. Before it are those
left by the tick before, in the long run as many as Q', and the arrivals of the 1 - p cycles since.

Turns that come sooner than a cycle are the better, and a second bound shows it. Let the replica's turn before a request
be u cycles ago, and leave j waiting. With n before it, those and the arrivals since, the request starts at the turn
1 + floor(n / b) after that, so it waits for 1 + floor(n / b) - u cycles at most, and is late only with (m + 2) b before
it, or with (m + 1) b while u < 1 - p. How long it is from a turn to the next depends on earlier arrivals and on those
at others, not on the arrivals in between. After a turn that leaves none, of length L cycles, the expected number of
late requests and the probability that the next turn leaves q or more are at most L times those of a cycle (the first of
these, that of (m + 1) b, at most L / (1 - p) times that of 1 - p cycles): what is rare grows faster than in proportion
to the time. After turns that leave some it is at most what a cycle brings. So turns that leave j are at most x_j / x_0
times as many as the cycles that pass after turns which leave none, x_j being the probabilities of Q' = j. Late requests
over all requests of those cycles alone are the bound.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy

PRECISION = 1e-12
"""Longer queues than have this probability count as late."""

PHASES = 200
"""Parts of a cycle that are told apart."""

MOST_LOAD = 0.995
"""Above this load the chain would be too long; all requests count as late."""


class Waits(NamedTuple):
    """Bounds on how long requests of a replica that takes turns wait for their start.

    Attributes
    ----------
    cycles
        Ascending times, in cycles.
    late
        Bounds on the shares of requests that wait for longer.
    """

    cycles: np.ndarray
    late: np.ndarray


def least_wait(batch: int, per_cycle: float, late: float) -> float:
    """The least time, in cycles, that no more than a share ``late`` of the requests waits for longer; may be infinite.

    Parameters
    ----------
    batch
        Requests that a cycle starts at most.
    per_cycle
        Mean number of requests that arrive in a cycle, as a Poisson process.
    late
        Of the requests, between 0 and 1.
    """
    waits = waits_of(batch, per_cycle)
    enough = waits.late <= late
    return float(waits.cycles[enough.argmax()]) if enough.any() else float("inf")


@lru_cache(maxsize=64)
def waits_of(batch: int, per_cycle: float) -> Waits:
    """The Waits of a replica that takes turns, for Poisson arrivals."""
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
    """(parts, batches - 1) the bound from the turn before a request; see the module's text.

    Both arrays are (phases, batches): how much weight there is on so many full batches at the end of a phase, from all
    numbers that a turn may leave, and from none left.
    """
    phases = np.arange(PHASES, 0, -1)[:, None]  # before the end of which one batch too many is late
    until, none_until = full.cumsum(axis=0), full_from_none.cumsum(axis=0)
    early, late = until[::-1, :-1], (until[-1] - until)[::-1, 1:]
    found: np.ndarray = (early + late + (PHASES / phases - 1) * none_until[::-1, :-1]) / PHASES
    return found


def after_ticks(batch: int, per_cycle: float) -> np.ndarray:
    """Stationary probabilities of the numbers of requests that wait after a tick.

    The chain ends where longer queues are next to impossible by Chernoff's bound on the queue's tail; longer ones
    count as its end.
    """
    decay = _decay(batch, per_cycle)
    length = int(np.ceil(np.log(PRECISION) / np.log(decay))) + 2 * batch + 10
    grown = min(max(_most_arrivals(per_cycle) - batch, 0), length - 2)
    # Balance of all states but the first, whose weight is set to 1, by the diagonals of the matrix.
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
    """The factor by which the queue's tail falls: 1 / z for the root z > 1 of z^batch = exp(per_cycle (z - 1))."""
    def excess(log_z: float) -> float:
        return batch * log_z - per_cycle * np.expm1(log_z)

    high = 2 * (batch / per_cycle - 1)
    while excess(high) > 0:
        high *= 2
    peak = np.log(batch / per_cycle)
    return float(np.exp(-scipy.optimize.brentq(excess, peak, max(high, 2 * peak))))


def _arrived_before(per_cycle: float) -> np.ndarray:
    """(phases, numbers) probabilities of how many arrived since the last tick by the end of each part of a cycle."""
    means = per_cycle * (np.arange(PHASES) + 1) / PHASES
    return _arriving(np.arange(_most_arrivals(per_cycle)), means[:, None])


def _arriving(number: np.ndarray, mean: float | np.ndarray) -> np.ndarray:
    """Poisson probabilities of numbers of arrivals."""
    return np.asarray(np.exp(number * np.log(mean) - mean - scipy.special.gammaln(number + 1)))


def _most_arrivals(mean: float) -> int:
    """A number of arrivals that is never exceeded, but for probabilities that rounding loses."""
    return int(mean + 12 * np.sqrt(mean) + 30)
