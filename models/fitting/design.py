"""Which few points of a grid to measure: Bayesian D-optimal designs and space-filling ones, both deterministic.

A D-optimal design makes the determinant of the coefficients' information matrix largest. For models that are not
linear the matrix depends on the coefficients, which nobody knows before measuring: the design maximises the mean
of the logarithm over coefficients of models that are known already, each with the prior that these make up
(Chaloner and Verdinelli, Statistical Science 1995).
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
"""Half of a central difference, in prior spreads."""

LEAST_GAIN = 1e-6
"""Points are exchanged only when the gain exceeds this, so that rounding does not cause exchanges."""


def log_jacobians(latency_ms: Callable[[Floats], Floats], coefficients: Floats, spread: Floats) -> Floats:
    """Derivatives of the logarithm of latency by the coefficients, in prior spreads.

    Parameters
    ----------
    latency_ms
        Function of a coefficient vector that gives the latencies of all points of a grid.
    coefficients
        Array (models, coefficients) to take the derivatives at.
    spread
        Array of prior standard deviations.

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
    """Indices of ``count`` points that tell most about the coefficients: greedy, then exchanged one by one.

    Parameters
    ----------
    jacobians
        Array (models, points, coefficients), in prior spreads; see ``log_jacobians``.
    count
        How many points, at most as many as there are.

    Returns
    -------
    list of int
        In the order in which they were found.
    """
    information = np.tile(np.eye(jacobians.shape[-1]), (len(jacobians), 1, 1))
    chosen: list[int] = []
    for _ in range(count):
        chosen.append(int(np.argmax(_gains(jacobians, information, chosen))))
        information += _information(jacobians, chosen[-1])
    return _exchanged(jacobians, information, chosen)


def _exchanged(jacobians: Floats, information: Floats, chosen: Sequence[int]) -> list[int]:
    """Replace a point by a better one as long as there is one."""
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
    """How much measuring each point would add to the mean log determinant; -infinity for points already taken."""
    solved = np.linalg.solve(information, jacobians.transpose(0, 2, 1))
    gains = np.log1p(np.einsum("mpc,mcp->mp", jacobians, solved) / NOISE**2).mean(axis=0)
    gains[taken] = -np.inf
    return gains


def _information(jacobians: Floats, point: int) -> Floats:
    """The information matrix that one point contributes, for every model."""
    rows = jacobians[:, point] / NOISE
    return rows[:, :, None] * rows[:, None, :]


def farthest_points(coordinates: Floats, count: int) -> list[int]:
    """Indices of ``count`` points that fill the space: a corner, then always the point farthest from those before.

    Coordinates are an array (points, dimensions); every dimension counts by its range.
    """
    low, high = coordinates.min(axis=0), coordinates.max(axis=0)
    scaled = (coordinates - low) / np.where(high > low, high - low, 1)
    chosen = [int(np.argmax(np.linalg.norm(scaled - 0.5, axis=1)))]
    nearest = np.full(len(scaled), np.inf)
    while len(chosen) < count:
        nearest = np.minimum(nearest, np.linalg.norm(scaled - scaled[chosen[-1]], axis=1))
        chosen.append(int(np.argmax(nearest)))
    return chosen
