"""Computes the errors of predictions against measurements, which every fit states beside its coefficients."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from provision.models.base.arrays import Floats
from provision.models.performance.fitted_networks import FittedError


def relative_errors(predicted: ArrayLike, measured: Floats) -> Floats:
    """The array of |predicted - measured| / measured."""
    return np.abs(np.asarray(predicted) / measured - 1)


def fitted_error(errors: Floats) -> FittedError:
    """Summarise an array of relative errors as a FittedError."""
    mean, p95, worst = np.mean(errors), np.percentile(errors, 95), np.max(errors)
    return FittedError(
        mean=round(float(mean), 5), p95=round(float(p95), 5), max=round(float(worst), 5), points=len(errors)
    )
