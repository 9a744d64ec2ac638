"""A closed network from as few as three points, completed by what is known of other DNNs, with an interval.

The fit is the most probable one under a prior made of the shipped networks of other DNNs. Around it the logarithms of
the coefficients are taken as normal (Laplace's approximation), which gives every predicted latency a standard
deviation: of what the points leave open, and of what a closed network does not describe. Plans take the upper end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from provision.models.fitting.closed_network import NOISE, fit, latency_of_logs, network_logs, population_prior
from provision.models.fitting.design import log_jacobians

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.models.base.arrays import Floats
    from provision.models.fitting.profile_points import Indices, ProfilePoints
    from provision.models.performance.closed_network import ClosedNetwork

LEAST_POINTS = 3
WIDTH = 2.0
"""Standard deviations from the prediction to the upper end: of the points left out of ParvaGPU's tables between 93 and
98 % stay below it (``benchmarks/few_points.py``)."""


class FewPoints(NamedTuple):
    """A fitted network and the covariance of the logarithms of its latency coefficients, in prior spreads."""

    network: ClosedNetwork
    covariance: Floats
    spread: Floats

    def latency_ms(self, points: ProfilePoints) -> Floats:
        """Predicted batch latencies, ms."""
        return self.network.latency_ms(*points.where)

    def deviations(self, points: ProfilePoints) -> Floats:
        """Standard deviations of the logarithms of these latencies."""
        slopes = _slopes(self.network, points, self.spread)
        return np.sqrt(np.einsum("pi,ij,pj->p", slopes, self.covariance, slopes) + NOISE**2)

    def upper_ms(self, points: ProfilePoints, width: float = WIDTH) -> Floats:
        """Batch latencies that are seldom exceeded, ms."""
        return self.latency_ms(points) * np.exp(width * self.deviations(points))


def fit_few(points: ProfilePoints, fitted: Indices, population: Sequence[ClosedNetwork]) -> FewPoints:
    """The fit of some measured points.

    Parameters
    ----------
    points
        Measured points.
    fitted
        Indices of those whose latency counts.
    population
        Closed networks of other DNNs on the same GPU type, at least two.
    """
    network = fit(points, fitted, population)
    _, spread = population_prior(population)
    slopes = _slopes(network, points.take(fitted), spread) / NOISE
    covariance: Floats = np.linalg.inv(slopes.T @ slopes + np.eye(len(spread))).astype(np.float64)
    return FewPoints(network, covariance, spread)


def _slopes(network: ClosedNetwork, points: ProfilePoints, spread: Floats) -> Floats:
    """Derivatives of log latency by the log coefficients, in prior spreads: array (points, coefficients)."""

    def latency_ms(logs: Floats) -> Floats:
        return latency_of_logs(logs, points)

    return log_jacobians(latency_ms, network_logs([network]), spread)[0]
