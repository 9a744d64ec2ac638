"""Chooses a few points of a grid to measure: Bayesian D-optimal designs and space-filling ones, both deterministic.

A D-optimal design maximises the determinant of the information matrix of the coefficients. For nonlinear models this
matrix depends on the coefficients themselves, which are unknown before measuring. Therefore the design maximises the
mean of the log determinant over models that are already known, and uses the prior that these models define (Chaloner
and Verdinelli, Statistical Science 1995).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from provision.models.base.arrays import Floats

NOISE = 0.02
"""Relative deviation of one measurement from the model."""

STEP = 1e-4
"""Step of the central differences, in prior standard deviations."""

LEAST_GAIN = 1e-6
"""Least gain for which points are exchanged; smaller ones may be rounding errors."""


def log_jacobians(latency_ms: Callable[[Floats], Floats], coefficients: Floats, spread: Floats) -> Floats:
    """Derivatives of log latency with respect to the coefficients, in units of the prior standard deviations.

    Parameters
    ----------
    latency_ms
        Function of a coefficient vector that gives the latencies of all points of a grid.
    coefficients
        Where the derivatives are taken, (models, coefficients).
    spread
        Prior standard deviations, (coefficients,).

    Returns
    -------
    ndarray
        Shape (models, points, coefficients).
    """
    steps = STEP * np.diag(spread)
    return np.array(
        [
            np.stack([np.log(latency_ms(one + step) / latency_ms(one - step)) / (2 * STEP) for step in steps], axis=1)
            for one in coefficients
        ]
    )


def d_optimal(jacobians: Floats, count: int) -> list[int]:
    """Indices of ``count`` points that determine the coefficients best: chosen greedily, then exchanged one by one.

    Parameters
    ----------
    jacobians
        Derivatives, (models, points, coefficients); see ``log_jacobians``.
    count
        Number of points, at most as many as there are.

    Returns
    -------
    list of int
        In the order in which they were chosen.
    """
    information = np.tile(np.eye(jacobians.shape[-1]), (len(jacobians), 1, 1))
    chosen: list[int] = []
    for _ in range(count):
        chosen.append(int(np.argmax(_gains(jacobians, information, chosen))))
        information += _information(jacobians, chosen[-1])
    return _exchanged(jacobians, information, chosen)


def _exchanged(jacobians: Floats, information: Floats, chosen: Sequence[int]) -> list[int]:
    """Replace points by better ones until no exchange gains."""
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
    """The gain in mean log determinant from measuring each point, (points,); -infinity for points already taken."""
    solved = np.linalg.solve(information, jacobians.transpose(0, 2, 1))
    gains = np.log1p(np.einsum("mpc,mcp->mp", jacobians, solved) / NOISE**2).mean(axis=0)
    gains[taken] = -np.inf
    return gains


def _information(jacobians: Floats, point: int) -> Floats:
    """The information matrix of one point, for every model: (models, coefficients, coefficients)."""
    rows = jacobians[:, point] / NOISE
    return rows[:, :, None] * rows[:, None, :]


def farthest_points(coordinates: Floats, count: int) -> list[int]:
    """Indices of ``count`` points that fill the space: a corner first, then always the point farthest from all chosen.

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
