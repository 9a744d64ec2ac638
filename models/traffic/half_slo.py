"""The rule of Nexus, iGniter and ParvaGPU: a batch may take half of the SLO; the other half is for waiting."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provision.models.performance.operating_points import OperatingPoints, Prediction
from provision.models.traffic.rule import Bends, Traffic, full_rate

Floats = NDArray[np.float64]


class HalfSlo:
    """Batch times within half of the SLO times ``safety``; throughput is the rate that a replica carries."""

    random_arrivals = False

    def under(self, traffic: Traffic) -> Self:
        """Itself: it does not look at traffic."""
        return self

    def budget_ms(self, slo_ms: float, safety: float) -> float:
        """Half of the SLO, in ms, times ``safety``."""
        return slo_ms * safety / 2

    def queue_delay_ms(self, slo_ms: float, safety: float, latency_ms: float) -> float:
        """What a batch leaves of half of the SLO, in ms."""
        return max(0.0, slo_ms / 2 - latency_ms)

    def best_points(self, points: OperatingPoints, max_processes: int, budgets_ms: Floats) -> Floats:
        """The points of most throughput with a latency in budget; of equals the one that is answered first."""
        latency_ms, best = _best_by_latency(points, max_processes)
        return np.vstack([np.zeros(4), best])[np.searchsorted(latency_ms, budgets_ms, side="right")]

    def room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, load_ms: ArrayLike, budget_ms: ArrayLike,
                processes: ArrayLike = 1) -> Floats:
        """What loading leaves of the budget, and no longer than it takes for the next batch to arrive."""
        with np.errstate(divide="ignore"):
            every_ms = 1000 * np.asarray(batch, float) * np.asarray(processes) / rate_rps
        return np.minimum(np.asarray(budget_ms) - load_ms, every_ms)

    def most_rps(self, batch: ArrayLike, processes: ArrayLike, hold_ms: ArrayLike, latency_ms: ArrayLike,
                 budget_ms: ArrayLike) -> Floats:
        """The throughput, where a batch is in the budget."""
        throughput_rps = 1000 * np.asarray(batch, float) * np.asarray(processes) / np.asarray(hold_ms)
        return np.where(np.asarray(latency_ms) <= budget_ms, throughput_rps, 0.0)

    def bends(self, batch: int, load_ms: float, budget_ms: float) -> Bends:
        """The throughput, where a batch is in the budget."""
        return full_rate(batch, budget_ms - load_ms)

    def cycle_room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, execution_ms: ArrayLike, budget_ms: ArrayLike
                      ) -> Floats:
        """What leaves cycle and execution together twice the budget, and no longer than the next batch takes to fill.

        The mean of both is the latency that gpu-lets predict: a request waits a cycle at most.
        """
        with np.errstate(divide="ignore"):
            every_ms = 1000 * np.asarray(batch, float) / rate_rps
        return np.minimum(2 * np.asarray(budget_ms) - execution_ms, every_ms)

    def carried_rps(self, batch: int, processes: int, found: Prediction, budget_ms: float) -> float:
        """The throughput."""
        return found.throughput_rps

    def tail_ms(self, batch: int, processes: int, found: Prediction, rate_rps: float, delay_ms: float) -> float | None:
        """None: the rule says nothing about requests."""
        return None


def _best_by_latency(points: OperatingPoints, max_processes: int) -> tuple[Floats, Floats]:
    """(points,) latencies in ascending order, and for each the first point of the best throughput within it."""
    table = np.column_stack([points.throughput_rps, points.latency_ms, points.batch, points.processes])
    table = table[points.processes <= max_processes]
    if not len(table):
        return np.zeros(0), table
    table = table[np.lexsort((table[:, 3], -table[:, 0], table[:, 1]))]
    best = np.maximum.accumulate(table[:, 0])
    leader = np.maximum.accumulate(np.where(np.diff(best, prepend=0) > 0, np.arange(len(table)), 0))
    return table[:, 1], table[leader]
