"""Families of latency models that are fitted to a profile, besides closed networks: iGniter's on slices, a locally
weighted regression, and a table.

iGniter's (TPDS 2022, eqs. 4-8 and 11): the p processes on a slice are treated as p co-located workloads of one DNN.
Each has 1/p of the slice, which is ``compute_slices`` / 7 of the GPU. A ParvaGPU profile has no data on power, clock
and PCIe; the kernel delay of a single process is part of k5. The L2 utilisation of the other processes is linear in
their processing ability (section 3.1).

The locally weighted regression is that with which InSS predicts running times (section 4.1), Cleveland and Devlin's
local fitting (JASA 1988): for every queried point a weighted linear regression over the nearest measurements, with
tricube weights. It works on the logarithms of batch size, compute slices and processes (InSS has one process), in which
log latency is nearly linear. The span, the fraction of the measurements that count as near, is that with the least
leave-one-out error.

The table is interpolated linearly in the same logarithms, and exact at measured points. Points of the grid that were
not measured are filled in so that the log latency bends least, that is, with the least sum of squared second
differences along every axis. Therefore any set of points gives a whole table.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.interpolate import RegularGridInterpolator
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


def fit_igniter_slices(points: ProfilePoints) -> IgniterSlices:
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


SPANS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0)
"""The candidate spans: the fraction of the measurements that have weight; above 1 the kernel reaches beyond the
farthest measurement.
"""

FLATNESS = 1e-3
"""The weight of the penalty that pulls slopes to 0; it decides if near points do not determine a slope."""

LEAST_NEAR = 5
"""The least number of points with weight: one more than the four coefficients of a linear fit over three axes."""


class LocalRegression(NamedTuple):
    """The measurements as logarithms, ``places`` (points, axes) and ``values`` (points,), and the span."""

    places: Floats
    values: Floats
    span: float

    def latency_ms(self, batch: Floats, processes: Floats, compute_slices: Floats) -> Floats:
        """(points,), batch latencies in ms of points that are given as arrays."""
        asked = _places(batch, processes, compute_slices)
        return np.exp([_local(self.places, self.values, place, self.span) for place in asked])


def fit_lwr(points: ProfilePoints) -> LocalRegression:
    """The LocalRegression on ProfilePoints, with the best span."""
    points = points.take(points.measured)
    places, values = _places(*points.where), np.log(points.latency_ms)
    return LocalRegression(places, values, min(SPANS, key=lambda span: _left_out_error(places, values, span)))


def _left_out_error(places: Floats, values: Floats, span: float) -> float:
    """The mean absolute error of log latency if every point is predicted from the others."""
    others = ~np.eye(len(values), dtype=bool)
    predicted = [_local(places[rest], values[rest], at, span) for rest, at in zip(others, places, strict=True)]
    return np.abs(predicted - values).mean()


def _local(places: Floats, values: Floats, at: Floats, span: float) -> float:
    """The log latency at a place, by the weighted linear regression around it."""
    distance = np.linalg.norm(places - at, axis=1)
    near = min(max(LEAST_NEAR, round(span * len(values))), len(values)) - 1
    width = max(np.sort(distance)[near] * max(span, 1.0) * 1.001, 1e-9)
    weight = np.maximum(1 - (distance / width) ** 3, 0) ** 3
    slopes = np.column_stack([np.ones(len(values)), places - at])
    pull = FLATNESS * np.diag([0.0, *np.ones(places.shape[1])])
    moment = (slopes * weight[:, None]).T
    return np.linalg.solve(moment @ slopes + pull, moment @ values)[0]


def _places(batch: Floats, processes: Floats, compute_slices: Floats) -> Floats:
    return np.log(np.column_stack([batch, processes, compute_slices]))


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


def fit_table(points: ProfilePoints) -> InterpolatedTable:
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
    """The values at all nodes of the grid. Those that are NaN in ``values`` are chosen so that the table bends least.
    """
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
