"""A measured table between its points: linear in the logarithms of batch, processes and compute slices.

Exact at measured points. Corners of the grid that were not measured are filled in with the least bending (sum of
squared second differences of log latency along every axis), so that any set of points makes a table.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.interpolate import RegularGridInterpolator

if TYPE_CHECKING:
    from provision.models.base.arrays import Floats
    from provision.models.fitting.profile_points import ProfilePoints

TENSION = 1e-3
"""Weight of first differences: decides where bending does not, far from all that was measured."""


class InterpolatedTable(NamedTuple):
    """Log latencies (ms) over a grid; ``axes`` are logarithms of batch, processes and compute slices."""

    axes: tuple[Floats, ...]
    values: Floats

    def latency_ms(self, batch: Floats, processes: Floats, compute_slices: Floats) -> Floats:
        """Batch latencies of arrays of points, in ms; beyond the grid its edges are continued."""
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
    """The measured values; a single one is constant for one unit more, since a grid has two values per axis."""
    axis = np.unique(column)
    return axis if len(axis) > 1 else np.append(axis, axis + 1)


def _filled(axes: tuple[Floats, ...], values: Floats) -> Floats:
    """All nodes of the grid: those without a value bend the least."""
    bending = np.concatenate([_along(axes, at, matrix) for at in range(len(axes)) for matrix in _differences(axes[at])])
    known = ~np.isnan(values)
    filled = values.copy()
    filled[~known] = np.linalg.lstsq(bending[:, ~known], -bending[:, known] @ values[known], rcond=None)[0]
    return filled


def _differences(axis: Floats) -> tuple[Floats, Floats]:
    """Matrices of the weighed first and of the second divided differences along an axis."""
    step = np.diff(axis)
    first = np.diff(np.eye(len(axis)), axis=0) / step[:, None]
    second = 2 * np.diff(first, axis=0) / (step[1:] + step[:-1])[:, None]
    return TENSION * first, second


def _along(axes: tuple[Floats, ...], at: int, matrix: Floats) -> Floats:
    """A matrix on one axis as a matrix on the nodes of the whole grid."""
    before, after = (np.eye(math.prod(map(len, part))) for part in (axes[:at], axes[at + 1 :]))
    return np.kron(np.kron(before, matrix), after)
