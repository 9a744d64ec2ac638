"""Fits a closed network to measured batch latencies and to where memory ran out."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, least_squares, milp

from provision.models.closed_network import ClosedNetwork, batch_latency_ms_array

NOISE = 0.04
"""Relative deviation of a measured latency that counts as much as one prior spread."""

STARTS = 4
SEED = 7
SIGNIFICANT_DIGITS = 6
LEAST_MEMORY_MARGIN = 1e-3
"""Relative excess over its memory that a point out of memory must need at least; rounding keeps it."""


@dataclass(frozen=True)
class FitError:
    """Relative errors of the fitted batch latency over ``points`` measured points."""

    mean: float
    p95: float
    max: float
    points: int


@dataclass(frozen=True)
class _Prior:
    """What a coefficient is before measurements: log-normal around ``centre``, within bounds.

    Centre and bounds are multiples of a ``scale`` of the measurements: of 1, of their least latency, or of
    their GPU work per item.
    """

    centre: float
    spread: float
    low: float
    high: float
    scale: str = "one"


# Spreads are narrow only where DNNs are known to be alike; few points then still give a sound model.
_PRIORS = {
    "launch_ms": _Prior(1, 2, 1e-2, 10, "latency"),
    "launch_contention": _Prior(0.015, 0.7, 1e-3, 0.2),
    "host_per_item_ms": _Prior(0.05, 1.5, 1e-4, 1e3),
    "gpu_fixed_ms": _Prior(1, 2, 1e-3, 1e2, "work"),
    "gpu_per_item_ms": _Prior(1, 2, 1e-2, 1e2, "work"),
    "batch_exponent": _Prior(0.97, 0.03, 0.8, 1.1),
    "unbatched_ratio": _Prior(1, 0.3, 0.3, 3),
    "bandwidth_share": _Prior(0.4, 0.4, 1e-2, 0.95),
    "unscaled_share": _Prior(0.02, 0.5, 1e-3, 0.5),
    "queueing": _Prior(0.05, 1, 1e-3, 1),
}


def fit(batch, processes, compute_slices, slice_memory_gib, latency_ms):
    """The closed network that fits measured points best, and its errors on them.

    Parameters
    ----------
    batch, processes, compute_slices, slice_memory_gib
        Arrays that describe the points; processes are those that share the slice.
    latency_ms
        Array of batch latencies; NaN where a point ran out of memory. Without such points nothing tells
        how much memory is needed, and the memory coefficients are 0.

    Returns
    -------
    tuple of ClosedNetwork and FitError
        Coefficients are rounded; errors are those of the rounded coefficients.
    """
    batch, processes, compute_slices, slice_memory_gib, latency_ms = (
        np.asarray(axis, float) for axis in (batch, processes, compute_slices, slice_memory_gib, latency_ms)
    )
    valid = ~np.isnan(latency_ms)
    where, measured_ms = (batch[valid], processes[valid], compute_slices[valid]), latency_ms[valid]
    network = ClosedNetwork(
        **_rounded(_latency_coefficients(where, measured_ms)),
        **_rounded(_memory_coefficients(batch, slice_memory_gib / processes, valid)),
        max_batch=int(batch[valid].max()),
        max_processes=int(processes[valid].max()),
    )
    return network, fit_error(network, *where, measured_ms)


def fit_error(network, batch, processes, compute_slices, latency_ms):
    """FitError of a network on valid points, given as arrays like those of ``fit``."""
    errors = np.abs(batch_latency_ms_array(network, batch, processes, compute_slices) / latency_ms - 1)
    mean, p95, worst = errors.mean(), np.percentile(errors, 95), errors.max()
    return FitError(round(float(mean), 5), round(float(p95), 5), round(float(worst), 5), len(errors))


def _latency_coefficients(where, measured_ms):
    """Latency coefficients by name: robust least squares on logarithms, the best of several starts."""
    priors, scales = list(_PRIORS.values()), _scales(*where, measured_ms)
    unit = np.log([scales[prior.scale] for prior in priors])
    spread = np.array([prior.spread for prior in priors])
    centre, low, high = unit + np.log([(prior.centre, prior.low, prior.high) for prior in priors]).T

    def residuals(logs):
        predicted_ms = batch_latency_ms_array(_named(logs), *where)
        return np.concatenate([np.log(predicted_ms / measured_ms) / NOISE, (logs - centre) / spread])

    def solve(start):
        return least_squares(residuals, start, bounds=(low, high), loss="soft_l1", x_scale=spread)

    random = np.random.default_rng(SEED)
    starts = [centre + spread * random.uniform(-1, 1, len(priors)) for _ in range(STARTS - 1)]
    solutions = [solve(np.clip(start, low + 1e-3, high - 1e-3)) for start in (centre, *starts)]
    return vars(_named(min(solutions, key=lambda solution: solution.cost).x))


def _scales(batch, processes, compute_slices, measured_ms):
    """Units of the priors by name: 1, least latency (ms), GPU work per item on one GPC (ms)."""
    work_ms = measured_ms * compute_slices / (processes * batch)
    return {"one": 1.0, "latency": measured_ms.min(), "work": np.median(work_ms)}


def _named(logs):
    """Coefficients as attributes."""
    return SimpleNamespace(**dict(zip(_PRIORS, np.exp(logs), strict=True)))


def _memory_coefficients(batch, memory_gib, valid):
    """Memory coefficients by name from the memory each process had and whether that was enough.

    A mixed-integer program: every point out of memory must need more than it had, as few valid points as
    possible may do so, and the rest decides for the widest relative margin between need and memory.
    """
    count, points = valid.sum(), len(batch)
    # Variables: fixed need, need per item, margin, and for each valid point whether it is given up.
    given_up = np.zeros((points, count))
    given_up[valid] = np.diag(np.full(count, 10 * memory_gib.max()))
    sign = np.where(valid, 1, -1)
    need = np.column_stack([sign, sign * batch, memory_gib, -given_up])
    solution = milp(
        np.concatenate([[0, 0, -0.5], np.ones(count)]),
        constraints=LinearConstraint(need, ub=sign * memory_gib),
        bounds=Bounds([0, 0, LEAST_MEMORY_MARGIN, *np.zeros(count)], [np.inf, np.inf, 1, *np.ones(count)]),
        integrality=[0, 0, 0, *np.ones(count)],
    )
    return dict(zip(("memory_fixed_gib", "memory_per_item_gib"), np.maximum(solution.x[:2], 0), strict=True))


def _rounded(coefficients):
    """Coefficients with the digits worth writing down."""
    return {name: float(f"{value:.{SIGNIFICANT_DIGITS}g}") for name, value in coefficients.items()}
