"""A server that starts a batch at every tick of a clock: Bailey's bulk queue (1954), and what it bounds.

With A arrivals between ticks and batches of b the queue after a tick is Q' = max(Q + A - b, 0). For Poisson arrivals
its distribution follows from a finite chain; what the chain cuts off counts as late.

Whoever is sure of floor(t / cycle) full batches in any time t in which requests wait, such as a replica that takes
turns with others, is never more than one cycle behind the clocked server. Where such a replica lets a batch that is not
full wait for a queue delay, it is behind by that delay as well.
"""

import numpy as np
import scipy

PRECISION = 1e-12
"""A distribution is found when no probability changes by more."""

PHASES = 200
"""Parts of a cycle that are told apart."""

MOST_LOAD = 0.995
"""Above this load the chain would be too long; all requests count as late."""


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
        How far the server may be behind the clock: 0 for a clocked server, 1 for turns, and the queue delay more.

    Returns
    -------
    float
        A request with n others before it starts 1 - phase + floor(n / batch) cycles after its arrival.
    """
    if per_cycle > MOST_LOAD * batch:
        return 1.0
    queue = after_ticks(batch, per_cycle)
    before, phases = _arrived_before(per_cycle)
    share, slack = 0.0, allowed_cycles - behind_cycles
    for phase, arrived in zip(phases, before, strict=True):
        batches = np.floor(slack - (1 - phase) + 1e-12)
        in_time = int(max(batches + 1, 0)) * batch
        ahead = np.convolve(queue, arrived)
        share += 1 - ahead[:in_time].sum()
    return float(min(share / len(phases), 1.0))


def after_ticks(batch: int, per_cycle: float) -> np.ndarray:
    """Stationary probabilities of the numbers of requests that wait after a tick.

    The chain ends where longer queues are next to impossible by Chernoff's bound on the queue's tail; longer ones
    count as its end.
    """
    decay = _decay(batch, per_cycle)
    length = int(np.ceil(np.log(PRECISION) / np.log(decay))) + 2 * batch + 10
    arrivals = scipy.stats.poisson.pmf(np.arange(length + batch + 1), per_cycle)
    arrivals[-1] += max(0.0, 1 - arrivals.sum())
    queue, change = np.zeros(length), 1.0
    queue[0] = 1.0
    while change > PRECISION:
        total = scipy.signal.fftconvolve(queue, arrivals).clip(0)
        following = np.concatenate([[total[: batch + 1].sum()], total[batch + 1 : batch + length]])
        following[-1] += max(0.0, 1 - following.sum())
        change, queue = float(np.abs(following - queue).max()), following
    return queue


def _decay(batch: int, per_cycle: float) -> float:
    """The factor by which the queue's tail falls: 1 / z for the root z > 1 of z^batch = exp(per_cycle (z - 1))."""
    def excess(log_z: float) -> float:
        return batch * log_z - per_cycle * np.expm1(log_z)

    high = 2 * (batch / per_cycle - 1)
    while excess(high) > 0:
        high *= 2
    peak = np.log(batch / per_cycle)
    return float(np.exp(-scipy.optimize.brentq(excess, peak, max(high, 2 * peak))))


def _arrived_before(per_cycle: float) -> tuple[list[np.ndarray], np.ndarray]:
    """Probabilities of the numbers that arrived since the last tick, at phases of a cycle, each counted at its worst.

    Between two phases the wait is that of the earlier one and the number that of the later one.
    """
    steps = np.arange(PHASES)
    length = int(per_cycle + 12 * np.sqrt(per_cycle) + 30)
    return [scipy.stats.poisson.pmf(np.arange(length), per_cycle * (at + 1) / PHASES) for at in steps], steps / PHASES
