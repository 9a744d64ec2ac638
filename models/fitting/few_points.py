"""Fits a closed network to as few as three points, with a prior from other DNNs, and gives an interval for every
latency.

The fit maximises the posterior probability. The prior is made from the shipped networks of other DNNs if the points are
fewer than a fit needs without them (`closed_network.prior_of`). Around this maximum the logarithms of the coefficients
are treated as normally distributed (Laplace's approximation). Every predicted latency thus has a standard deviation,
which covers both the uncertainty that the points leave and the error of the closed network itself. Plans use the upper
end of the interval.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Floats
from provision.models.fitting.closed_network import NOISE, fit, latency_of_logs, network_logs, prior_of
from provision.models.fitting.design import log_jacobians
from provision.models.fitting.profile_points import Indices, ProfilePoints
from provision.models.performance.closed_network import ClosedNetwork

LEAST_POINTS = 3
WIDTH = 2.0
"""The number of standard deviations from the prediction to the upper end of the interval. 93 to 98 % of the points left
out of ParvaGPU's tables are below the upper end (``benchmarks/few_points.py``).
"""


class FewPoints(NamedTuple):
    """A fitted network, and the covariance of the logarithms of its latency coefficients.

    The covariance is in units of ``spread``, the prior standard deviations.
    """

    network: ClosedNetwork
    covariance: Floats
    spread: Floats

    def latency_ms(self, points: ProfilePoints) -> Floats:
        """(points,), the predicted batch latencies, in ms."""
        return self.network.latency_ms(*points.where)

    def deviations(self, points: ProfilePoints) -> Floats:
        """(points,), the standard deviations of the logarithms of the predicted latencies."""
        slopes = _slopes(self.network, points, self.spread)
        return np.sqrt(np.einsum("pi,ij,pj->p", slopes, self.covariance, slopes) + NOISE**2)

    def telling(self, points: ProfilePoints, count: int) -> list[int]:
        """The indices of ``count`` points to measure next. Each is the one whose measurement would reduce the squared
        deviations at all ``points`` most, on average (A-optimal, one by one).
        """
        slopes, covariance = _slopes(self.network, points, self.spread), self.covariance
        chosen: list[int] = []
        for _ in range(count):
            told = slopes @ covariance
            gains = (told @ (slopes.T @ slopes) * told).sum(axis=1) / ((told * slopes).sum(axis=1) + NOISE**2)
            gains[chosen] = -np.inf
            chosen.append(int(np.argmax(gains)))
            row = told[chosen[-1]]
            covariance = covariance - np.outer(row, row) / (row @ slopes[chosen[-1]] + NOISE**2)
        return chosen

    def upper_ms(self, points: ProfilePoints) -> Floats:
        """(points,), batch latencies in ms that are rarely exceeded: WIDTH standard deviations above the
        prediction.
        """
        return self.latency_ms(points) * np.exp(WIDTH * self.deviations(points))


def fit_few(points: ProfilePoints, fitted: Indices, population: Sequence[ClosedNetwork] = ()) -> FewPoints:
    """Fit a closed network to some of the measured points.

    Parameters
    ----------
    points
        All measured points.
    fitted
        The indices of the points to whose latency the network is fitted.
    population
        Closed networks of other DNNs on the same GPU type, at least two if the points are few.
    """
    return spread_around(fit(points, fitted, population), points, fitted, population)


def spread_around(network: ClosedNetwork, points: ProfilePoints, fitted: Indices,
                  population: Sequence[ClosedNetwork] = ()) -> FewPoints:
    """A closed network that was fitted to some of the measured points, with the covariance of its coefficients."""
    chosen = points.take(fitted)
    spread = prior_of(chosen, population).spread
    slopes = _slopes(network, chosen, spread) / NOISE
    covariance: Floats = np.linalg.inv(slopes.T @ slopes + np.eye(len(spread))).astype(np.float64)
    return FewPoints(network, covariance, spread)


def _slopes(network: ClosedNetwork, points: ProfilePoints, spread: Floats) -> Floats:
    """(points, coefficients), the derivatives of log latency by the logarithms of the coefficients, in units of the
    prior standard deviations.
    """

    def latency_ms(logs: Floats) -> Floats:
        return latency_of_logs(logs, points)

    return log_jacobians(latency_ms, network_logs([network]), spread)[0]
