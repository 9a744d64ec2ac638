"""The queueing rule: the P99 of a request's latency, batching and queueing included, within the SLO.

A batch starts on an idle process as soon as it is full or its first request has waited for the queue delay (as
Triton's dynamic batcher does it). Requests arrive at every replica as a Poisson process, as they do when a workload's
requests are dealt to its replicas at random. `queue_rule` tells the highest rate and the longest hold time, from
tables of replays with a margin; nothing of it is proven.

A replica on a shared slice is judged with all its neighbours active: its batch times are then no longer than that,
whatever the neighbours do, so it is a queue of its own.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv

from provision.models.performance.operating_points import OperatingPoints, Prediction
from provision.models.traffic.queue_replays import Queue
from provision.models.traffic.queue_rule import Traffic, capacity_rps, room_ms
from provision.models.traffic.queue_tables import curve

Floats = NDArray[np.float64]
POISSON = Traffic()
"""Poisson arrivals, and the P99."""
BLOCK = 16
"""Operating points whose rates are looked up together."""


class Queueing:
    """P99 within the SLO times ``safety``, for Poisson arrivals at every replica."""

    random_arrivals = True

    def budget_ms(self, slo_ms: float, safety: float) -> float:
        """The SLO, in ms, times ``safety``."""
        return slo_ms * safety

    def queue_delay_ms(self, slo_ms: float, safety: float, latency_ms: float) -> float:
        """What a batch leaves of the budget, in ms."""
        return max(0.0, slo_ms * safety - latency_ms)

    def best_points(self, points: OperatingPoints, max_processes: int, budgets_ms: Floats) -> Floats:
        """The points that carry the highest rate with their P99 inside each budget."""
        table = np.column_stack([points.throughput_rps, points.latency_ms, points.batch, points.processes])
        table = table[points.processes <= max_processes]
        table = table[np.argsort(-table[:, 0], kind="stable")]
        different, which = np.unique(budgets_ms, return_inverse=True)
        best = np.zeros((len(different), 4))
        for start in range(0, len(table), BLOCK):
            block = table[start : start + BLOCK]
            if block[0, 0] <= best[:, 0].min():
                break
            rates = _rates_rps(block, different)
            chosen = rates.argmax(axis=0)
            rate = rates[chosen, np.arange(len(different))]
            better = rate > best[:, 0]
            best[better] = np.column_stack([rate, block[chosen, 1:]])[better]
        return best[which]

    def room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, load_ms: ArrayLike, budget_ms: ArrayLike) -> Floats:
        """The longest hold of one process with which the P99 stays inside the budget."""
        size, rate, load, budget = np.broadcast_arrays(batch, rate_rps, load_ms, budget_ms)
        left = np.maximum(np.asarray(budget, float) - load, 0.0)
        room = np.where(rate > 0, 0.0, left)
        asked = (rate > 0) & (left > 0)
        room[asked] = room_ms(POISSON, size[asked], 1, np.asarray(rate, float)[asked], left[asked])
        return room

    def tail_ms(self, batch: int, processes: int, found: Prediction, rate_rps: float, delay_ms: float) -> float | None:
        """A latency that the P99 of a replica's requests stays below; infinite where its queue grows too long."""
        if rate_rps == 0:
            return found.latency_ms
        load = rate_rps / found.throughput_rps
        hold_ms = 1000 * batch * processes / found.throughput_rps
        waits_ms = _least_patience(batch, processes, load) * hold_ms
        fills_ms = float(gammaincinv(batch - 1, 0.99)) / rate_rps * 1000 if batch > 1 else 0.0
        return found.latency_ms + max(waits_ms, min(delay_ms, fills_ms))


def _rates_rps(block: Floats, budgets_ms: Floats) -> Floats:
    """(points, budgets) rates that operating points carry with their P99 inside budgets."""
    throughput, latency, batch, processes = (column[:, None] for column in block.T)
    hold = 1000 * batch * processes / throughput
    within = latency <= budgets_ms
    found = capacity_rps(POISSON, batch.astype(int), processes.astype(int), hold, latency, budgets_ms)
    return np.where(within, found, 0.0)


@lru_cache(maxsize=2**16)
def _least_patience(batch: int, processes: int, load: float) -> float:
    """The least patience, in hold times, with which a replica bears a load; infinite beyond all that are known."""
    known = curve(Queue(), batch, processes)
    if not len(known.loads) or load > known.loads[-1] * (1 + 1e-12):
        return math.inf
    return float(np.interp(-1 / load, -1 / known.loads, known.patience))
