"""Tabulates the patience that a replica needs at each load (see `queue_replays`), from which capacities are looked up.

A table has one curve for every batch size of ``sizes_of`` and every number of processes of ``PROCESSES``. A curve gives
the patience that is needed at each of its loads, as *turns*: patience times processes, in hold times. Values between
tabulated ones are interpolated so that the result is exact or too large:

- between loads the patience is linear in the inverse load, which is exact for a single process whose batches seldom
  fill;
- between batch sizes the turns are linear in the logarithm or in the inverse of the size, whichever gives more.
  Interpolation in the inverse is exact at the middle load where batches seldom fill, and too large below it;
- for numbers of processes between tabulated ones, the curve of the next smaller number is used.

The table for the queue of most instances is shipped (``data/queue-turns.npz``). For other queues a curve is computed on
first use, which takes seconds, and kept on disk. The shipped table has more batch sizes, because the load rises steeply
with the patience just below one turn, where coarse steps between batch sizes would lose capacity.

An instance may need fifty curves. Within a time limit (`limited`), curves for which there is no time are replaced by
coarse ones, which take a tenth of a second and err to the safe side: with them a replica carries less. So a plan with
them holds, and a bound with them does not.
"""

import logging
import sys
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, lru_cache
from hashlib import sha256
from importlib.resources import files
from inspect import getsource
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Floats
from provision.models.base.clock import NEVER, Deadline
from provision.models.base.kept import kept, on_disk
from provision.models.traffic import arrivals, queue_replays
from provision.models.traffic.arrivals import Trace, trace_shape
from provision.models.traffic.queue_replays import REQUESTS, Queue, least_patience

SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256)
"""The batch sizes of curves that are computed on first use."""

SHIPPED_SIZES = tuple(sorted((*SIZES, 7, 10, 20, 40, 80, 100, 160, 200)))
"""The batch sizes of the shipped table; from 3 on, none is more than a third larger than the one before."""

PROCESSES = (1, 2, 3, 4, 5, 6, 8)
LOWEST_RATE = 0.008
"""The lowest load of a curve, as the number of requests that arrive in a hold time, per process."""

MIDDLE_LOAD = 0.3
LOW_LOADS = 25
HIGH_LOADS = (
    0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.64, 0.68, 0.72, 0.75, 0.78, 0.81, 0.835, 0.86, 0.88, 0.9,
    0.92, 0.935, 0.95, 0.96, 0.97, 0.98,
)
"""The loads of a curve above the middle one; no replica is planned for more than the last of them."""

FILLED = 0.9
"""The load up to which a batch size beyond the largest of the table is compared with that one at equal numbers of
arrivals
in a hold time.
"""

LONG = {many: 2**24 if many == 1 else 2**22 for many in PROCESSES}
"""The numbers of requests in the shipped table's replays at loads up to the middle one, by number of processes.

At these loads the fraction of late requests grows as the load to the power of the number of processes. Therefore the
load of a single process is as uncertain as that fraction, and the load of several processes is less uncertain. Above
the middle load the fraction grows so fast that REQUESTS are enough.
"""

MARGIN = 0.995
"""The factor on all loads of the tables. It covers the largest measured error of interpolation between batch sizes."""

COARSE_REQUESTS, COARSE_STEP = 2**16, 4
"""The number of requests in the replays of a coarse curve, and which of the loads, counted from the first, have any."""
_logger = logging.getLogger(__name__)


class Curve(NamedTuple):
    """Ascending loads of a replica and the patience that each load needs; a replica cannot carry more than the last
    load.
    """

    loads: np.ndarray
    patience: np.ndarray


def loads_of(batch: int) -> np.ndarray:
    """The loads of a curve: closest together where batches seldom fill and where the load is high."""
    low = np.geomspace(LOWEST_RATE / batch, MIDDLE_LOAD, LOW_LOADS)
    return np.concatenate([low, HIGH_LOADS])


