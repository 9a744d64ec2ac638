"""How far interpolation between measured batches is off: every measured batch predicted from its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from provision.models.performance.error import fitted_error
from provision.models.performance.measured_segments import between

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.models.performance.fitted_networks import FittedError
    from provision.models.performance.measured_segments import MeasuredModel


def between_error(models: Mapping[str, MeasuredModel]) -> FittedError | None:
    """Relative errors of the latencies of measured batches, each left out and interpolated from those on its sides.

    The gaps are then wider than those that are interpolated in the end, so that the error is rather too large than
    too small.

    Returns
    -------
    FittedError or None
        None where no series has a batch between two others.
    """
    errors = []
    for model in models.values():
        for series in model.series.values():
            for at in range(1, len(series) - 1):
                beside = series[at - 1], series[at + 1]
                if (found := between(beside, series[at].batch)) is not None:
                    errors.append(abs(found.latency_ms / series[at].latency_ms - 1))
    return fitted_error(np.array(errors)) if errors else None
