"""Fits a family of models to the profile of one DNN, and computes the errors on points to which it was not fitted."""

from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.base.errors import InputError
from provision.models.fitting.families import FAMILIES, LatencyModel, population
from provision.models.fitting.profile_points import Indices, ProfilePoints
from provision.models.performance.fitted_networks import relative_errors

LEAST_POINTS = 5
"""The least number of points of a fit; with fewer the effects of batch, processes and slice size cannot be told apart.
"""


class Fit(NamedTuple):
    """A fitted model, the indices of the points to which it was ``fitted`` and on which it is ``judged``, and its
    errors.

    ``predicted_ms`` and the relative ``errors`` are for the ``judged`` points.
    """

    model: LatencyModel
    fitted: Ints
    judged: Ints
    predicted_ms: Floats
    errors: Floats


def choose(dnn: str, points: ProfilePoints, family: str, count: int) -> Ints:
    """The indices of the ``count`` measured points that the family would choose for an unknown DNN. Raises InputError
    if ``count`` is too small for a fit, or leaves no point to judge the fit.
    """
    measured = np.flatnonzero(points.measured)
    if not LEAST_POINTS <= count < len(measured):
        raise InputError(
            f"{dnn}: {count} points cannot be fitted and others judged: {len(measured)} are measured; choose at "
            f"least {LEAST_POINTS} and less than that"
        )
    return measured[FAMILIES[family].choose(points.take(measured), count, population(dnn))]


def fit_profile(dnn: str, points: ProfilePoints, family: str, chosen: Indices | None = None) -> Fit:
    """Fit a family of models to a DNN's points.

    Parameters
    ----------
    dnn
        The name of the DNN, for messages.
    points
        All points, including points that ran out of memory.
    family
        The name of a Family.
    chosen
        The indices of the points to fit; the fit is judged on the other measured points. None fits all points, and
        judges the fit on the same points.

    Raises
    ------
    InputError
        If there are too few points to fit, or none to judge the fit.
    """
    measured = np.flatnonzero(points.measured)
    fitted = measured if chosen is None else np.intersect1d(measured, chosen)
    judged = measured if chosen is None else np.setdiff1d(measured, chosen)
    if len(fitted) < LEAST_POINTS:
        raise InputError(
            f"{dnn}: {len(fitted)} measured points to fit; give at least {LEAST_POINTS}, or `provision import csv "
            "--complete`, which takes three with the shipped models as the prior"
        )
    if not len(judged):
        raise InputError(f"{dnn}: no measured point is left to judge the fit by; fit fewer points")
    model = FAMILIES[family].fit(points, fitted)
    predicted_ms = model.latency_ms(*points.take(judged).where)
    return Fit(model, fitted, judged, predicted_ms, relative_errors(predicted_ms, points.latency_ms[judged]))
