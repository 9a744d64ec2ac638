"""The queueing rule: a percentile of requests' latency, batching and queueing included, within the SLO.

A batch starts on an idle process as soon as it is full or its first request has waited for the queue delay (as
Triton's dynamic batcher does it). Requests arrive at every replica as the traffic says, by default as a Poisson
process, as they do when Poisson arrivals are dealt to replicas at random. `queue_rule` tells the highest rate and the
longest hold time, from tables of replays with a margin; nothing of it is proven. Replicas that take turns let no batch
wait to fill; what `turn_rule` tells of them is proven.

A replica on a shared slice is judged with all its neighbours active: its batch times are then no longer than that,
whatever the neighbours do, so it is a queue of its own.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv

from provision.models.base.tolerances import SOLVER
from provision.models.performance.operating_points import Prediction
from provision.models.traffic.arrivals import Poisson
from provision.models.traffic.queue_rule import bends, capacity_rps, least_patience, room_ms
from provision.models.traffic.rule import Bends, LatencyRule, Traffic
from provision.models.traffic.turn_rule import cycle_room_ms, most_in_turns_rps, wait_ms

Floats = NDArray[np.float64]
POISSON_P99 = Traffic()
SAFE = 1 - SOLVER
"""Rates are planned for this part of the highest: the verdict reads the same tables the other way round."""


@dataclass(frozen=True)
class Queueing(LatencyRule):
    """The percentile within the SLO times ``safety``, for this traffic at every replica."""

    traffic: Traffic = POISSON_P99
    random_arrivals = True

    def under(self, traffic: Traffic) -> Self:
        """The rule for this traffic."""
        return type(self)(traffic)

    def room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, load_ms: ArrayLike, budget_ms: ArrayLike,
                processes: ArrayLike = 1) -> Floats:
        """The longest hold with which the percentile stays inside the budget."""
        size, rate, load, budget, count = np.broadcast_arrays(batch, rate_rps, load_ms, budget_ms, processes)
        left = np.maximum(np.asarray(budget, float) - load, 0.0)
        room = np.where(rate > 0, 0.0, left)
        asked = (rate > 0) & (left > 0)
        room[asked] = room_ms(self.traffic, size[asked], count[asked], np.asarray(rate, float)[asked], left[asked])
        return room * SAFE

    def capacity_rps(self, batch: ArrayLike, processes: ArrayLike, hold_ms: ArrayLike, latency_ms: ArrayLike,
                     budget_ms: ArrayLike) -> Floats:
        """The highest rates with which the percentile stays inside the budgets."""
        found = capacity_rps(self.traffic, batch, processes, hold_ms, latency_ms, budget_ms)
        return np.where(np.asarray(latency_ms) <= budget_ms, found * SAFE, 0.0)

    def bends(self, batch: int, load_ms: float, budget_ms: float) -> Bends:
        """The highest rates with which the percentile stays inside the budget, by hold time."""
        hold_ms, rps = bends(self.traffic, batch, budget_ms, load_ms)
        return Bends(hold_ms, rps * SAFE)

    def cycle_room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, execution_ms: ArrayLike, budget_ms: ArrayLike
                      ) -> Floats:
        """The longest cycle with which the percentile stays inside the budget; proven, for Poisson arrivals."""
        return cycle_room_ms(self.traffic.percentile, batch, rate_rps, np.subtract(budget_ms, execution_ms))

    def carried_rps(self, batch: int, processes: int, found: Prediction, budget_ms: float) -> float:
        """The highest rate with which the percentile stays inside the budget."""
        hold_ms = 1000 * batch * processes / found.throughput_rps
        if found.in_turns:
            return most_in_turns_rps(self.traffic.percentile, batch, hold_ms, budget_ms - found.latency_ms)
        return float(self.capacity_rps(batch, processes, hold_ms, found.latency_ms, budget_ms))

    def tail_ms(self, batch: int, processes: int, found: Prediction, rate_rps: float, delay_ms: float) -> float | None:
        """A latency that the percentile of a replica's requests stays below; infinite where the queue is too long."""
        load = rate_rps / found.throughput_rps
        if load == 0:
            return found.latency_ms
        if found.in_turns:
            cycle_ms = 1000 * batch / found.throughput_rps
            return found.latency_ms + wait_ms(self.traffic.percentile, batch, rate_rps, cycle_ms)
        hold_ms = 1000 * batch * processes / found.throughput_rps
        patience = least_patience(self.traffic, batch, processes, load, found.latency_ms + delay_ms)
        return found.latency_ms + max(patience * hold_ms, min(delay_ms, self._fills_ms(batch, rate_rps)))

    def _fills_ms(self, batch: int, rate_rps: float) -> float:
        """How long a batch takes to fill once it has a request, but for the share that may be late; in ms.

        Known for Poisson arrivals; infinite for others.
        """
        if batch == 1:
            return 0.0
        if not isinstance(self.traffic.arrivals, Poisson):
            return math.inf
        return float(gammaincinv(batch - 1, self.traffic.percentile / 100)) / rate_rps * 1000
