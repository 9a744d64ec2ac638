"""Requests that come in bursts: what a replica of a later stage of a workflow must bear.

Such a stage receives the requests of a whole batch of the previous stage at the same moment: a *burst* of at most that
batch size. Bursts are assumed to arrive as the traffic says. Three questions are answered here.

*How large is a burst at one replica?* Every request is routed to a replica at random. So a replica that gets the
fraction w of all requests gets a binomially distributed number of the requests of a burst. `steps` tells up to which
rate a replica hardly ever gets more than a given number of requests at once.

*How does a replica answer bursts of one size?* A burst is then one customer of a simpler queue (`grouped`):

- A batch that holds several bursts serves that many customers at once.
- A burst that fills several batches is served by as many processes at the same time, a *gang*. If there are fewer
  processes, all of them serve it in several rounds.

A gang starts bursts in the order of arrival and leaves processes idle in between. The real replica is never behind the
gang: with equal batch times, starting every batch in order as soon as a process is free starts each batch earliest. The
customer is answered when the last of its batches ends, so that requests of its earlier batches count as answered that
late, too.

*What if the sizes of bursts differ?* A replica is judged by the sizes that use it worst (`sizes_up_to`): sizes that
leave much of a batch empty because one more burst does not fit, and sizes whose last request needs one more batch or
one more round. Bursts of mixed sizes can meet in ways in which bursts of one size cannot; therefore the patience must
be longer by MIXED hold times. This is not proven; `benchmarks/traffic/bursts.py` replays mixtures of sizes and found
none with too many late requests.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

Integers = NDArray[np.int64]
MIXED = 0.2
"""The number of hold times that a replica must be able to wait longer if bursts have different sizes."""
RARE = 0.5
"""The fraction of the allowed late requests that may come in bursts that are larger than expected."""


class Grouped(NamedTuple):
    """Replicas as servers of bursts. All fields broadcast against each other.

    Attributes
    ----------
    size
        The number of requests in a burst.
    batch
        The number of bursts in a batch.
    processes
        The number of gangs of processes; each gang serves one batch of bursts at a time.
    rounds
        The number of hold times, one after another, that a gang needs for a batch of bursts.
    more
        The number of further bursts that fill the last batch of a burst.
    """

    size: Integers
    batch: Integers
    processes: Integers
    rounds: Integers
    more: Integers


def sizes_up_to(burst: int, batch: ArrayLike, processes: ArrayLike = 1) -> Integers:
    """The sizes of bursts, of at most ``burst`` requests, that use replicas worst.

    They are along a new first axis of the result; bursts of one request and of ``burst`` requests are always among
    them.
    """
    held, many = np.broadcast_arrays(np.asarray(batch, np.int64), np.asarray(processes, np.int64))
    one = np.ones_like(held)
    if burst == 1:
        return one[None]
    every = np.arange(burst, 0, -1).reshape(-1, *one.ndim * [1])
    emptiest = burst - (held % every * (every <= held)).argmax(axis=0)
    fitting = held // (held // burst + 1) + 1
    before_last = -(-burst // held) - 1
    batches = (1, many // 2, many, before_last, before_last // many * many)
    fuller = (held * each + 1 for each in batches)
    return np.minimum(np.stack([one, burst * one, emptiest, fitting, held // 2 + 1, *fuller]), burst)


def grouped(size: ArrayLike, batch: ArrayLike, processes: ArrayLike = 1) -> Grouped:
    """Replicas with these batch sizes and numbers of processes as servers of bursts of ``size`` requests."""
    several, held, many = np.broadcast_arrays(*(np.asarray(one, np.int64) for one in (size, batch, processes)))
    batches = -(-several // held)
    gangs = np.maximum(many // batches, 1)
    rounds = -(-batches // np.minimum(many, batches))
    more = np.where(batches == 1, -(-held // several) - 1, (several % held > 0).astype(np.int64))
    return Grouped(several, np.maximum(held // several, 1), gangs, rounds, more)


def steps(burst: int, whole_rps: float, late: float) -> list[tuple[int, float]]:
    """Sizes of bursts at one replica, ascending, each with the replica's highest rate (requests/s) at which bursts are
    hardly ever larger.

    Parameters
    ----------
    burst
        The most requests of a burst before it is routed.
    whole_rps
        The rate of the workload, of which the replica gets a part; 0 if it is not known.
    late
        The fraction of the requests that may be late. Larger bursts may bring RARE of this fraction.
    """
    if not whole_rps:
        return [(burst, np.inf)]
    several = sorted({round(2 ** (half / 2)) for half in range(int(2 * np.log2(burst)) + 1)} - {burst})
    parts = [(one, float(betaincinv(one, burst - one, RARE * late))) for one in several if one < burst]
    return [*((one, part * whole_rps) for one, part in parts), (burst, np.inf)]
