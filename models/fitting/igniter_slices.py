"""Fits iGniter's latency model (TPDS 2022, eqs. 4-8 and 11) on MIG slices, for comparison with the closed network.

The p processes on a slice are treated as p co-located workloads of one DNN. Each has 1/p of the slice, which is
``compute_slices`` / 7 of the GPU. A ParvaGPU profile has no data on power, clock and PCIe; the kernel delay of a single
process is part of k5. The L2 utilisation of the other processes is linear in their processing ability (section 3.1).
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares, nnls

from provision.models.base.arrays import Floats
from provision.models.fitting.profile_points import ProfilePoints

GPU_SLICES = 7
"""The number of compute slices of a whole GPU."""

NOISE = 0.04
"""The relative residual from which on the robust fit treats a measured latency as an outlier."""

STARTS = (0.0, 0.02, 0.1, 0.5)
"""The values of k4 from which the search starts. k4 is never below 0, since eq. 11 has poles there."""


class IgniterSlices(NamedTuple):
    """The coefficients of the model: k1 to k5 of eq. 11, scheduling delays of eq. 6, interference in L2 of eq. 8.

    With two processes a batch is delayed by ``delay_ms`` (2 alpha_sch n + beta_sch n) in the scheduler, and with each
    further process by ``delay_slope_ms`` (alpha_sch n) more. Each other process lengthens the active time by
    ``cache_per_item_ms`` (alpha_cache alpha_cacheutil) per request of a batch and by the fraction ``cache_base``
    (alpha_cache beta_cacheutil). No coefficient is negative.
    """

    k1_ms: float
    k2_ms: float
    k3_ms: float
    k5_ms: float
    delay_ms: float
    delay_slope_ms: float
    cache_per_item_ms: float
    k4_share: float
    cache_base: float

    def latency_ms(self, batch: Floats, processes: Floats, compute_slices: Floats) -> Floats:
        """(points,), batch latencies in ms of points that are given as arrays."""
        terms = _terms(batch, processes, compute_slices, self.k4_share)
        active_ms = terms[:, :4] @ self[:4]
        return active_ms * (1 + self.cache_base * (processes - 1)) + terms[:, 4:] @ self[4:7]


def fit(points: ProfilePoints) -> IgniterSlices:
    """The IgniterSlices that fit ProfilePoints best, by robust least squares on logarithms; the best result of several
    starts.
    """
    points = points.take(points.measured)

    def residuals(coefficients: Floats) -> Floats:
        return np.log(IgniterSlices(*coefficients).latency_ms(*points.where) / points.latency_ms) / NOISE

    solutions = [
        least_squares(residuals, _start(points, k4), bounds=(0, np.inf), loss="soft_l1", x_scale="jac")
        for k4 in STARTS
    ]
    return IgniterSlices(*min(solutions, key=lambda solution: solution.cost).x.tolist())


def _start(points: ProfilePoints, k4: float) -> Floats:
    """The coefficients that are best for a given k4 and ``cache_base`` 0, for which all other coefficients enter
    linearly.
    """
    terms = _terms(*points.where, k4) / points.latency_ms[:, None]
    linear, _ = nnls(terms, np.ones(len(terms)))
    return np.array([*linear, k4, 0.0]) + 1e-6


def _terms(batch: Floats, processes: Floats, compute_slices: Floats, k4: float) -> Floats:
    """(points, coefficients), the factors of the coefficients of eqs. 11, 6 and 8 in a point's latency."""
    share, others = compute_slices / GPU_SLICES / processes + k4, processes - 1
    active = np.vander(batch, 3) / share[:, None]
    return np.column_stack([active, np.ones(len(batch)), others > 0, np.maximum(others - 1, 0), others * batch])
