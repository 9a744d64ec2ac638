"""Chooses a few points of a grid to measure, by Bayesian D-optimal designs or by space-filling designs; both are
deterministic.

A D-optimal design maximises the determinant of the information matrix of the coefficients. For nonlinear models this
matrix depends on the coefficients themselves, which are unknown before the measurement. Therefore the design maximises
the mean of the log determinant over models that are already known, and uses the prior that these models define
(Chaloner and Verdinelli, Statistical Science 1995).
"""

from collections.abc import Callable, Sequence

import numpy as np

from provision.models.base.arrays import Floats

NOISE = 0.02
"""The relative deviation of one measurement from the model."""

STEP = 1e-4
"""The step of the central differences, in prior standard deviations."""

LEAST_GAIN = 1e-6
"""The least gain for which points are exchanged; smaller gains may be rounding errors."""


def log_jacobians(latency_ms: Callable[[Floats], Floats], coefficients: Floats, spread: Floats) -> Floats:
    """The derivatives of log latency with respect to the coefficients, in units of the prior standard deviations.

    Parameters
    ----------
    latency_ms
        The function from a vector of coefficients to the latencies of all points of a grid.
    coefficients
        The coefficients at which the derivatives are taken, (models, coefficients).
    spread
        The prior standard deviations, (coefficients,).

    Returns
    -------
    ndarray
        The derivatives, (models, points, coefficients).
    """
    steps = STEP * np.diag(spread)
    return np.array(
        [
            np.stack([np.log(latency_ms(one + step) / latency_ms(one - step)) / (2 * STEP) for step in steps], axis=1)
            for one in coefficients
        ]
    )


def d_optimal(jacobians: Floats, count: int) -> list[int]:
    """The indices of ``count`` points that determine the coefficients best; points are chosen greedily, then exchanged
    one by one.

    Parameters
    ----------
    jacobians
        The derivatives, (models, points, coefficients); see ``log_jacobians``.
    count
        The number of points to choose, at most as many as there are.

    Returns
    -------
    list of int
        The indices in the order in which the points were chosen.
    """
    information = np.tile(np.eye(jacobians.shape[-1]), (len(jacobians), 1, 1))
    chosen: list[int] = []
    for _ in range(count):
        chosen.append(int(np.argmax(_gains(jacobians, information, chosen))))
        information += _information(jacobians, chosen[-1])
    return _exchanged(jacobians, information, chosen)


def _exchanged(jacobians: Floats, information: Floats, chosen: Sequence[int]) -> list[int]:
    """The chosen points after replacing points by better points until no exchange gains."""
    chosen, improved = list(chosen), True
    while improved:
        improved = False
        for place, point in enumerate(chosen):
            rest = information - _information(jacobians, point)
            gains = _gains(jacobians, rest, chosen[:place] + chosen[place + 1 :])
            better = int(np.argmax(gains))
            if gains[better] > gains[point] + LEAST_GAIN:
                information, chosen[place], improved = rest + _information(jacobians, better), better, True
    return chosen


def _gains(jacobians: Floats, information: Floats, taken: Sequence[int]) -> Floats:
    """(points,), the gain in mean log determinant from measuring each point; -infinity for points that are taken
    already.
    """
    solved = np.linalg.solve(information, jacobians.transpose(0, 2, 1))
    gains = np.log1p(np.einsum("mpc,mcp->mp", jacobians, solved) / NOISE**2).mean(axis=0)
    gains[taken] = -np.inf
    return gains


def _information(jacobians: Floats, point: int) -> Floats:
    """(models, coefficients, coefficients), the information matrix of one point for every model."""
    rows = jacobians[:, point] / NOISE
    return rows[:, :, None] * rows[:, None, :]


def farthest_points(coordinates: Floats, count: int) -> list[int]:
    """The indices of ``count`` points that fill the space: a corner first, then always the point farthest from all
    chosen points.

    ``coordinates`` has shape (points, dimensions); every dimension is scaled by its range.
    """
    low, high = coordinates.min(axis=0), coordinates.max(axis=0)
    scaled = (coordinates - low) / np.where(high > low, high - low, 1)
    chosen = [int(np.argmax(np.linalg.norm(scaled - 0.5, axis=1)))]
    nearest = np.full(len(scaled), np.inf)
    while len(chosen) < count:
        nearest = np.minimum(nearest, np.linalg.norm(scaled - scaled[chosen[-1]], axis=1))
        chosen.append(int(np.argmax(nearest)))
    return chosen
