"""Requests that come in bursts: how a replica that gets up to so many at once is judged by queues of single arrivals.

A stage of a workflow gets the requests of a whole batch of the stage before at the same moment. What is known about
those moments is taken for granted of the bursts: they come as the traffic says, one for every ``size`` requests. Then
a burst is one customer of a simpler queue (a batch-arrival queue seen burst by burst):

- A batch that holds several bursts serves so many customers at once.
- A burst that fills several batches is served by that many processes at once, as a gang, or where there are not as
  many, by all of them for several rounds.

The gang starts in the order of arrival and lets processes idle, so the replica itself is never behind it: with equal
times whoever starts jobs in their order as soon as a process is free starts each of them first. Its customer is
answered with the last of its batches, so that earlier ones count as late as that one.

Bursts are of ``size`` at most. Where single arrivals carry less than bursts of ``size`` (a batch that is filled at once
waits for nobody) these count, so that a larger size never carries more than 1. Nothing is proven of sizes in between,
nor of what batches that hold no whole number of bursts lose by waiting; tests replay both.
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
        Requests of a burst.
    batch
        Bursts that a batch holds.
    processes
        Gangs of processes, each of which serves a batch of bursts.
    rounds
        Hold times after each other that a gang needs for it.
    more
        Further bursts that fill the last batch of a burst.
    """

    size: int
    batch: Integers
    processes: Integers
    rounds: Integers
    more: Integers


def sizes_up_to(burst: int) -> tuple[int, ...]:
    """The sizes of bursts that replicas are judged by, of which the worst counts."""
    return (1,) if burst == 1 else (1, burst)


def grouped(size: int, batch: ArrayLike, processes: ArrayLike = 1) -> Grouped:
    """Replicas with these batch sizes and numbers of processes as servers of bursts."""
    held, many = np.broadcast_arrays(np.asarray(batch, np.int64), np.asarray(processes, np.int64))
    batches = -(-size // held)
    gangs = np.maximum(many // batches, 1)
    rounds = -(-batches // np.minimum(many, batches))
    more = np.where(batches == 1, -(-held // size) - 1, (size % held > 0).astype(np.int64))
    return Grouped(size, np.maximum(held // size, 1), gangs, rounds, more)
