"""The longest cycle with which a replica that takes turns with others keeps the percentile of its SLO.

Requests arrive as a Poisson process. A batch of what waits starts within a cycle, so the replica is never more than a
cycle behind a clocked server (`clocked_queue`); that bounds the wait of a request for its start, in cycles, at every
load: proven, up to the rounding of the chain. Loads are told apart on a grid, and each counts as the next one above it.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provision.models.base.tolerances import TOLERANCE
from provision.models.traffic.clocked_queue import least_wait

Floats = NDArray[np.float64]
LEAST_LOAD, HIGHEST_LOAD, STEP = 0.05, 0.965, 1.02
"""Loads that are told apart, and the factor from one to the next; no replica is planned for more than the last."""


class Needs(NamedTuple):
    """Ascending loads, and how many cycles a request must be allowed to wait for its start at each."""

    loads: Floats
    cycles: Floats


@lru_cache(maxsize=1024)
def needs_of(batch: int, percentile: float) -> Needs:
    """The Needs of a batch size: loads are parts of a full batch in every cycle."""
    steps = int(np.log(HIGHEST_LOAD / LEAST_LOAD) / np.log(STEP)) + 1
    loads = HIGHEST_LOAD * STEP ** np.arange(-steps, 1.0)
    cycles = [least_wait(batch, batch * load, 1 - percentile / 100) for load in loads.tolist()]
    return Needs(loads, np.maximum.accumulate(cycles))


def cycle_room_ms(percentile: float, batch: ArrayLike, rate_rps: ArrayLike, wait_ms: ArrayLike) -> Floats:
    """The longest cycles with which requests start in time, in ms.

    Parameters
    ----------
    percentile
        Of the requests that must start in time, in percent.
    batch, rate_rps, wait_ms
        Arrays, or numbers, that broadcast against each other: the batch size, the rate, and the longest wait of a
        request for its start.

    Returns
    -------
    ndarray
        Where the wait is not above 0, 0; a shorter cycle than the longest keeps the percentile too.
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
    """The highest rate, in requests/s, at which requests start in time; 0 where no rate is known to."""
    needs = needs_of(batch, percentile)
    reached = int(np.searchsorted(needs.cycles, wait_ms / cycle_ms * (1 + TOLERANCE), side="right"))
    return float(needs.loads[reached - 1]) * 1000 * batch / cycle_ms if reached else 0.0


def wait_ms(percentile: float, batch: int, rate_rps: float, cycle_ms: float) -> float:
    """A time, in ms, within which the percentile of the requests starts; infinite beyond the highest load."""
    needs = needs_of(batch, percentile)
    at = int(np.searchsorted(needs.loads, rate_rps * cycle_ms / (1000 * batch) * (1 - TOLERANCE)))
    return float(needs.cycles[at]) * cycle_ms if at < len(needs.loads) else float("inf")
