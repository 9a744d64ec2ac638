"""How late tasks are at a replica: queueing for a full batch and for a process, and the rate up to which P99 holds.

A batch starts on an idle process as soon as it is full or its first task has waited for the queue delay (as Triton's
dynamic batcher does it). A full batch then holds its process for a hold time, batch * processes / throughput, and its
tasks are answered a batch latency after its start; a smaller batch is taken to be no faster. Tasks arrive as a Poisson
process; so they do at each of several replicas that a workload's tasks are dealt to at random.

Say that a task's ``patience``, in hold times, is the queue delay, and that it still waits when its patience ends. Then
every process has started a batch within the last hold time. With full batches only, this is the wait of an M/D/k
queue with k = batch * processes (Crommelin, 1932): n full batches stand before those of the last hold time, for some n
from 0 on. Of the batches of the last hold time, all but m < processes may have been started by the delay instead, each
a patience after the one before. Then the tasks of n * processes + m batches, and those before it in its own batch,
arrived within

    n + 1 - (processes - m) * patience

hold times. The sum of these Poisson tails bounds the share of late tasks. Where the delay starts batches they are not
full; so a task is judged as one of the first half of its batch, and as the first one where the patience is too short
for the processes to take turns. With one process this is InSS's task latency (eq. 2), its wait for a full batch cut
off at the delay. Where the delay starts batches, that no more tasks are late is not proven: tests hold it against
replayed arrivals.

The verifier uses ``p99_ms``; methods use ``queueing_rates`` with compiled loops, written apart.
"""

import math
from functools import lru_cache
from itertools import accumulate, count
from typing import NamedTuple

import numpy as np
import scipy

LATE = 0.0099
"""The share of tasks that the tails may make late: P99 counts, and what starts late makes some more late in turn."""

MOST_LOAD = 0.98
"""No replica is planned for more of its throughput, whatever its patience."""

ROUNDING = 1e-4
"""Relative excess over ``LATE`` that counts as rounding."""

NEGLIGIBLE = 1e-10
"""Terms that have fallen below this are left out, and with them all that follow."""

VANISHING = -40.0
"""Logarithm of a probability too small to count."""

HALVINGS = 10
"""How often the range of P99 is halved."""


@lru_cache(maxsize=2**16)
def p99_ms(batch, processes, found, rate_rps, delay_ms):
    """A latency that at most ``LATE`` of the tasks of a replica exceed: the scalar path.

    Parameters
    ----------
    batch, processes, found
        The replica's operating point and the Prediction for it.
    rate_rps
        Rate of its tasks.
    delay_ms
        Queue delay: longest wait of a task for its batch to fill while a process is idle.

    Returns
    -------
    float
        In ms; infinite above ``MOST_LOAD``.
    """
    if rate_rps > found.throughput_rps * MOST_LOAD * (1 + NEGLIGIBLE):
        return math.inf
    queue = _Queue(batch, processes, 1000 * batch * processes / found.throughput_rps, rate_rps / 1000, delay_ms)
    low_ms, high_ms = 0.0, delay_ms
    while queue.late(high_ms):
        low_ms, high_ms = high_ms, 2 * high_ms + queue.hold_ms
    for _ in range(HALVINGS):
        middle_ms = (low_ms + high_ms) / 2
        low_ms, high_ms = (middle_ms, high_ms) if queue.late(middle_ms) else (low_ms, middle_ms)
    return found.latency_ms + high_ms


class _Queue(NamedTuple):
    """The tasks of one replica; ``rate`` counts them per ms."""

    batch: int
    processes: int
    hold_ms: float
    rate: float
    delay_ms: float

    def late(self, wait_ms):
        """Whether more than ``LATE`` of the tasks may wait for longer than this."""
        shares = accumulate(self._tails(wait_ms), initial=self._unfilled(wait_ms))
        return any(share > LATE * (1 + ROUNDING) for share in shares)

    def _tails(self, wait_ms):
        """Shares of the tasks that wait so long behind n, n + 1, ... rounds of all processes, while they count."""
        load, turns = self.rate * self.hold_ms / (self.batch * self.processes), wait_ms / self.hold_ms
        # By Chernoff's bound none is larger than exp(-2 (1 - load) batch processes (turns - 1)).
        if 2 * (1 - load) * self.batch * self.processes * (turns - 1) > -VANISHING:
            return
        falling_from = turns * (2 + load / (1 - load))
        for rounds in count(math.floor(turns)):
            found = [self._behind(rounds, last, wait_ms) for last in range(self.processes)]
            yield sum(found)
            if rounds > falling_from and max(found) < NEGLIGIBLE:
                return

    def _unfilled(self, wait_ms):
        """Probability that a batch is neither full nor started by the delay when its first task has waited so long."""
        if wait_ms >= self.delay_ms or self.batch == 1:
            return 0.0
        return float(scipy.special.gammaincc(self.batch - 1, self.rate * wait_ms))

    def _behind(self, rounds, last, wait_ms):
        """Share of the tasks that arrive within so short a time behind ``rounds * processes + last`` batches."""
        window_ms = (rounds + 1) * self.hold_ms - wait_ms - (self.processes - 1 - last) * self.delay_ms
        ahead, mean = (rounds * self.processes + last) * self.batch, self.rate * window_ms
        # Chernoff's bound spares most of the tails.
        if mean < NEGLIGIBLE or (mean < ahead and ahead - mean + ahead * math.log(mean / ahead) < VANISHING):
            return 0.0
        in_turns = self.processes * self.delay_ms >= self.hold_ms * (1 - ROUNDING)
        places = np.arange(1, math.ceil(self.batch / 2) + 1 if in_turns else 2)
        return float(scipy.special.gammainc(ahead + places, mean).mean())
