"""Locally weighted regression, by which InSS predicts running times from batch and resources (section 4.1).

Cleveland and Devlin's local fitting (JASA 1988): around every asked point a weighted linear regression of its own,
weights tricube over the nearest part of the measurements. Here on logarithms, where latencies are nearly linear,
of batch, compute slices and processes (which InSS has one of); the part is the one with the least error when each
point is left out in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from provision.models.base.arrays import Floats
    from provision.models.fitting.profile_points import ProfilePoints

SPANS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0)
"""Candidate spans: the part of the measurements that has weight; above 1 the kernel reaches beyond the farthest."""

FLATNESS = 1e-3
"""Weight of the pull towards slope 0, which decides where near points do not tell a slope."""

LEAST_NEAR = 5
"""Least number of points with weight: a linear fit over three axes has four coefficients, and one more is needed."""


class LocalRegression(NamedTuple):
    """Measured logarithms, ``places`` (points, axes) and ``values``, and the part of them that counts as near."""

    places: Floats
    values: Floats
    span: float

    def latency_ms(self, batch: Floats, processes: Floats, compute_slices: Floats) -> Floats:
        """Batch latencies of arrays of points, in ms."""
        asked = _places(batch, processes, compute_slices)
        return np.exp([_local(self.places, self.values, place, self.span) for place in asked])


def fit(points: ProfilePoints) -> LocalRegression:
    """The LocalRegression on ProfilePoints."""
    points = points.take(points.measured)
    places, values = _places(*points.where), np.log(points.latency_ms)
    return LocalRegression(places, values, min(SPANS, key=lambda span: _left_out_error(places, values, span)))


def _left_out_error(places: Floats, values: Floats, span: float) -> float:
    """Mean absolute error on every point when the others predict it."""
    others = ~np.eye(len(values), dtype=bool)
    predicted = [_local(places[rest], values[rest], at, span) for rest, at in zip(others, places, strict=True)]
    return np.abs(predicted - values).mean()


def _local(places: Floats, values: Floats, at: Floats, span: float) -> float:
    """The weighted linear regression around a place, at that place."""
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
