"""A server that starts a batch at every tick of a clock: Bailey's bulk queue (1954), and what it bounds.

With A arrivals between ticks and batches of b the queue after a tick is Q' = max(Q + A - b, 0). For Poisson arrivals
its distribution follows from a finite chain; what the chain cuts off counts as late.

Whoever starts a batch of what waits, up to b, within a cycle of any moment at which requests wait is never more than
one cycle behind the clocked server. Such is a replica that takes turns with others and lets no batch wait to fill. (By
induction: when the clocked server starts a batch, the requests before it have started at the replica; what the replica
starts next, at most one cycle later, holds all of that batch that is left.)
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
    """Bounds on how long requests of a clocked server wait for their start.

    Attributes
    ----------
    cycles
        Ascending times, in cycles.
    late
        Bounds on the shares of requests that wait for longer.
    """

    cycles: np.ndarray
    late: np.ndarray


def late_share(batch: int, per_cycle: float, allowed_cycles: float, behind_cycles: float = 1.0) -> float:
    """A bound on the share of requests that have not started within a time.

    Parameters
    ----------
    batch
        Requests that a tick starts at most.
    per_cycle
        Mean number of requests that arrive in a cycle, as a Poisson process.
    allowed_cycles
        The time from a request's arrival to its start that is not late, in cycles.
    behind_cycles
        How far the server may be behind the clock: 0 for a clocked server, 1 for turns.
    """
    waits = waits_of(batch, per_cycle)
    reached = int(np.searchsorted(waits.cycles, allowed_cycles - behind_cycles + 1e-12, side="right"))
    return float(waits.late[reached - 1]) if reached else 1.0


def least_wait(batch: int, per_cycle: float, late: float, behind_cycles: float = 1.0) -> float:
    """The least time, in cycles, that no more than a share ``late`` of the requests waits for longer; may be infinite.

    Parameters are those of ``late_share``.
    """
    waits = waits_of(batch, per_cycle)
    enough = waits.late <= late
    return float(waits.cycles[enough.argmax()]) + behind_cycles if enough.any() else float("inf")


@lru_cache(maxsize=64)
def waits_of(batch: int, per_cycle: float) -> Waits:
    """The Waits of a clocked server for Poisson arrivals.

    A request with n others before it starts 1 - phase + floor(n / batch) cycles after its arrival. Within a part of a
    cycle the wait is that of its begin, and the number of those before it that of its end.
    """
    if per_cycle > MOST_LOAD * batch:
        return Waits(np.zeros(1), np.ones(1))
    queue = after_ticks(batch, per_cycle)
    arrived = _arrived_before(per_cycle)
    longer = np.append(queue[::-1].cumsum()[::-1], np.zeros(1))
    batches = np.arange((len(queue) + arrived.shape[1]) // batch + 2)
    missing = batches[:, None] * batch - np.arange(arrived.shape[1])
    tails = longer[missing.clip(0, len(queue))]
    more = arrived @ tails.T + np.maximum(1 - arrived.sum(axis=1), 0)[:, None]
    before = np.vstack([np.zeros(len(batches)), more.cumsum(axis=0)])[::-1] / PHASES
    late = before[:-1, :-1] + before[0, 1:] - before[:-1, 1:]
    return Waits(np.arange(late.size) / PHASES, np.minimum(late.T.ravel(), 1.0))


def after_ticks(batch: int, per_cycle: float) -> np.ndarray:
    """Stationary probabilities of the numbers of requests that wait after a tick.

    The chain ends where longer queues are next to impossible by Chernoff's bound on the queue's tail; longer ones
    count as its end.
    """
    decay = _decay(batch, per_cycle)
    length = int(np.ceil(np.log(PRECISION) / np.log(decay))) + 2 * batch + 10
    arrivals = scipy.stats.poisson.pmf(np.arange(length + batch + 1), per_cycle)
    place = np.arange(length) + batch - np.arange(length)[:, None]
    step = np.where(place >= 0, arrivals[np.maximum(place, 0)], 0.0)
    step[:, 0] = scipy.stats.poisson.cdf(batch - np.arange(length), per_cycle)
    step[:, -1] += np.maximum(1 - step.sum(axis=1), 0.0)
    rows = step.T - np.eye(length)
    rows[0] = 1.0
    found: np.ndarray = np.linalg.solve(rows, np.eye(length)[0]).clip(0)
    return found


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
    return np.asarray(scipy.stats.poisson.pmf(np.arange(int(per_cycle + 12 * np.sqrt(per_cycle) + 30)), means[:, None]))
