"""A performance model of another package, for replicas alone: compute or memory, whichever takes longer."""

from typing import Literal

import numpy as np

from provision.models.hardware.gpu import gpu_type
from provision.models.performance.operating_points import OperatingPoints, PerformanceData, Prediction

BATCHES = np.array([1, 2, 4, 8, 16, 32])


class Roofline(PerformanceData):
    """``models`` by name: GFLOP of a request, and GB of weights that every batch reads."""

    kind: Literal["roofline"]
    tflops: float
    gb_per_s: float
    models: dict[str, tuple[float, float]]

    def operating_points(self, model, profile):
        """Every batch, one process, for the search."""
        times = np.array([self._ms(model, batch, profile) for batch in BATCHES])
        return OperatingPoints(BATCHES, np.ones_like(BATCHES), times, 1000 * BATCHES / times)

    def predict(self, profile, members):
        """A replica alone, for the verifier."""
        if len(members) != 1 or members[0].processes != 1:
            return [None] * len(members)
        time = self._ms(members[0].model, members[0].batch, profile)
        return [Prediction(time, 1000 * members[0].batch / time, None)]

    def _ms(self, model, batch, profile):
        gflop, weights_gb = self.models[model]
        part = 1.0 if profile == "whole" else gpu_type(self.gpu).profiles[profile].compute / 7
        return max(gflop * batch / self.tflops, 1000 * weights_gb / self.gb_per_s) / part
