"""The queueing rule: a percentile of the latency of requests, batching and queueing included, is within the SLO.

A batch starts on an idle process as soon as it is full or its first request has waited for the queue delay, as in
Triton's dynamic batcher. Requests arrive at every replica as the traffic says. By default that is a Poisson process, as
when Poisson arrivals are routed to replicas at random. `queue_rule` gives the highest rate and the longest hold time
from tables of replays with a margin; these are not proven. Replicas that take turns let no batch wait to fill; for them
`turn_rule` gives proven bounds.

A replica on a shared slice is judged with the batch times that it has while all its neighbours are active. Its real
batch times are never longer, so that its queue can be judged separately.

If requests come in bursts, a replica is judged by the worst size of the bursts that it gets at its rate (see `bursts`).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv

from provision.models.base.tolerances import RESERVED
from provision.models.performance.operating_points import Prediction
from provision.models.traffic.arrivals import Poisson
from provision.models.traffic.bursts import MIXED, Grouped, grouped, sizes_up_to, steps
from provision.models.traffic.queue_rule import bends, capacity_rps, least_patience, room_ms
from provision.models.traffic.rule import Bends, LatencyRule, Traffic
from provision.models.traffic.turn_rule import cycle_room_ms, most_in_turns_rps, wait_ms

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
POISSON_P99 = Traffic()
SAFE = 1 - RESERVED
"""Factor on the highest rate. Planning looks up a rate, the verifier a patience in the same tables; this keeps rounding
from making them disagree."""
ASIDE = 1e-9
"""The relative distance from a breakpoint at which the rates on its two sides are read."""


@dataclass(frozen=True)
class Queueing(LatencyRule):
    """Keeps the percentile of the latency within the SLO times ``safety``, with ``traffic`` at every replica."""

    traffic: Traffic = POISSON_P99
    random_arrivals = True

    def under(self, traffic: Traffic) -> Self:
        """The queueing rule for other traffic."""
        return type(self)(traffic)

    def room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, load_ms: ArrayLike, budget_ms: ArrayLike,
                processes: ArrayLike = 1) -> Floats:
        """The longest hold times with which the percentile stays within the budget, in ms."""
        size, rate, load, budget, count = np.broadcast_arrays(batch, rate_rps, load_ms, budget_ms, processes)
        left = np.where(self._allowed(size), np.maximum(np.asarray(budget, float) - load, 0.0), 0.0)
        room = np.where(rate > 0, 0.0, left)
        asked = (rate > 0) & (left > 0)
        arriving, within = np.asarray(rate, float)[asked], left[asked]
        room[asked] = self._by_burst(arriving, lambda burst, at: self._room_ms(
            burst, size[asked][at], count[asked][at], arriving[at], within[at]))
        return room * SAFE

    def capacity_rps(self, batch: ArrayLike, processes: ArrayLike, hold_ms: ArrayLike, latency_ms: ArrayLike,
                     budget_ms: ArrayLike) -> Floats:
        """The highest rates with which the percentile stays within the budgets, in requests/s."""
        size, count, hold, latency, budget = np.broadcast_arrays(batch, processes, hold_ms, latency_ms, budget_ms)
        found = self._most_rps(lambda burst: self._capacity_rps(burst, size, count, hold, latency, budget))
        return np.where((latency <= budget) & self._allowed(size), found * SAFE, 0.0)

    def bends(self, batch: int, load_ms: float, budget_ms: float) -> Bends:
        """Return the highest rates with which the percentile stays within the budget, by hold time.

        With bursts the rate is the least over their sizes. It is constant over some ranges of the hold time, where any
        lower rate would make bursts smaller. The rate is evaluated on both sides of every breakpoint of any size and of
        the ends of these ranges; between two breakpoints the interpolation is nowhere above it.
        """
        if not self._allowed(batch):
            return Bends(np.zeros(0), np.zeros(0))
        if self.traffic.burst == 1:
            hold_ms, rps = bends(self.traffic, batch, budget_ms, load_ms)
            return Bends(hold_ms, rps * SAFE)
        at_ms = np.unique(np.concatenate([*self._bends_ms(batch, load_ms, budget_ms)]))
        sides_ms = (at_ms[:, None] * [1 - ASIDE, 1 + ASIDE]).ravel()
        rps = self.capacity_rps(batch, 1, sides_ms, load_ms + sides_ms, budget_ms)
        kept = rps > 0
        return Bends(np.repeat(at_ms, 2)[kept], rps[kept])

    def cycle_room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, execution_ms: ArrayLike, budget_ms: ArrayLike
                      ) -> Floats:
        """The longest duty cycles (ms) with which the percentile stays within the budget, in the shape to which the
        arguments broadcast; 0 if there are none. For Poisson arrivals it is proven that they do.
        """
        size, rate, wait = np.broadcast_arrays(batch, np.asarray(rate_rps, float), np.subtract(budget_ms, execution_ms))
        room = self._by_burst(rate, lambda burst, at: self._cycle_room_ms(burst, size[at], rate[at], wait[at]))
        return np.where(self._allowed(batch), room, 0.0)

    def carried_rps(self, batch: int, processes: int, found: Prediction, budget_ms: float) -> float:
        """The highest rate with which the percentile stays within the budget, in requests/s."""
        hold_ms = 1000 * batch * processes / found.throughput_rps
        if not found.in_turns:
            return float(self.capacity_rps(batch, processes, hold_ms, found.latency_ms, budget_ms))
        wait_ms = budget_ms - found.latency_ms
        return float(self._most_rps(lambda burst: np.array(self._in_turns_rps(burst, batch, hold_ms, wait_ms))))

    def tail_ms(self, batch: int, processes: int, found: Prediction, rate_rps: float, delay_ms: float) -> float | None:
        """An upper bound on the percentile of the latency, in ms; infinite if the load is too high."""
        if rate_rps == 0:
            return found.latency_ms
        burst = next(size for size, most_rps in self._steps() if rate_rps <= most_rps)
        several = set(sizes_up_to(burst, batch, 1 if found.in_turns else processes).tolist())
        return max(self._tail_ms(size, _longer(burst), batch, processes, found, rate_rps, delay_ms) for size in several)

    def _tail_ms(self, size: int, longer: float, batch: int, processes: int, found: Prediction, rate_rps: float,
                 delay_ms: float) -> float:
        """``tail_ms`` for bursts of one size, with a patience that is longer by ``longer`` hold times."""
        one = grouped(size, batch, 1 if found.in_turns else processes)
        bursts_rps, held, gangs, rounds = rate_rps / size, int(one.batch), int(one.processes), int(one.rounds)
        if found.in_turns:
            cycle_ms = rounds * 1000 * batch / found.throughput_rps
            return found.latency_ms + wait_ms(self.traffic.percentile, held, bursts_rps, cycle_ms) * (1 + longer)
        hold_ms = 1000 * batch * processes / found.throughput_rps
        load = bursts_rps * rounds * hold_ms / (1000 * held * gangs)
        patience = least_patience(self.traffic, held, gangs, load, found.latency_ms + delay_ms)
        waits_ms = (rounds - 1 + patience * rounds + longer) * hold_ms
        return found.latency_ms + max(waits_ms, min(delay_ms, self._fills_ms(int(one.more), bursts_rps)))

    def _fills_ms(self, more: int, rate_rps: float) -> float:
        """A time in ms within which ``more`` bursts arrive with at least the probability of being in time.

        It is known for Poisson arrivals; for others it is infinite.
        """
        if more == 0:
            return 0.0
        if not isinstance(self.traffic.arrivals, Poisson):
            return math.inf
        return float(gammaincinv(more, self.traffic.percentile / 100)) / rate_rps * 1000

    def _steps(self) -> list[tuple[int, float]]:
        """Pairs (size of bursts, highest requests/s at which larger bursts make few requests late), ascending; see
        ``bursts.steps``.
        """
        return steps(self.traffic.burst, self.traffic.whole_rps, 1 - self.traffic.percentile / 100)

    def _by_burst(self, rate_rps: Floats, found: Callable[[int, Bools], Floats]) -> Floats:
        """The results of ``found`` for every rate, at the size that bursts have at this rate.

        ``found(burst, at)`` computes the results of the rates at positions ``at`` for bursts of at most ``burst``
        requests.
        """
        result, left = np.zeros(rate_rps.shape), np.ones(rate_rps.shape, bool)
        for burst, most_rps in self._steps():
            at = left & (rate_rps <= most_rps)
            if at.any():
                result[at] = found(burst, at)
            left &= ~at
        return result

    def _most_rps(self, found: Callable[[int], Floats]) -> Floats:
        """The highest rates over all sizes of bursts, in requests/s.

        ``found(burst)`` is the highest rate for bursts of at most ``burst`` requests. It counts up to the rate at which
        bursts exceed that size; since bursts are smaller at lower rates, the largest result over all sizes is taken.
        """
        result: Floats = np.zeros(())
        for burst, most_rps in reversed(self._steps()):
            if (result >= most_rps).all():
                break
            result = np.maximum(result, np.minimum(found(burst), most_rps))
        return result

    def _room_ms(self, burst: int, batch: Floats, processes: Floats, rate_rps: Floats, within_ms: Floats) -> Floats:
        """``room_ms`` for bursts of at most ``burst`` requests, without the factor SAFE."""
        one, longer = self._grouped(burst, batch, processes), _longer(burst)
        found: Floats = np.min(room_ms(self.traffic, one.batch, one.processes, rate_rps / one.size, within_ms,
                                       1 + longer / one.rounds) / one.rounds, axis=0)
        return found

    def _capacity_rps(self, burst: int, batch: ArrayLike, processes: ArrayLike, hold_ms: Floats, latency_ms: Floats,
                      budget_ms: ArrayLike) -> Floats:
        """``capacity_rps`` for bursts of at most ``burst`` requests, without the factor SAFE."""
        one, further = self._grouped(burst, batch, processes), _longer(burst) - 1
        found: Floats = np.min(one.size * capacity_rps(
            self.traffic, one.batch, one.processes, one.rounds * hold_ms, latency_ms + (one.rounds + further) * hold_ms,
            budget_ms), axis=0)
        return found

    def _cycle_room_ms(self, burst: int, batch: Floats, rate_rps: Floats, wait_ms: Floats) -> Floats:
        """``cycle_room_ms`` for bursts of at most ``burst`` requests."""
        one, spared = self._grouped(burst, batch, 1), 1 / (1 + _longer(burst))
        found: Floats = np.min(cycle_room_ms(self.traffic.percentile, one.batch, rate_rps / one.size, wait_ms * spared)
                               / one.rounds, axis=0)
        return found

    def _in_turns_rps(self, burst: int, batch: int, cycle_ms: float, wait_ms: float) -> float:
        """The highest rate (requests/s) of a replica that runs in turn with others, for bursts of at most ``burst``
        requests.
        """
        several, wait_ms = self._grouped(burst, batch, 1), wait_ms / (1 + _longer(burst))
        return min(size * most_in_turns_rps(self.traffic.percentile, held, rounds * cycle_ms, wait_ms)
                   for size, held, rounds in zip(several.size.tolist(), several.batch.tolist(),
                                                 several.rounds.tolist(), strict=True))

    def _bends_ms(self, batch: int, load_ms: float, budget_ms: float) -> Iterator[Floats]:
        """Yield the hold times (ms) at which the rate of a replica with bursts bends, in arrays."""
        known = self._steps()
        stays_rps = np.array([most_rps for _, most_rps in known if most_rps < math.inf])
        for burst, _ in known:
            one, longer = self._grouped(burst, batch, 1), _longer(burst)
            for held, rounds in set(zip(one.batch.tolist(), one.rounds.tolist(), strict=True)):
                hold_ms, _ = bends(self.traffic, held, budget_ms, load_ms)
                # Patience included, a hold time h in that table corresponds to one of
                # h (1 + patience) / (1 + patience + longer / rounds) here.
                left_ms = budget_ms - load_ms
                yield left_ms / (left_ms / hold_ms * rounds + longer)
            yield self._room_ms(burst, np.full(stays_rps.shape, batch), np.ones(stays_rps.shape), stays_rps,
                                np.full(stays_rps.shape, budget_ms - load_ms))

    def _grouped(self, burst: int, batch: ArrayLike, processes: ArrayLike) -> Grouped:
        """Replicas as servers of bursts; the first axis has every size of burst by which they are judged."""
        return grouped(sizes_up_to(burst, batch, processes), batch, processes)

    def _allowed(self, batch: ArrayLike) -> Bools:
        """Whether replicas may have these batch sizes."""
        most = self.traffic.most_batch
        return np.asarray(batch) <= (math.inf if most is None else most)


def _longer(burst: int) -> float:
    """By how many hold times the patience must be longer for bursts of at most ``burst`` requests."""
    return MIXED if burst > 1 else 0.0
