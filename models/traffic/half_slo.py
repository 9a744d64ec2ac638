"""The rule of Nexus, iGniter and ParvaGPU: a batch may take half of the SLO; the other half is for waiting."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provision.models.performance.operating_points import Prediction
from provision.models.traffic.rule import LatencyRule

Floats = NDArray[np.float64]


class HalfSlo(LatencyRule):
    """Keeps the batch latency within half of the SLO times ``safety``; a replica carries its throughput with full
    batches.
    """

    part_of_slo = 0.5

    def queue_delay_ms(self, slo_ms: float, safety: float, latency_ms: float) -> float:
        """Half of the SLO minus the batch latency, in ms."""
        return max(0.0, slo_ms / 2 - latency_ms)

    def room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, load_ms: ArrayLike, budget_ms: ArrayLike,
                processes: ArrayLike = 1) -> Floats:
        """The budget minus the time to load a batch, but at most the time in which the next batch arrives, in ms."""
        with np.errstate(divide="ignore"):
            every_ms = 1000 * np.asarray(batch, float) * np.asarray(processes) / rate_rps
        return np.minimum(np.asarray(budget_ms) - load_ms, every_ms)

    def capacity_rps(self, batch: ArrayLike, processes: ArrayLike, hold_ms: ArrayLike, latency_ms: ArrayLike,
                     budget_ms: ArrayLike) -> Floats:
        """The throughput with full batches in requests/s; 0 where the batch latency exceeds the budget."""
        throughput_rps = 1000 * np.asarray(batch, float) * np.asarray(processes) / np.asarray(hold_ms)
        return np.where(np.asarray(latency_ms) <= budget_ms, throughput_rps, 0.0)

    def cycle_room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, execution_ms: ArrayLike, budget_ms: ArrayLike
                      ) -> Floats:
        """Twice the budget minus the execution time, but at most the time in which the next batch arrives, in ms.

        gpu-lets predicts the latency (duty cycle + execution) / 2; this cycle keeps it within the budget.
        """
        with np.errstate(divide="ignore"):
            every_ms = 1000 * np.asarray(batch, float) / rate_rps
        return np.minimum(2 * np.asarray(budget_ms) - execution_ms, every_ms)

    def tail_ms(self, batch: int, processes: int, found: Prediction, rate_rps: float, delay_ms: float) -> float | None:
        """None: the rule tells nothing about the latency of requests."""
        return None