class Limited:
    """The curves that a block uses under a time limit. Once used, a curve stays the same for the block.

    Parameters
    ----------
    seconds
        The time for computing curves; when it is over, coarse ones are computed.

    Attributes
    ----------
    coarse
        The keys of the coarse curves that were used: queue, batch size and number of processes.
    """

    def __init__(self, seconds: float) -> None:
        self.until, self.coarse = Deadline(seconds), dict[tuple[Queue, int, int], Floats]()

    def turns(self, queue: Queue, batch: int, processes: int) -> Floats:
        """The turns of a curve: those on the disk, or computed if there is time, or coarse ones."""
        key = queue, batch, processes
        if key not in self.coarse:
            found = on_disk(_key(*key, REQUESTS))
            if found is None and not self.until.over:
                found = _computed(*key, self.until)
            if found is not None:
                return found
            self.coarse[key] = coarse_turns(queue, batch)
        return self.coarse[key]

    def end(self) -> None:
        """Compute no more curves but coarse ones."""
        self.until = Deadline(0.0)

    def refine(self, until: Deadline) -> bool:
        """Compute the curves that coarse ones stood for, so that later blocks have them; return whether all are."""
        return all(on_disk(_key(*key, REQUESTS)) is not None or _computed(*key, until) is not None
                   for key in self.coarse)


_limited: ContextVar[Limited | None] = ContextVar("_limited", default=None)


@contextmanager
def limited(seconds: float) -> Iterator[Limited]:
    """Compute curves in the block for at most some seconds, and then coarse ones; a block in it is a part of it.

    What is derived from curves must not outlive the block, since nothing tells that it is coarse. So a search runs in a
    process of its own in it.
    """
    block = _limited.get() or Limited(seconds)
    token = _limited.set(block)
    try:
        yield block
    finally:
        _limited.reset(token)


def curve(queue: Queue, batch: int, processes: int) -> Curve:
    """The Curve of a replica; for more processes than the table has, the curve of the table's most processes is used.
    """
    return _curve(queue, batch, processes, None if queue == Queue() else _limited.get())


@lru_cache(maxsize=4096)
def _curve(queue: Queue, batch: int, processes: int, within: Limited | None) -> Curve:
    """The Curve, with the curves that a `limited` block uses."""
    known = max(count for count in PROCESSES if count <= processes)
    sizes = sizes_of(queue)
    above = bisect_left(sizes, min(batch, sizes[-1]))
    turns = turns_at(queue, sizes[above], known, within) if batch <= sizes[-1] else _larger(queue, batch, known, within)
    if sizes[above] > batch:
        low, high = sizes[above - 1], sizes[above]
        parts = np.log(batch / low) / np.log(high / low), (1 / low - 1 / batch) / (1 / low - 1 / high)
        less = turns_at(queue, low, known, within)
        turns = np.maximum(*((1 - part) * less + part * turns for part in parts))
    finite = np.isfinite(turns)
    return Curve(MARGIN * loads_of(batch)[finite], turns[finite] / processes)


def _larger(queue: Queue, batch: int, processes: int, within: Limited | None) -> np.ndarray:
    """The turns of a batch size beyond the table's largest, at the loads of ``loads_of``.

    Where batches seldom fill, the turns depend on the number of requests that arrive in a hold time; so they are read
    from the table's largest size at the load with the same number of arrivals. Where batches fill, a larger batch size
    needs no more turns at the same load, since the stream of more requests is steadier. The larger of the two values is
    used. Replays of batch sizes up to 16384 needed no more turns than that.
    """
    largest = sizes_of(queue)[-1]
    turns = turns_at(queue, largest, processes, within)
    known = np.isfinite(turns)
    inverse = -1 / loads_of(largest)[known]
    asked = loads_of(batch)
    as_many = np.minimum(asked * batch / largest, FILLED)
    return np.maximum(*(np.interp(-1 / loads, inverse, turns[known], right=np.inf) for loads in (asked, as_many)))


def sizes_of(queue: Queue) -> tuple[int, ...]:
    """The batch sizes for which the table of a queue has curves."""
    return SHIPPED_SIZES if queue == Queue() else SIZES


def turns_at(queue: Queue, batch: int, processes: int, within: Limited | None = None) -> np.ndarray:
    """(loads,), the turns of a tabulated curve at each of its loads; infinite where batches are never in time."""
    if queue == Queue():
        return shipped_turns()[SHIPPED_SIZES.index(batch), PROCESSES.index(processes)]
    return computed_turns(queue, batch, processes) if within is None else within.turns(queue, batch, processes)


