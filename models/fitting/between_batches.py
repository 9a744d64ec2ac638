"""Estimates the error of interpolation between measured batch sizes: every measured batch size is predicted from its
two neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from provision.models.performance.error import fitted_error, relative_errors
from provision.models.performance.measured_segments import BetweenError, MeasuredModel, between

COVERED = 95
"""The percentage of the left-out batch sizes whose underestimation the margin covers."""


def between_error(models: Mapping[str, MeasuredModel]) -> BetweenError | None:
    """Relative errors of measured latencies, each predicted by interpolation between its two neighbours.

    Without the predicted point the gap is wider than the gaps that plans interpolate; therefore the error is rather
    overestimated.

    Returns
    -------
    BetweenError or None
        The errors, with a margin that covers 95 % of the left-out batch sizes. None if no series has a batch size
        between two others.
    """
    short = []
    for model in models.values():
        for series in model.series.values():
            for at in range(1, len(series) - 1):
                beside = series[at - 1], series[at + 1]
                if (found := between(beside, series[at].batch)) is not None:
                    short.append(series[at].latency_ms / found.latency_ms - 1)
    if not short:
        return None
    error = fitted_error(relative_errors(1.0, 1 + np.array(short)))
    margin = max(float(np.percentile(short, COVERED)), 0.0)
    return BetweenError(**error.model_dump(), margin=round(margin, 5))
