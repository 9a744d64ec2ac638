"""Times alone as sums of waves: non-negative least squares over waves of many sizes, which keeps a few of them."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from provision.models.base.tolerances import TOLERANCE
from provision.models.fitting.igniter import rounded
from provision.models.performance.colocation import SoloTime, Wave

WAVE_SIZES = np.geomspace(1 / 80, 25, 100)
"""Waves on offer: thread blocks of one request in whole GPUs."""
PULL = 0.01
"""Pull of every coefficient to 0, in relative error; decides between waves that few measurements do not tell apart."""


class SoloRuns(NamedTuple):
    """Measured batches of one model alone, as arrays of one length; throughput NaN where not measured."""

    batch: np.ndarray
    sm_share: np.ndarray
    latency_ms: np.ndarray
    throughput_rps: np.ndarray

    def take(self, which: np.ndarray) -> "SoloRuns":
        """Those of a mask or of indices."""
        return SoloRuns(*(axis[which] for axis in self))


def fit_solo(runs: SoloRuns, sms: int) -> SoloTime:
    """The SoloTime on a GPU with so many SMs that has the least sum of squared relative errors."""
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
    """The time per request in which a batch overlaps with the next: the median over the runs; 0 where not measured."""
    known = ~np.isnan(runs.throughput_rps)
    if not known.any():
        return 0.0
    overlap = runs.latency_ms / runs.batch - 1000 / runs.throughput_rps
    return rounded(max(np.median(overlap[known]), 0.0))


def _terms(batch: np.ndarray, sm_share: np.ndarray, sizes: np.ndarray, sms: int) -> np.ndarray:
    """(runs, terms): what each coefficient of a SoloTime is multiplied with."""
    filled = batch[:, None] * sizes / (sms * sm_share[:, None])
    smooth = [np.ones_like(sm_share), batch, 1 / sm_share, batch / sm_share]
    return np.column_stack([*smooth, np.ceil(filled * (1 - TOLERANCE))])
