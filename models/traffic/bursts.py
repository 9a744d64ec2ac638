"""Requests that come in bursts: a replica that receives several requests at once is judged by a queue of bursts.

A stage of a workflow receives the requests of a whole batch of the previous stage at the same moment. The bursts are
assumed to arrive as the traffic says, one for every ``size`` requests. A burst is then one customer of a simpler queue
(a batch-arrival queue, seen burst by burst):

- A batch that holds several bursts serves that many customers at once.
- A burst that fills several batches is served by as many processes at the same time, a *gang*. If there are fewer
  processes, all of them serve it in several rounds.

A gang starts bursts in the order of arrival and leaves processes idle in between. The real replica is never behind it:
with equal batch times, starting every job in order as soon as a process is free starts each job earliest. The customer
is answered with the last of its batches, so that requests of earlier batches count as late as these.

Bursts have at most ``size`` requests. A burst of ``size`` may be better than single requests, because a batch that is
filled at once does not wait; then the single requests count, so that larger bursts never seem to carry more. Sizes in
between, and the waiting of batches that do not hold a whole number of bursts, are not covered by a proof; tests replay
both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Integers = NDArray[np.int64]


class Grouped(NamedTuple):
    """Replicas as servers of bursts: ``size`` requests each.

    Attributes
    ----------
    size
        Number of requests in a burst.
    batch
        Number of bursts in a batch.
    processes
        Number of gangs of processes; each gang serves one batch of bursts at a time.
    rounds
        Number of hold times, one after another, that a gang needs for a batch of bursts.
    more
        Number of further bursts that fill the last batch of a burst.
    """

    size: int
    batch: Integers
    processes: Integers
    rounds: Integers
    more: Integers


def sizes_up_to(burst: int) -> tuple[int, ...]:
    """The sizes of bursts by which replicas are judged; the worst of them counts."""
    return (1,) if burst == 1 else (1, burst)


def grouped(size: int, batch: ArrayLike, processes: ArrayLike = 1) -> Grouped:
    """Replicas with these batch sizes and numbers of processes as servers of bursts."""
    held, many = np.broadcast_arrays(np.asarray(batch, np.int64), np.asarray(processes, np.int64))
    batches = -(-size // held)
    gangs = np.maximum(many // batches, 1)
    rounds = -(-batches // np.minimum(many, batches))
    more = np.where(batches == 1, -(-held // size) - 1, (size % held > 0).astype(np.int64))
    return Grouped(size, np.maximum(held // size, 1), gangs, rounds, more)
