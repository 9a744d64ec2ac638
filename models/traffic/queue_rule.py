"""The longest hold time, and the highest rate, with which a replica keeps the percentile of its SLO: arrays of them.

A full batch holds its process for a hold time and is answered a latency after its start; the two differ where a model
loads a batch while the one before it runs. The latency budget less the latency is the patience, of which the batcher
may use the queue delay that ``queue_replays.queue_delay`` says: all of it where batch times are constant.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from provision.models.traffic.arrivals import Mmpp, Renewal
from provision.models.traffic.queue_replays import Queue
from provision.models.traffic.queue_tables import Curve, curve
from provision.models.traffic.rule import Traffic

CV_STEP = 0.05
SHARE_STEP = 0.25
"""Coefficients of variation and fixed shares are rounded up to whole steps, so that few curves are computed."""


class Batches(NamedTuple):
    """What is known about batch times beside those of full batches.

    ``fixed_share`` is the part of a full batch's time that a batch takes whatever its size, 1 where that is not known;
    ``cv`` the coefficient of variation of the times.
    """

    fixed_share: float = 1.0
    cv: float = 0.0


CONSTANT = Batches()


def capacity_rps(
    traffic: Traffic,
    batch: ArrayLike,
    processes: ArrayLike,
    hold_ms: ArrayLike,
    latency_ms: ArrayLike,
    budget_ms: ArrayLike,
    batches: Batches = CONSTANT,
) -> np.ndarray:
    """The highest rates that replicas carry with the percentile of their latency inside a budget.

    Parameters
    ----------
    traffic, batches
        The same for all.
    batch, processes, hold_ms, latency_ms, budget_ms
        Arrays, or numbers, that broadcast against each other.

    Returns
    -------
    ndarray
        Requests/s; 0 where no rate is known to keep the percentile. A longer hold, a longer latency or a shorter
        budget never carries more.
    """
    of = np.broadcast_arrays(batch, processes, hold_ms, latency_ms, budget_ms)
    size, count, hold, latency, budget = (np.ravel(one) for one in of)
    found = np.zeros(size.shape)
    for queue, which in _queues(traffic, batches, budget):
        for one, at in _replicas(size, count, which):
            patience = (budget[at] - latency[at]) / hold[at]
            load = most_load(curve(queue, *one), patience)
            found[at] = load * 1000 * one[0] * one[1] / hold[at]
    return found.reshape(of[0].shape)


def room_ms(
    traffic: Traffic,
    batch: ArrayLike,
    processes: ArrayLike,
    rate_rps: ArrayLike,
    budget_ms: ArrayLike,
    latency_over_hold: ArrayLike = 1.0,
    batches: Batches = CONSTANT,
) -> np.ndarray:
    """The longest hold times with which replicas keep the percentile of their latency inside a budget.

    Parameters
    ----------
    traffic, batches
        The same for all.
    batch, processes, rate_rps, budget_ms, latency_over_hold
        Arrays, or numbers, that broadcast against each other; the last is how many hold times a full batch is answered
        after its start.

    Returns
    -------
    ndarray
        In ms. Whoever has a shorter hold time keeps the percentile too; ``capacity_rps`` of the room is the rate.
    """
    of = np.broadcast_arrays(batch, processes, rate_rps, budget_ms, latency_over_hold)
    size, count, rate, budget, ratio = (np.ravel(one) for one in of)
    found = np.zeros(size.shape)
    for queue, which in _queues(traffic, batches, budget):
        for one, at in _replicas(size, count, which):
            arriving = rate[at] * budget[at] / (1000 * one[0] * one[1])
            found[at] = budget[at] / _budget_in_holds(curve(queue, *one), arriving, ratio[at])
    return found.reshape(of[0].shape)


def bends(traffic: Traffic, batch: int, budget_ms: float, load_ms: float) -> tuple[np.ndarray, np.ndarray]:
    """Where the rate that a replica with one process carries bends: ascending hold times in ms, and requests/s there.

    A batch is loaded in ``load_ms`` before it holds its process. Between two of its loads a curve makes the inverse
    load linear in the patience, and so the time per request linear in the hold time. Where one patience is enough for
    several loads the hold time stands several times, the highest rate first.
    """
    left_ms = budget_ms - load_ms
    if left_ms <= 0:
        return np.zeros(0), np.zeros(0)
    ((queue, _),) = _queues(traffic, CONSTANT, np.array([budget_ms]))
    known = curve(queue, batch, 1)
    hold_ms = left_ms / (1 + known.patience[::-1])
    return hold_ms, known.loads[::-1] * 1000 * batch / hold_ms


def least_patience(
    traffic: Traffic, batch: int, processes: int, load: float, budget_ms: float, batches: Batches = CONSTANT
) -> float:
    """The least patience, in hold times, with which a replica bears a load; infinite beyond all that are known."""
    ((queue, _),) = _queues(traffic, batches, np.array([budget_ms]))
    known = curve(queue, batch, processes)
    if not len(known.loads) or load > known.loads[-1] * (1 + 1e-12):
        return math.inf
    return float(np.interp(-1 / load, -1 / known.loads, known.patience))


def most_load(known: Curve, patience: np.ndarray) -> np.ndarray:
    """The largest loads of a curve for which these patiences are enough."""
    if not len(known.loads):
        return np.zeros(len(patience))
    reached = np.searchsorted(known.patience, patience, side="right")
    low, high = np.maximum(reached - 1, 0), np.minimum(reached, len(known.loads) - 1)
    steps = known.patience[high] - known.patience[low]
    part = np.divide(patience - known.patience[low], steps, out=np.zeros(len(patience)), where=steps > 0)
    inverse = 1 / known.loads[low] + part * (1 / known.loads[high] - 1 / known.loads[low])
    return np.where(reached > 0, 1 / inverse, 0.0)


def _budget_in_holds(known: Curve, arriving: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """Budgets over the longest hold times, for ``arriving`` full batches per budget and process.

    On a segment of the curve patience x is linear in v = 1 / load, with slope -s from (v0, x0) on; of a load that is
    arriving / (ratio + x) that makes v = (ratio + x0 + s v0) / (arriving + s).
    """
    if not len(known.loads):
        return np.full(len(arriving), np.inf)
    ends = known.loads * (ratio[:, None] + known.patience)
    reached = (ends <= arriving[:, None]).sum(axis=1)
    low, high = np.maximum(reached - 1, 0), np.minimum(reached, len(known.loads) - 1)
    inverse = 1 / known.loads
    falls = inverse[low] - inverse[high]
    slope = np.divide(known.patience[high] - known.patience[low], falls, out=np.zeros(len(falls)), where=falls > 0)
    meets = (ratio + known.patience[low] + slope * inverse[low]) / (arriving + slope)
    inside = np.where(reached == len(known.loads), arriving / known.loads[-1], arriving * meets)
    return np.where(reached > 0, inside, ratio + known.patience[0])


def _queues(traffic: Traffic, batches: Batches, budget_ms: np.ndarray) -> Iterator[tuple[Queue, np.ndarray]]:
    """The Queue of each budget, and which budgets have it; only an MMPP's bursts depend on the budget."""
    arrivals, everywhere = traffic.arrivals, np.arange(len(budget_ms))
    if isinstance(arrivals, Renewal):
        arrivals = Renewal(cv=_stepped(arrivals.cv, CV_STEP))
    share, cv = _stepped(batches.fixed_share, SHARE_STEP), _stepped(batches.cv, CV_STEP)
    queue = Queue(arrivals, traffic.percentile, share, cv)
    if not isinstance(arrivals, Mmpp):
        yield queue, everywhere
        return
    powers = np.ceil(np.log2(1000 * arrivals.mean_high_s / budget_ms))
    for power in np.unique(powers).tolist():
        bursts = arrivals.model_copy(update={"mean_high_s": 2.0**power})
        yield queue._replace(arrivals=bursts), everywhere[powers == power]


def _replicas(
    batch: np.ndarray, processes: np.ndarray, which: np.ndarray
) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """The different pairs of batch size and number of processes, and where they stand."""
    pairs, of = np.unique(np.stack([batch[which], processes[which]], axis=1), axis=0, return_inverse=True)
    for number, (size, count) in enumerate(pairs.astype(int).tolist()):
        yield (size, count), which[of.ravel() == number]


def _stepped(value: float, step: float) -> float:
    """A value rounded up to whole steps."""
    return round(math.ceil(value / step - 1e-9) * step, 10)
