"""Computes the longest hold times and the highest rates with which replicas keep the percentile of their SLO, for
arrays.

A full batch occupies its process for the *hold time*, and its *latency* is the time from its start to its answers. The
two differ if a model loads a batch while the previous batch runs. The *patience* is the latency budget minus the
latency; ``queue_replays.queue_delay`` tells how much of it the batcher may wait: all of it if batch times are constant.
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
"""Coefficients of variation and fixed shares are rounded up to multiples of these steps, so that few curves are
computed.
"""


class Batches(NamedTuple):
    """What is known about batch times besides the time of a full batch.

    ``fixed_share`` is the fraction of a full batch's time that a batch of any size takes, 1 if unknown; ``cv`` is the
    coefficient of variation of batch times.
    """

    fixed_share: float = 1.0
    cv: float = 0.0


CONSTANT = Batches()


def capacity_rps(traffic: Traffic, batch: ArrayLike, processes: ArrayLike, hold_ms: ArrayLike, latency_ms: ArrayLike,
                 budget_ms: ArrayLike, batches: Batches = CONSTANT) -> np.ndarray:
    """Return the highest rates that replicas carry with the percentile of their latency within a budget.

    Parameters
    ----------
    traffic, batches
        The traffic and the variation of batch times, the same for all replicas.
    batch, processes, hold_ms, latency_ms, budget_ms
        Arrays or numbers that broadcast against each other.

    Returns
    -------
    ndarray
        The rates in requests/s, in the broadcast shape; 0 where no rate is known to keep the percentile. The rate never
        grows with a longer hold time, a longer latency or a shorter budget.
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


def room_ms(traffic: Traffic, batch: ArrayLike, processes: ArrayLike, rate_rps: ArrayLike, budget_ms: ArrayLike,
            latency_over_hold: ArrayLike = 1.0, batches: Batches = CONSTANT) -> np.ndarray:
    """Return the longest hold times with which replicas keep the percentile of their latency within a budget.

    This is the inverse of ``capacity_rps``: a replica with this hold time can carry ``rate_rps``.

    Parameters
    ----------
    traffic, batches
        The traffic and the variation of batch times, the same for all replicas.
    batch, processes, rate_rps, budget_ms, latency_over_hold
        Arrays or numbers that broadcast against each other; the last is the latency of a full batch in hold times.

    Returns
    -------
    ndarray
        The hold times in ms, in the broadcast shape. Replicas with shorter hold times keep the percentile too.
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
    """Return the breakpoints of the rate that a replica with one process carries, as a function of its hold time.

    They are ascending hold times (ms), and the requests/s at each. Between two breakpoints the time per request is
    linear in the hold time, because a curve interpolates the inverse load linearly in the patience. If one patience
    suffices for several loads, its hold time occurs several times, the highest rate first. Before a batch occupies its
    process it is loaded in ``load_ms``.
    """
    left_ms = budget_ms - load_ms
    if left_ms <= 0:
        return np.zeros(0), np.zeros(0)
    ((queue, _),) = _queues(traffic, CONSTANT, np.array([budget_ms]))
    known = curve(queue, batch, 1)
    hold_ms = left_ms / (1 + known.patience[::-1])
    return hold_ms, known.loads[::-1] * 1000 * batch / hold_ms


def least_patience(traffic: Traffic, batch: int, processes: int, load: float, budget_ms: float,
                   batches: Batches = CONSTANT) -> float:
    """The least patience, in hold times, with which a replica carries a load; infinite beyond the table's loads."""
    ((queue, _),) = _queues(traffic, batches, np.array([budget_ms]))
    known = curve(queue, batch, processes)
    if not len(known.loads) or load > known.loads[-1] * (1 + 1e-12):
        return math.inf
    return float(np.interp(-1 / max(load, known.loads[0]), -1 / known.loads, known.patience))


def most_load(known: Curve, patience: np.ndarray) -> np.ndarray:
    """The largest loads of a curve for which the given patiences suffice, in the shape of ``patience``."""
    if not len(known.loads):
        return np.zeros(len(patience))
    reached = np.searchsorted(known.patience, patience, side="right")
    low, high = np.maximum(reached - 1, 0), np.minimum(reached, len(known.loads) - 1)
    steps = known.patience[high] - known.patience[low]
    part = np.divide(patience - known.patience[low], steps, out=np.zeros(len(patience)), where=steps > 0)
    inverse = 1 / known.loads[low] + part * (1 / known.loads[high] - 1 / known.loads[low])
    return np.where(reached > 0, 1 / inverse, 0.0)


def _budget_in_holds(known: Curve, arriving: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """Latency budgets in units of the longest hold time that keeps them, if ``arriving`` full batches arrive per budget
    and process.

    ``ratio`` is the latency in hold times. On a segment of the curve the patience x is linear in v = 1 / load: it
    starts at (v0, x0) and has slope -s. A budget of ratio + x hold times means v = (ratio + x) / arriving.
    Together: v = (ratio + x0 + s v0) / (arriving + s).
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
    """Yield every different Queue with the indices of the budgets that have it.

    Only the bursts of an MMPP depend on the budget; for other arrivals there is one Queue.
    """
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


def _replicas(batch: np.ndarray, processes: np.ndarray,
              which: np.ndarray) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """Yield every different (batch size, number of processes) among the positions ``which``, with its positions."""
    sizes, counts = batch[which].astype(np.int64), processes[which].astype(np.int64)
    code = sizes * (counts.max(initial=0) + 1) + counts
    order = np.argsort(code, kind="stable")
    for positions in np.split(order, np.flatnonzero(np.diff(code[order])) + 1) if len(order) else ():
        yield (int(sizes[positions[0]]), int(counts[positions[0]])), which[positions]


def _stepped(value: float, step: float) -> float:
    """A value rounded up to a multiple of a step."""
    return round(math.ceil(value / step - 1e-9) * step, 10)
