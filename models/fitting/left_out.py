"""Computes the errors of fits on points to which they were not fitted, by slice type, batch size and SM share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.fitting.closed_network import NOISE
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
HIGH_LEVEL = 0.9
"""A slice type or a range of batch sizes has many operating points, each with a predicted deviation. Its distribution
of errors is made with the quantile of these deviations at this level. With it, 94 % or more of the points left out of
ParvaGPU's tables are within the 90 % bands of fits to 16 badly chosen points (``benchmarks/few_points.py --designs``).
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
    found = [SeenErrors(beside=beside, points=len(logs), quantiles=quantiles(logs))]
    for low, high in BATCHES:
        if (inside := (batch >= low) & (batch <= high)).sum() >= LEAST_POINTS:
            found.append(SeenErrors(batches=(low, high), beside=beside, points=int(inside.sum()),
                                    quantiles=quantiles(logs[inside])))
    if sm_share is None:
        return tuple(found)
    for least, most in SM_SHARES:
        if (inside := (sm_share >= least - BORDER) & (sm_share <= most + BORDER)).sum() >= LEAST_POINTS:
            found.append(SeenErrors(sm_shares=(least, most), beside=beside, points=int(inside.sum()),
                                    quantiles=quantiles(logs[inside])))
    return tuple(found)


def quantiles(logs: Floats) -> tuple[float, ...]:
    """The quantiles of ratios at LEVELS, from the logarithms of at least two ratios.

    A level that lies within the sample (Weibull's positions) has the quantile of the sample. A level beyond it has the
    quantile of Student's t distribution, but at least as extreme as the most extreme ratio.
    """
    return _ratios([_quantile(logs, level) for level in LEVELS])


def _quantile(values: Floats, level: float) -> float:
    """The quantile of a distribution at a level, from a sample of it."""
    count = len(values)
    if 1 <= (count + 1) * level <= count:
        return float(np.quantile(values, level, method="weibull"))
    beyond = values.mean() + values.std(ddof=1) * np.sqrt(1 + 1 / count) * student.ppf(level, count - 1)
    return float(min(values.min(), beyond) if level < 0.5 else max(values.max(), beyond))


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
    found = [SeenErrors(points=len(judged), quantiles=_scaled(scores, deviations))]
    for name in names:
        if (there := grid_profile == name).any():
            count, some = _some(scores, profile[judged] == name)
            found.append(SeenErrors(profile=name, points=count, quantiles=_scaled(some, deviations[there])))
    for low, high in BATCHES:
        if (there := (grid.batch >= low) & (grid.batch <= high)).any():
            count, some = _some(scores, (points.batch[judged] >= low) & (points.batch[judged] <= high))
            found.append(SeenErrors(batches=(low, high), points=count, quantiles=_scaled(some, deviations[there])))
    return tuple(found)


def unseen(fit: Fit) -> bool:
    """Whether a fit is judged on points to which it was not fitted."""
    return not np.intersect1d(fit.judged, fit.fitted).size


def _scores(fitted: FewPoints, apart: ProfilePoints) -> Floats:
    """(points,), the errors at points that were left out of a fit, divided by the deviations that this fit predicts
    there.
    """
    return np.log(apart.latency_ms / fitted.latency_ms(apart)) / fitted.deviations(apart)


def _cross_validated(points: ProfilePoints, fitted: Ints, judged: Ints) -> Floats:
    """(judged,), the scores of points, each by a fit that did not use it."""
    scores = np.empty(len(judged))
    for left in _folds(points, judged):
        rest = np.setdiff1d(fitted, judged[left])
        scores[left] = _scores(fit_few(points, rest), points.take(judged[left]))
    return scores


def _folds(points: ProfilePoints, judged: Ints) -> Iterator[Bools]:
    """Yield masks of judged points that are left out together."""
    cells = np.column_stack([points.compute_slices, points.batch])[judged]
    different, cell = np.unique(cells, axis=0, return_inverse=True)
    folds = min(FEW_FOLDS if len(judged) > MANY_POINTS else MANY_FOLDS, len(different))
    for one in range(folds):
        yield cell.ravel() % folds == one


def _some(scores: Floats, there: Bools) -> tuple[int, Floats]:
    """The number of points in a mask, and their scores; of all points if fewer than LEAST_POINTS are in the mask."""
    some = scores[there] if there.sum() >= LEAST_POINTS else scores
    return len(some), some


def _scaled(scores: Floats, deviations: Floats) -> tuple[float, ...]:
    """The quantiles of ratios at operating points with these deviations.

    A deviation has two parts: NOISE, the error of single measurements, and the rest, which is what the fitted points
    leave uncertain. The noise is multiplied by the quantile of the scores. The rest is multiplied by this quantile or
    by that of the normal distribution, whichever is more extreme, since the scores come from points near the fitted
    ones and tell little of the rest.
    """
    beyond = float(np.quantile(deviations, HIGH_LEVEL)) - NOISE
    logs = []
    for level in LEVELS:
        seen, normal = _quantile(scores, level), NORMAL.inv_cdf(level)
        extreme = min(seen, normal) if level < 0.5 else max(seen, normal) if level > 0.5 else seen
        logs.append(seen * NOISE + extreme * beyond)
    return _ratios(logs)


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
