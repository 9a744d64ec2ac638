"""Interpolates a measured table linearly in the logarithms of batch size, processes and compute slices.

The table is exact at measured points. Points of the grid that were not measured are filled in so that the log latency
bends least, that is, with the least sum of squared second differences along every axis. Therefore any set of points
gives a whole table.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.interpolate import RegularGridInterpolator

from provision.models.base.arrays import Floats
from provision.models.fitting.profile_points import ProfilePoints

TENSION = 1e-3
"""The weight of squared first differences; these decide far from all measured points, where bending does not."""


class InterpolatedTable(NamedTuple):
    """Logarithms of latencies (ms) over a grid; ``axes`` has the logarithms of batch sizes, processes and compute
    slices.
    """

    axes: tuple[Floats, ...]
    values: Floats

    def latency_ms(self, batch: Floats, processes: Floats, compute_slices: Floats) -> Floats:
        """(points,), batch latencies in ms of points that are given as arrays; beyond the grid the cells at its edge
        are extrapolated.
        """
        asked = np.log(np.column_stack([batch, processes, compute_slices]))
        return np.exp(RegularGridInterpolator(self.axes, self.values, bounds_error=False, fill_value=None)(asked))


def fit(points: ProfilePoints) -> InterpolatedTable:
    """The InterpolatedTable through ProfilePoints."""
    points = points.take(points.measured)
    places = np.log(np.column_stack(points.where))
    axes = tuple(_axis(column) for column in places.T)
    shape = tuple(map(len, axes))
    nodes = np.ravel_multi_index(
        [np.searchsorted(axis, column) for axis, column in zip(axes, places.T, strict=True)], shape
    )
    values = np.full(np.prod(shape), np.nan)
    values[nodes] = np.log(points.latency_ms)
    return InterpolatedTable(axes, _filled(axes, values).reshape(shape))


def _axis(column: Floats) -> Floats:
    """The measured values of a coordinate, ascending. A single value gets a second value 1 above it, since the axis of
    a grid needs two.
    """
    axis = np.unique(column)
    return axis if len(axis) > 1 else np.append(axis, axis + 1)


def _filled(axes: tuple[Floats, ...], values: Floats) -> Floats:
    """The values at all nodes of the grid; missing values are chosen so that the table bends least."""
    bending = np.concatenate([_along(axes, at, matrix) for at in range(len(axes)) for matrix in _differences(axes[at])])
    known = ~np.isnan(values)
    filled = values.copy()
    filled[~known] = np.linalg.lstsq(bending[:, ~known], -bending[:, known] @ values[known], rcond=None)[0]
    return filled


def _differences(axis: Floats) -> tuple[Floats, Floats]:
    """The matrices of the weighted first and of the second divided differences along an axis."""
    step = np.diff(axis)
    first = np.diff(np.eye(len(axis)), axis=0) / step[:, None]
    second = 2 * np.diff(first, axis=0) / (step[1:] + step[:-1])[:, None]
    return TENSION * first, second


def _along(axes: tuple[Floats, ...], at: int, matrix: Floats) -> Floats:
    """The matrix over all nodes of the grid that acts as the given matrix along one axis."""
    before, after = (np.eye(math.prod(map(len, part))) for part in (axes[:at], axes[at + 1 :]))
    return np.kron(np.kron(before, matrix), after)
