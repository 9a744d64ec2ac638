"""InSS's rule (eq. 2): requests arrive evenly, only full batches start, and a batch's first is answered in the SLO.

It is for the most throughput of shared GPUs with one replica per workload, InSS's problem: so a replica has the whole
rate of its workload, and how long its batch takes to fill is known. Nothing waits to begin with.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provision.models.performance.operating_points import Prediction
from provision.models.traffic.rule import LatencyRule
from provision.models.traffic.task_latency import task_latency_ms

Floats = NDArray[np.float64]

NAME = "full_batches"
FILLED = frozenset({"interference"})
"""The features of performance data of which it is known how batches fill."""


class FullBatches(LatencyRule):
    """The wait of a batch's first request and the batch together take no more than the SLO times ``safety``."""

    def room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, load_ms: ArrayLike, budget_ms: ArrayLike,
                processes: ArrayLike = 1) -> Floats:
        """What filling and loading leave of the budget, and no longer than it takes for the next batch to arrive."""
        with np.errstate(divide="ignore"):
            every_ms = 1000 * np.asarray(batch, float) * np.asarray(processes) / rate_rps
        room: Floats = np.asarray(budget_ms) - task_latency_ms(1, batch, rate_rps, load_ms)
        return np.minimum(room, every_ms)

    def capacity_rps(self, batch: ArrayLike, processes: ArrayLike, hold_ms: ArrayLike, latency_ms: ArrayLike,
                     budget_ms: ArrayLike) -> Floats:
        """The throughput, where filling a batch at that rate and running it are in the budget."""
        throughput_rps = 1000 * np.asarray(batch, float) * np.asarray(processes) / np.asarray(hold_ms)
        answered_ms = task_latency_ms(1, batch, throughput_rps, latency_ms)
        return np.where(answered_ms <= np.asarray(budget_ms), throughput_rps, 0.0)

    def cycle_room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, execution_ms: ArrayLike, budget_ms: ArrayLike
                      ) -> Floats:
        """What a full batch leaves of the budget, and no longer than it takes for the next one to arrive."""
        return self.room_ms(batch, rate_rps, execution_ms, budget_ms)

    def tail_ms(self, batch: int, processes: int, found: Prediction, rate_rps: float, delay_ms: float) -> float | None:
        """Latency of the first request of a batch, in ms: no other has a longer one."""
        return float(task_latency_ms(1, batch, rate_rps, found.latency_ms))
