"""Computes the errors of fits on points to which they were not fitted, by slice type, batch size and SM share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.fitting.few_points import FewPoints, fit_few, spread_around
from provision.models.fitting.profile_points import ProfilePoints, profile_points
from provision.models.hardware.gpu import GpuType
from provision.models.performance.bands import LEVELS, NORMAL, SeenErrors
from provision.models.performance.closed_network import ClosedNetwork

if TYPE_CHECKING:
    from provision.models.fitting.profile import Fit

BATCHES = ((1, 1), (2, 8), (9, 32), (33, 10**6))
SM_SHARES = ((1e-6, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0))
"""The ranges of batch sizes and of SM shares that have separate distributions of errors. A share on a border belongs to
both ranges.
"""
BORDER = 1e-9
"""The distance from a border at which a share still counts as on it."""
LEAST_POINTS = 20
"""The least number of points with which a range or a slice type gets a distribution of its own. With fewer points, the
quantiles at 5 and 95 % would lie outside of the measured errors.
"""
MANY_POINTS, FEW_FOLDS, MANY_FOLDS = 40, 5, 10
"""Fits to more than MANY_POINTS points are judged with FEW_FOLDS folds, others with MANY_FOLDS, since each of few
points matters more.
"""
PRIOR_POINTS = 10
"""The number of points as which predicted deviations count beside the scores of a fit. This number was chosen on every
second DNN of ParvaGPU's tables, after the form of the rule had been chosen on all of them
(``benchmarks/few_points.py --designs`` judges it on all).
"""


def distributions(logs: Floats, batch: Floats, sm_share: Floats | None = None, beside: bool | None = None
                  ) -> tuple[SeenErrors, ...]:
    """The distributions of errors: over all points, by range of batch sizes, and by range of SM shares.

    Parameters
    ----------
    logs
        (points,), the logarithms of the ratios of measured to predicted times, at points that the fit did not use.
    batch, sm_share
        (points,), their batch sizes and SM shares; no SM shares if the GPU was not divided.
    beside
        Whether the replicas ran beside others; None if the performance data describe only replicas alone.
    """
    parts: list[tuple[dict[str, Any], Bools]] = [({}, np.ones(len(logs), bool))]
    parts += [({"batches": one}, (batch >= one[0]) & (batch <= one[1])) for one in BATCHES]
    if sm_share is not None:
        parts += [({"sm_shares": one}, (sm_share >= one[0] - BORDER) & (sm_share <= one[1] + BORDER))
                  for one in SM_SHARES]
    return tuple(SeenErrors(**where, beside=beside, points=int(inside.sum()), quantiles=quantiles(logs[inside]))
                 for where, inside in parts if not where or inside.sum() >= LEAST_POINTS)


def quantiles(logs: Floats) -> tuple[float, ...]:
    """The quantiles of ratios at LEVELS, from the logarithms of at least two ratios.

    A level beyond the sample has the quantile of Student's t distribution, but at least as extreme as the most extreme
    ratio.
    """
    count, middle, deviation = len(logs), logs.mean(), logs.std(ddof=1) * np.sqrt(1 + 1 / len(logs))
    ends = middle + deviation * student.ppf(LEVELS, count - 1)
    return _ratios([_quantile(logs, level, min(logs.min(), end) if level < 0.5 else max(logs.max(), end))
                    for level, end in zip(LEVELS, ends.tolist(), strict=True)])


def _quantile(sample: Floats, level: float, beyond: float) -> float:
    """The quantile of a sample at a level; ``beyond`` if the level is not within the sample (Weibull's positions)."""
    within = 1 <= (len(sample) + 1) * level <= len(sample)
    return float(np.quantile(sample, level, method="weibull") if within else beyond)


def network_errors(gpu: GpuType, profiles: Sequence[str], points: ProfilePoints, fit: Fit, batches: Sequence[int],
                   offered: Sequence[str] = ()) -> tuple[SeenErrors, ...]:
    """The distributions of the errors of a closed network: over all points, by slice type, by range of batch sizes.

    The network is judged by the measured points to which it was not fitted. If there are none, it is judged by
    cross-validation: the points of some pairs (slice type, batch size) are left out in turn. The errors are divided by
    the deviations that the fit predicts at these points (`few_points`), and multiplied by its deviations at the
    operating points of a slice type, or of a range of batch sizes. So a fit that saw few points near some slice type
    has wide bands there.

    Parameters
    ----------
    gpu
        The GPU type.
    profiles
        (points,), the profile of every point.
    points, fit
        All points, and the closed network fitted to some of them.
    batches
        The batch sizes of the performance data.
    offered
        The profiles of the performance data; by default those of the points.
    """
    network, judged = cast("ClosedNetwork", fit.model), fit.judged if unseen(fit) else fit.fitted
    fitted = spread_around(network, points, fit.fitted)
    scores = _scores(fitted, points.take(judged)) if unseen(fit) else _cross_validated(points, fit.fitted, judged)
    profile = np.asarray(profiles)
    names = offered or tuple(dict.fromkeys(profiles))
    grid_profile, grid = _grid(gpu, names, network, batches)
    deviations = fitted.deviations(grid)
    near = points.batch[judged]
    places: list[tuple[dict[str, Any], Bools, Bools]] = [({}, profile[judged] != "", grid_profile != "")]
    places += [({"profile": name}, profile[judged] == name, grid_profile == name) for name in names]
    places += [({"batches": one}, (near >= one[0]) & (near <= one[1]), (grid.batch >= one[0]) & (grid.batch <= one[1]))
               for one in BATCHES]
    found = []
    for where, seen, there in places:
        if there.any():
            some = scores[seen] if seen.sum() >= LEAST_POINTS else scores
            found.append(SeenErrors(**where, points=len(some), quantiles=_scaled(some, deviations[there])))
    return tuple(found)


def unseen(fit: Fit) -> bool:
    """Whether a fit is judged on points to which it was not fitted."""
    return not np.intersect1d(fit.judged, fit.fitted).size


def _scores(fitted: FewPoints, apart: ProfilePoints) -> Floats:
    """(points,) the log errors at points left out of a fit, in units of the deviations that the fit predicts there."""
    return np.log(apart.latency_ms / fitted.latency_ms(apart)) / fitted.deviations(apart)


def _cross_validated(points: ProfilePoints, fitted: Ints, judged: Ints) -> Floats:
    """(judged,), the scores of points, each by a fit that used no point of its slice type and batch size."""
    cells = np.column_stack([points.compute_slices, points.batch])[judged]
    different, cell = np.unique(cells, axis=0, return_inverse=True)
    folds, scores = min(FEW_FOLDS if len(judged) > MANY_POINTS else MANY_FOLDS, len(different)), np.empty(len(judged))
    for one in range(folds):
        left = cell.ravel() % folds == one
        scores[left] = _scores(fit_few(points, np.setdiff1d(fitted, judged[left])), points.take(judged[left]))
    return scores


def _scaled(scores: Floats, deviations: Floats) -> tuple[float, ...]:
    """The quantiles, at LEVELS, of measured over predicted latency at operating points with these deviations.

    Their logarithms are the quantiles of the scores, times the root mean square of the deviations. For a level beyond
    the scores, these count as normal with mean 0. Their variance is the mean square of them and of PRIOR_POINTS further
    ones with a mean square of 1.
    """
    typical = math.sqrt(np.mean(deviations**2))
    spread = math.sqrt((PRIOR_POINTS + np.sum(scores**2)) / (PRIOR_POINTS + len(scores)))
    return _ratios([typical * _quantile(scores, level, spread * NORMAL.inv_cdf(level)) for level in LEVELS])


def _ratios(logs: Sequence[float]) -> tuple[float, ...]:
    """Rounded ratios in ascending order, from their logarithms."""
    return tuple(round(math.exp(one), 4) for one in np.maximum.accumulate(logs).tolist())


def _grid(gpu: GpuType, profiles: Sequence[str], network: ClosedNetwork, batches: Sequence[int]
          ) -> tuple[NDArray[np.str_], ProfilePoints]:
    """(profiles, points) of all operating points of a fitted network that fit into the memory."""
    keys = [(name, batch, processes) for name in profiles for batch in batches if batch <= network.max_batch
            for processes in range(1, network.max_processes + 1)]
    points = profile_points(gpu, keys, np.full(len(keys), np.nan))
    fits = network.memory_gib(points.batch, points.processes) <= points.slice_memory_gib
    return np.array([key[0] for key in keys])[fits], points.take(fits)
