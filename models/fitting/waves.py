"""Fits times alone as sums of waves (least squares over waves of many sizes), the overlap of batches, and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from provision.models.base.tolerances import TOLERANCE
from provision.models.fitting.igniter import rounded
from provision.models.performance.colocation import SoloTime, Wave
from provision.models.performance.fitted_networks import fitted_error, relative_errors
from provision.models.performance.measured_segments import BetweenError, MeasuredModel, between

WAVE_SIZES = np.geomspace(1 / 80, 25, 100)
"""The sizes of candidate waves: the number of SMs that the thread blocks of one request fill, as a fraction of the
GPU's SMs.
"""
PULL = 0.01
"""The weight of the penalty that pulls coefficients to 0; it decides between waves that fit the measurements equally
well.
"""


class SoloRuns(NamedTuple):
    """Measured batches of one model alone, as arrays of the same length; throughput is NaN if it was not measured."""

    batch: np.ndarray
    sm_share: np.ndarray
    latency_ms: np.ndarray
    throughput_rps: np.ndarray

    def take(self, which: np.ndarray) -> SoloRuns:
        """The runs that a mask or indices select."""
        return SoloRuns(*(axis[which] for axis in self))


def fit_solo(runs: SoloRuns, sms: int) -> SoloTime:
    """The SoloTime with the least sum of squared relative errors, on a GPU with ``sms`` SMs."""
    sizes = WAVE_SIZES * sms
    terms = _terms(runs.batch, runs.sm_share, sizes, sms) / runs.latency_ms[:, None]
    scale = terms.mean(axis=0)
    rows = np.vstack([terms / scale, PULL * np.eye(len(scale))])
    found, _ = nnls(rows, np.r_[np.ones(len(terms)), np.zeros(len(scale))], maxiter=100 * len(scale))
    fixed, request, fixed_work, request_work, *heights = (rounded(value) for value in found / scale)
    return SoloTime(
        fixed_ms=fixed,
        request_ms=request,
        fixed_work_ms=fixed_work,
        request_work_ms=request_work,
        waves=tuple(
            Wave(sms_per_request=rounded(size), ms=height)
            for size, height in zip(sizes, heights, strict=True)
            if height > 0
        ),
    )


def overlap_ms(runs: SoloRuns) -> float:
    """The time per request in which a batch overlaps with the next batch, in ms: the median over the runs; 0 if no
    throughput was measured.
    """
    known = ~np.isnan(runs.throughput_rps)
    if not known.any():
        return 0.0
    overlap = runs.latency_ms / runs.batch - 1000 / runs.throughput_rps
    return rounded(max(np.median(overlap[known]), 0.0))


def _terms(batch: np.ndarray, sm_share: np.ndarray, sizes: np.ndarray, sms: int) -> np.ndarray:
    """(runs, terms), the factors of the coefficients of a SoloTime."""
    filled = batch[:, None] * sizes / (sms * sm_share[:, None])
    smooth = [np.ones_like(sm_share), batch, 1 / sm_share, batch / sm_share]
    return np.column_stack([*smooth, np.ceil(filled * (1 - TOLERANCE))])


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
