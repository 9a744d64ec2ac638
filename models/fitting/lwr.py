"""Fits a locally weighted regression, with which InSS predicts running times from batch size and resources (section
4.1).

This is Cleveland and Devlin's local fitting (JASA 1988): for every queried point a weighted linear regression over the
nearest measurements, with tricube weights. It works on the logarithms of batch size, compute slices and processes (InSS
has one process), in which log latency is nearly linear. The span, the fraction of the measurements that count as near,
is the span with the least leave-one-out error.
"""

from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Floats
from provision.models.fitting.profile_points import ProfilePoints

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


def fit(points: ProfilePoints) -> LocalRegression:
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