@lru_cache(maxsize=1024)
def computed_turns(queue: Queue, batch: int, processes: int, low_requests: int = REQUESTS) -> np.ndarray:
    """Read a curve of a table from the disk, or compute it by replays; replays at low loads have ``low_requests``
    requests.
    """
    return kept(_key(queue, batch, processes, low_requests),
                lambda: _replayed_turns(queue, batch, processes, loads_of(batch), low_requests, REQUESTS))


def _computed(queue: Queue, batch: int, processes: int, until: Deadline) -> np.ndarray | None:
    """Compute a curve and keep it on disk; None if there was no time for it."""
    with suppress(_NoTimeError):
        return kept(_key(queue, batch, processes, REQUESTS),
                    lambda: _replayed_turns(queue, batch, processes, loads_of(batch), REQUESTS, REQUESTS, until))
    return None


@lru_cache(maxsize=256)
def coarse_turns(queue: Queue, batch: int) -> np.ndarray:
    """(loads,), turns that are at least those of the curve with any number of processes, from few and short replays.

    More processes need no more turns, nor does a lower load. So the turns of one process at the next of a few loads are
    taken. Short replays are as certain as long ones, because the margin of an estimate grows with its error. A recorded
    trace is replayed as a whole.
    """
    loads = loads_of(batch)
    requests = REQUESTS if isinstance(queue.arrivals, Trace) else COARSE_REQUESTS

    def replayed() -> np.ndarray:
        at = np.unique(np.append(np.arange(0, len(loads), COARSE_STEP), len(loads) - 1))
        turns = _replayed_turns(queue, batch, 1, loads[at], requests, requests)
        return turns[np.searchsorted(at, np.arange(len(loads)))]

    return kept(_key(queue, batch, 1, requests, COARSE_STEP), replayed)


def _key(queue: Queue, batch: int, processes: int, *further: int) -> bytes:
    """What a curve depends on."""
    arrivals = queue.arrivals
    recorded = trace_shape(arrivals.path).tobytes() if isinstance(arrivals, Trace) else b""
    return f"{_version()} {queue} {batch} {processes} {' '.join(map(str, further))}".encode() + recorded


@cache
def _tell(queue: Queue) -> None:
    """Tell once that curves of a queue are computed."""
    process = getattr(queue.arrivals, "process", "poisson")
    _logger.warning(f"replaying {process} arrivals for the latency table of percentile {queue.percentile:g}, once on "
                    "this machine: seconds to minutes")


@lru_cache(maxsize=1)
def _version() -> str:
    """A digest of the source of all modules that a curve depends on."""
    sources = (queue_replays, arrivals, sys.modules[__name__])
    return sha256("".join(map(getsource, sources)).encode()).hexdigest()


class _NoTimeError(Exception):
    """The time is over before a curve is computed."""


def _replayed_turns(queue: Queue, batch: int, processes: int, loads: np.ndarray, low_requests: int, requests: int,
                    until: Deadline = NEVER) -> np.ndarray:
    """Compute a curve of a table by replays: (loads,), the turns at each of some ascending loads. Raises _NoTimeError
    if the deadline comes first.
    """
    _tell(queue)
    needed = [0.0]
    for load in loads.tolist():
        if until.over:
            raise _NoTimeError
        many = low_requests if load <= MIDDLE_LOAD else requests
        hopeless = needed[-1] == np.inf
        needed.append(np.inf if hopeless else least_patience(queue, batch, processes, load, needed[-1], many))
    return np.array(needed[1:]) * processes


@lru_cache(maxsize=1)
def shipped_turns() -> np.ndarray:
    """(sizes, processes, loads), the shipped turns for Poisson arrivals, percentile 99 and constant batch times."""
    with files("provision.models.traffic").joinpath("data/queue-turns.npz").open("rb") as file:
        return np.load(file)["turns"]


def tabulated() -> np.ndarray:
    """Compute ``shipped_turns`` again; this takes half an hour on one core."""
    return np.array([[computed_turns(Queue(), batch, many, LONG[many]) for many in PROCESSES]
                     for batch in SHIPPED_SIZES])
