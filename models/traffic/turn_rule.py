"""Computes the longest duty cycle with which a replica that runs in turn with others keeps the percentile of its SLO.

Requests arrive as a Poisson process. Once per cycle the replica starts a batch of waiting requests, so that it is never
more than a cycle behind a clocked server (`clocked_queue`). This bounds, at every load, how many cycles a request waits
for its start. The bound is proven, up to the rounding of the Markov chain. It is tabulated on a grid of loads; for a
load in between, the next higher load of the grid is used. The tables of the P99 for usual batch sizes are shipped
(``data/turn-cycles.npz``); another table is computed on first use, which takes half a second, and kept on disk.
"""

from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from inspect import getsource
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provision.models.base.kept import kept
from provision.models.base.tolerances import TOLERANCE
from provision.models.traffic import clocked_queue
from provision.models.traffic.clocked_queue import least_wait

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
    return sha256((getsource(clocked_queue) + f"{LEAST_LOAD} {HIGHEST_LOAD} {STEP}").encode()).hexdigest()


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
