"""The queueing rule: a percentile of the latency of requests, batching and queueing included, is within the SLO.

A batch starts on an idle process as soon as it is full or its first request has waited for the queue delay, as in
Triton's dynamic batcher. Requests arrive at every replica as the traffic says. By default that is a Poisson process, as
when Poisson arrivals are routed to replicas at random. `queue_rule` gives the highest rate and the longest hold time
from tables of replays with a margin; these are not proven. Replicas that take turns let no batch wait to fill; for them
`turn_rule` gives proven bounds.

A replica on a shared slice is judged with the batch times that it has while all its neighbours are active. Its real
batch times are never longer, so that its queue can be judged on its own.

Where requests come in bursts a replica is judged by the worst size of a burst (see `bursts`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv

from provision.models.base.tolerances import SOLVER
from provision.models.performance.operating_points import Prediction
from provision.models.traffic.arrivals import Poisson
from provision.models.traffic.bursts import Grouped, grouped, sizes_up_to
from provision.models.traffic.queue_rule import bends, capacity_rps, least_patience, room_ms
from provision.models.traffic.rule import Bends, LatencyRule, Traffic
from provision.models.traffic.turn_rule import cycle_room_ms, most_in_turns_rps, wait_ms

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
POISSON_P99 = Traffic()
SAFE = 1 - SOLVER
"""Factor on the highest rate. Planning looks up a rate, the verifier a patience in the same tables; this keeps rounding
from making them disagree."""
ASIDE = 1e-9
"""Relative distance from a breakpoint at which the rates on its two sides are read."""


@dataclass(frozen=True)
class Queueing(LatencyRule):
    """The percentile of the latency is within the SLO times ``safety``, with ``traffic`` at every replica."""

    traffic: Traffic = POISSON_P99
    random_arrivals = True

    def under(self, traffic: Traffic) -> Self:
        """The rule for this traffic."""
        return type(self)(traffic)

    def room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, load_ms: ArrayLike, budget_ms: ArrayLike,
                processes: ArrayLike = 1) -> Floats:
        """The longest hold times with which the percentile stays within the budget, in ms."""
        size, rate, load, budget, count = np.broadcast_arrays(batch, rate_rps, load_ms, budget_ms, processes)
        left = np.where(self._allowed(size), np.maximum(np.asarray(budget, float) - load, 0.0), 0.0)
        room = np.where(rate > 0, 0.0, left)
        asked = (rate > 0) & (left > 0)
        arriving, within = np.asarray(rate, float)[asked], left[asked]
        room[asked] = np.min([
            room_ms(self.traffic, one.batch, one.processes, arriving / one.size, within) / one.rounds
            for one in self._grouped(size[asked], count[asked])], axis=0)
        return room * SAFE

    def capacity_rps(self, batch: ArrayLike, processes: ArrayLike, hold_ms: ArrayLike, latency_ms: ArrayLike,
                     budget_ms: ArrayLike) -> Floats:
        """The highest rates with which the percentile stays within the budgets, in requests/s."""
        hold, latency = np.asarray(hold_ms), np.asarray(latency_ms)
        found = np.min(np.stack(np.broadcast_arrays(*(
            one.size * capacity_rps(self.traffic, one.batch, one.processes, one.rounds * hold,
                                    latency + (one.rounds - 1) * hold, budget_ms)
            for one in self._grouped(batch, processes)))), axis=0)
        return np.where((latency <= budget_ms) & self._allowed(batch), found * SAFE, 0.0)

    def bends(self, batch: int, load_ms: float, budget_ms: float) -> Bends:
        """The highest rates with which the percentile stays within the budget, by hold time.

        With bursts of several sizes the rate is the least over the sizes. It is evaluated on both sides of every
        breakpoint of any size; between two breakpoints the interpolation is nowhere above it.
        """
        if not self._allowed(batch):
            return Bends(np.zeros(0), np.zeros(0))
        several = list(self._grouped(batch, 1))
        bent = [bends(self.traffic, int(one.batch), budget_ms, load_ms) for one in several]
        if len(several) == 1:
            hold_ms, rps = bent[0]
            return Bends(hold_ms, rps * SAFE)
        each_ms = [hold_ms / one.rounds for (hold_ms, _), one in zip(bent, several, strict=True)]
        at_ms = np.unique(np.concatenate(each_ms))
        sides_ms = (at_ms[:, None] * [1 - ASIDE, 1 + ASIDE]).ravel()
        rps = self.capacity_rps(batch, 1, sides_ms, load_ms + sides_ms, budget_ms)
        kept = rps > 0
        return Bends(np.repeat(at_ms, 2)[kept], rps[kept])

    def cycle_room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, execution_ms: ArrayLike, budget_ms: ArrayLike
                      ) -> Floats:
        """The longest duty cycles (ms) that keep the percentile within the budget; proven, for Poisson arrivals."""
        wait = np.subtract(budget_ms, execution_ms)
        room = np.min(np.stack(np.broadcast_arrays(*(
            cycle_room_ms(self.traffic.percentile, one.batch, np.divide(rate_rps, one.size), wait) / one.rounds
            for one in self._grouped(batch)))), axis=0)
        return np.where(self._allowed(batch), room, 0.0)

    def carried_rps(self, batch: int, processes: int, found: Prediction, budget_ms: float) -> float:
        """The highest rate with which the percentile stays within the budget, in requests/s."""
        hold_ms = 1000 * batch * processes / found.throughput_rps
        if not found.in_turns:
            return float(self.capacity_rps(batch, processes, hold_ms, found.latency_ms, budget_ms))
        return min(one.size * most_in_turns_rps(self.traffic.percentile, int(one.batch), int(one.rounds) * hold_ms,
                                                budget_ms - found.latency_ms) for one in self._grouped(batch))

    def tail_ms(self, batch: int, processes: int, found: Prediction, rate_rps: float, delay_ms: float) -> float | None:
        """An upper bound on the percentile of the latency, in ms; infinite when the load is too high."""
        if rate_rps == 0:
            return found.latency_ms
        return max(self._tail_ms(one, batch, processes, found, rate_rps, delay_ms)
                   for one in self._grouped(batch, 1 if found.in_turns else processes))

    def _tail_ms(self, one: Grouped, batch: int, processes: int, found: Prediction, rate_rps: float, delay_ms: float
                 ) -> float:
        """``tail_ms`` for bursts of one size."""
        bursts_rps, held, gangs, rounds = rate_rps / one.size, int(one.batch), int(one.processes), int(one.rounds)
        if found.in_turns:
            cycle_ms = rounds * 1000 * batch / found.throughput_rps
            return found.latency_ms + wait_ms(self.traffic.percentile, held, bursts_rps, cycle_ms)
        hold_ms = 1000 * batch * processes / found.throughput_rps
        load = bursts_rps * rounds * hold_ms / (1000 * held * gangs)
        patience = least_patience(self.traffic, held, gangs, load, found.latency_ms + delay_ms)
        waits_ms = (rounds - 1 + patience * rounds) * hold_ms
        return found.latency_ms + max(waits_ms, min(delay_ms, self._fills_ms(int(one.more), bursts_rps)))

    def _fills_ms(self, more: int, rate_rps: float) -> float:
        """A time in ms, within which ``more`` bursts arrive, except with the probability of being late.

        It is known for Poisson arrivals; for others it is infinite.
        """
        if more == 0:
            return 0.0
        if not isinstance(self.traffic.arrivals, Poisson):
            return math.inf
        return float(gammaincinv(more, self.traffic.percentile / 100)) / rate_rps * 1000

    def _grouped(self, batch: ArrayLike, processes: ArrayLike = 1) -> Iterator[Grouped]:
        """Replicas as servers of bursts, for every size of bursts by which they are judged."""
        return (grouped(size, batch, processes) for size in sizes_up_to(self.traffic.burst))

    def _allowed(self, batch: ArrayLike) -> Bools:
        """Whether replicas may have these batch sizes."""
        most = self.traffic.most_batch
        return np.asarray(batch) <= (math.inf if most is None else most)
