"""Fits a closed network to as few as three points, with a prior from other DNNs, and gives an interval for every
latency.

The fit maximises the posterior probability. The prior is made from the shipped networks of other DNNs if the points are
fewer than a fit needs without them (`closed_network.prior_of`). Around this maximum the logarithms of the coefficients
are treated as normally distributed (Laplace's approximation). Every predicted latency thus has a standard deviation,
which covers both the uncertainty that the points leave and the error of the closed network itself. Plans use the upper
end of the interval.

Since profiling costs GPU time, ``propose`` and ``propose_further`` name the few points that should be measured first,
and next.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.models.fitting.closed_network import NOISE, fit, latency_of_logs, network_logs, prior_of, roomy
from provision.models.fitting.design import log_jacobians
from provision.models.fitting.families import FAMILIES, population
from provision.models.fitting.profile_points import Indices, Key, ProfilePoints, profile_points
from provision.models.hardware.gpu import GpuType
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


BATCHES = 2 ** np.arange(9)
PROCESSES = np.arange(1, 6)


def propose(gpu: GpuType, family: str, count: int, dnn: str | None = None) -> list[Key]:
    """The points to measure of a new DNN, sorted by profile.

    Candidates are those of `_grid` at which every known DNN fits into the memory. A point that runs out of memory would
    tell little.

    Parameters
    ----------
    gpu
        The GPU type.
    family
        The name of the Family to fit.
    count
        The number of points.
    dnn
        The name of the DNN if its network ships; its own network is then not used.

    Raises
    ------
    InputError
        If there are fewer candidates than ``count``, or ``count`` is too small for a fit (``few_points``).
    """
    (keys, points), known = _grid(gpu), population(dnn)
    likely = np.flatnonzero(roomy(points, known))
    if not LEAST_POINTS <= count <= len(likely):
        raise InputError(f"--propose {count}: choose from {LEAST_POINTS} to {len(likely)} points")
    chosen = FAMILIES[family].choose(points.take(likely), count, known)
    return [keys[likely[at]] for at in sorted(chosen)]


def propose_further(gpu: GpuType, keys: list[Key], measured: ProfilePoints, count: int, dnn: str | None = None
                    ) -> list[Key]:
    """The points to measure next: those that would narrow the bands of a closed network most that is fitted to the
    points measured so far, the most telling first.

    Candidates are those of `_grid` that were not measured and at which the fitted network fits into the memory.

    Parameters
    ----------
    gpu, count, dnn
        See `propose`.
    keys, measured
        The points measured so far.

    Raises
    ------
    InputError
        If too few points were measured, or there are fewer candidates than ``count``.
    """
    taken = np.flatnonzero(measured.measured)
    if len(taken) < LEAST_POINTS:
        raise InputError(f"--propose: {len(taken)} points of {dnn} were measured; measure {LEAST_POINTS} first")
    fitted, (every, points) = fit_few(measured, taken, population(dnn)), _grid(gpu)
    fits = fitted.network.memory_gib(points.batch, points.processes) <= points.slice_memory_gib
    open_points = np.flatnonzero(fits & np.array([key not in keys for key in every]))
    if not 1 <= count <= len(open_points):
        raise InputError(f"--propose {count}: choose from 1 to {len(open_points)} points of {dnn}")
    return [every[open_points[at]] for at in fitted.telling(points.take(open_points), count)]


def _grid(gpu: GpuType) -> tuple[list[Key], ProfilePoints]:
    """All points on plain MIG profiles with batch sizes up to 256 and up to 5 processes."""
    profiles = [profile.name for profile in gpu.profiles.values() if profile.variant == "plain"]
    keys = [(profile, int(batch), int(count)) for profile in profiles for batch in BATCHES for count in PROCESSES]
    return keys, profile_points(gpu, keys, np.full(len(keys), np.nan))
