"""What loads a replica carries, from tables of the patience that loads need: how methods ask for it.

A table has one curve for every batch size of ``sizes_of`` and number of processes of ``PROCESSES``: how much patience
each of its loads needs, in turns (patience times processes, in hold times). Between loads patience is linear in the
inverse load, which is exact for a process whose batches seldom fill, and otherwise above the truth. Between batch sizes
turns are linear in the logarithm or in the inverse, whichever gives more: the inverse is exact at the middle load where
batches seldom fill, and above the truth below it. Between numbers of processes those of the smaller number count.

The table of the queue that most instances have is shipped (``data/queue-turns.npz``); of others a curve is computed
when first asked for, which takes seconds, and kept on disk. The shipped table has more batch sizes, which cost its
readers nothing: just short of one turn loads follow patience so steeply that wide steps between sizes give away load.
"""

import sys
from bisect import bisect_left
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from inspect import getsource
from typing import NamedTuple

import numpy as np

from provision.models.base.kept import kept
from provision.models.traffic import arrivals as arrivals_module
from provision.models.traffic import queue_replays, replica_kernels, spread
from provision.models.traffic.arrivals import Trace, trace_shape
from provision.models.traffic.queue_replays import REQUESTS, Queue, least_patience

SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256)
"""Batch sizes of curves that are computed when asked for."""

SHIPPED_SIZES = tuple(sorted((*SIZES, 7, 10, 20, 40, 80, 100, 160, 200)))
"""Batch sizes of the shipped table: none from 3 on is more than a third larger than the one before."""

PROCESSES = (1, 2, 3, 4, 5, 6, 8)
LOWEST_RATE = 0.008
"""The lowest load of a curve is where so many requests arrive in a hold time, per process."""

MIDDLE_LOAD = 0.3
LOW_LOADS = 25
HIGH_LOADS = (
    0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.64, 0.68, 0.72, 0.75, 0.78, 0.81, 0.835, 0.86, 0.88, 0.9,
    0.92, 0.935, 0.95, 0.96, 0.97, 0.98,
)
"""No replica is planned for more than the last of these, whatever its patience."""

FILLED = 0.9
"""Load of the largest batch size above which that of a still larger one is not compared by arrivals in a hold time."""

LONG = {many: 2**24 if many == 1 else 2**22 for many in PROCESSES}
"""Requests of the shipped table's replays for the loads up to the middle one, by the number of processes.

There the share of late requests rises with a power of the load, which is that number. So the load of a single process
is as uncertain as the share, that of several less. Shares rise so fast with loads above the middle one that REQUESTS
are enough."""

MARGIN = 0.995
"""Planned are so much of the tables' loads: more than what was measured to lie between their sizes and the truth."""


class Curve(NamedTuple):
    """What patience the loads of a replica need, both in order; there is no load beyond the last."""

    loads: np.ndarray
    patience: np.ndarray


def loads_of(batch: int) -> np.ndarray:
    """The loads of a curve: closer together where batches hardly ever fill and where the load is high."""
    low = np.geomspace(LOWEST_RATE / batch, MIDDLE_LOAD, LOW_LOADS)
    return np.concatenate([low, HIGH_LOADS])


@lru_cache(maxsize=4096)
def curve(queue: Queue, batch: int, processes: int) -> Curve:
    """The Curve of a replica; numbers of processes beyond the largest count as the largest."""
    known = max(count for count in PROCESSES if count <= processes)
    sizes = sizes_of(queue)
    above = bisect_left(sizes, min(batch, sizes[-1]))
    turns = turns_at(queue, sizes[above], known) if batch <= sizes[-1] else _larger(queue, batch, known)
    if sizes[above] > batch:
        low, high = sizes[above - 1], sizes[above]
        parts = np.log(batch / low) / np.log(high / low), (1 / low - 1 / batch) / (1 / low - 1 / high)
        less = turns_at(queue, low, known)
        turns = np.maximum(*((1 - part) * less + part * turns for part in parts))
    finite = np.isfinite(turns)
    return Curve(MARGIN * loads_of(batch)[finite], turns[finite] / processes)


def _larger(queue: Queue, batch: int, processes: int) -> np.ndarray:
    """The turns of a batch size beyond the largest of the table, at ``loads_of`` it.

    Where batches seldom fill, what counts is how many requests arrive in a hold time: the largest size of the table
    needs as many turns where as many arrive. Where they fill, it needs no less at the same load, since more requests
    make a steadier stream. The larger of both counts; replays of sizes up to 16384 need no more.
    """
    largest = sizes_of(queue)[-1]
    turns = turns_at(queue, largest, processes)
    known = np.isfinite(turns)
    inverse = -1 / loads_of(largest)[known]
    asked = loads_of(batch)
    as_many = np.minimum(asked * batch / largest, FILLED)
    return np.maximum(*(np.interp(-1 / loads, inverse, turns[known], right=np.inf) for loads in (asked, as_many)))


def sizes_of(queue: Queue) -> tuple[int, ...]:
    """The batch sizes that the table of a queue has curves for."""
    return SHIPPED_SIZES if queue == Queue() else SIZES


def turns_at(queue: Queue, batch: int, processes: int) -> np.ndarray:
    """The turns that the loads of a curve of the table need; infinite where no patience is enough."""
    if queue == Queue():
        return shipped_turns()[SHIPPED_SIZES.index(batch), PROCESSES.index(processes)]
    return computed_turns(queue, batch, processes)


@lru_cache(maxsize=1024)
def computed_turns(queue: Queue, batch: int, processes: int, low_requests: int = REQUESTS) -> np.ndarray:
    """A curve of the table, by replays, kept on disk; those for low loads have ``low_requests``."""
    arrivals = queue.arrivals
    recorded = trace_shape(arrivals.path).tobytes() if isinstance(arrivals, Trace) else b""
    return kept(f"{_version()} {queue} {batch} {processes} {low_requests}".encode() + recorded,
                lambda: _replayed_turns(queue, batch, processes, low_requests))


@lru_cache(maxsize=1)
def _version() -> str:
    """A digest of the code behind curves."""
    sources = (replica_kernels, queue_replays, arrivals_module, spread, sys.modules[__name__])
    return sha256("".join(map(getsource, sources)).encode()).hexdigest()


def _replayed_turns(queue: Queue, batch: int, processes: int, low_requests: int) -> np.ndarray:
    """A curve of the table, by replays."""
    needed = [0.0]
    for load in loads_of(batch).tolist():
        requests = low_requests if load <= MIDDLE_LOAD else REQUESTS
        hopeless = needed[-1] == np.inf
        needed.append(np.inf if hopeless else least_patience(queue, batch, processes, load, needed[-1], requests))
    return np.array(needed[1:]) * processes


@lru_cache(maxsize=1)
def shipped_turns() -> np.ndarray:
    """(shipped sizes, processes, loads) turns of Poisson arrivals, percentile 99 and constant batch times."""
    with files("provision.models.traffic").joinpath("data/queue-turns.npz").open("rb") as file:
        return np.load(file)["turns"]


def tabulated() -> np.ndarray:
    """What ``shipped_turns`` ships, computed anew; half an hour of one core."""
    return np.array([[computed_turns(Queue(), batch, many, LONG[many]) for many in PROCESSES]
                     for batch in SHIPPED_SIZES])
