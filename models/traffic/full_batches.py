"""InSS's rule (eq. 2): requests arrive evenly, only full batches start, and the first request of a batch keeps the SLO.

The rule is for InSS's problem: the most throughput of shared GPUs with one replica per workload. There a replica serves
the whole rate of its workload, so that the time in which its batch fills is known. At the start no request waits.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provision.models.performance.operating_points import Prediction
from provision.models.traffic.rule import LatencyRule
from provision.models.traffic.task_latency import task_latency_ms

Floats = NDArray[np.float64]

NAME = "full_batches"
FILLED = frozenset({"interference"})
"""The features of performance data with which this rule can be used."""


class FullBatches(LatencyRule):
    """Keeps the wait of a batch's first request plus the batch's latency within the SLO times ``safety``."""

    def room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, load_ms: ArrayLike, budget_ms: ArrayLike,
                processes: ArrayLike = 1) -> Floats:
        """The budget minus the time to fill and to load a batch, but at most the time in which the next batch arrives,
        in ms.
        """
        with np.errstate(divide="ignore"):
            every_ms = 1000 * np.asarray(batch, float) * np.asarray(processes) / rate_rps
        room: Floats = np.asarray(budget_ms) - task_latency_ms(1, batch, rate_rps, load_ms)
        return np.minimum(room, every_ms)

    def capacity_rps(self, batch: ArrayLike, processes: ArrayLike, hold_ms: ArrayLike, latency_ms: ArrayLike,
                     budget_ms: ArrayLike) -> Floats:
        """The throughput with full batches in requests/s; 0 where filling a batch at that rate and running it exceeds
        the budget.
        """
        throughput_rps = 1000 * np.asarray(batch, float) * np.asarray(processes) / np.asarray(hold_ms)
        answered_ms = task_latency_ms(1, batch, throughput_rps, latency_ms)
        return np.where(answered_ms <= np.asarray(budget_ms), throughput_rps, 0.0)

    def cycle_room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, execution_ms: ArrayLike, budget_ms: ArrayLike
                      ) -> Floats:
        """The longest duty cycle of a replica that runs in turn with others, in ms.

        It is the smaller of two times: the budget minus the time to fill and execute a batch, and the time in which the
        next batch arrives.
        """
        return self.room_ms(batch, rate_rps, execution_ms, budget_ms)

    def tail_ms(self, batch: int, processes: int, found: Prediction, rate_rps: float, delay_ms: float) -> float | None:
        """The latency of the first request of a batch, in ms; it is the longest."""
        return float(task_latency_ms(1, batch, rate_rps, found.latency_ms))
