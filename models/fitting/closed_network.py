"""Fits a closed network to measured batch latencies, and to the points at which memory ran out."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, least_squares, linprog, milp

from provision.models.base.arrays import Bools, Floats
from provision.models.fitting.design import d_optimal, log_jacobians
from provision.models.fitting.profile_points import Indices, ProfilePoints
from provision.models.performance.closed_network import ClosedNetwork, batch_latency_ms_array

NOISE = 0.04
"""The relative deviation of a measured latency that weighs as much as one standard deviation of the prior."""

WIDENING = 2
"""The factor on the spread of the known DNNs: a new DNN may differ from these by more than they differ among
themselves.
"""

STARTS = 4
SEED = 7
SIGNIFICANT_DIGITS = 6
ENOUGH_POINTS = 5
"""With at least this number of points, the networks of other DNNs are not used as a prior. With fewer points this prior
halves the errors; with more it only makes them larger, most of all for badly chosen points
(``benchmarks/few_points.py``).
"""
LEAST_MEMORY_MARGIN = 1e-3
"""The least relative amount by which the fitted memory need of a point that ran out of memory exceeds the memory that
it had.
"""


class _Broad(NamedTuple):
    """The prior of a coefficient if no other DNN is known: log-normal around ``centre``, within bounds.

    ``centre``, ``low`` and ``high`` are multiples of ``scale``: of 1, of the least measured latency, or of the measured
    GPU work per request.
    """

    centre: float
    spread: float
    low: float
    high: float
    scale: str = "one"


class Prior(NamedTuple):
    """The prior of all latency coefficients: arrays (coefficients,) over their logarithms."""

    centre: Floats
    spread: Floats
    low: Floats
    high: Floats


# Spreads are narrow for coefficients in which DNNs are known to be alike; therefore even few points give a sound model.
_BROAD = {
    "launch_ms": _Broad(1, 2, 1e-2, 10, "latency"),
    "launch_contention": _Broad(0.015, 0.7, 1e-3, 0.2),
    "host_per_item_ms": _Broad(0.05, 1.5, 1e-4, 1e3),
    "gpu_fixed_ms": _Broad(1, 2, 1e-3, 1e2, "work"),
    "gpu_per_item_ms": _Broad(1, 2, 1e-2, 1e2, "work"),
    "batch_exponent": _Broad(0.97, 0.03, 0.8, 1.1),
    "unbatched_ratio": _Broad(1, 0.3, 0.3, 3),
    "bandwidth_share": _Broad(0.4, 0.4, 1e-2, 0.95),
    "unscaled_share": _Broad(0.02, 0.5, 1e-3, 0.5),
    "queueing": _Broad(0.05, 1, 1e-3, 1),
}


def fit(points: ProfilePoints, fitted: Indices | None = None,
        population: Sequence[ClosedNetwork] = ()) -> ClosedNetwork:
    """The closed network that fits measured points best, with rounded coefficients.

    Parameters
    ----------
    points
        The measured points. The memory need is fitted to all of them. If none ran out of memory, the need is taken as
        large as the points permit, so that hardly more is predicted to fit than was seen to fit.
    fitted
        A mask or indices of the points to whose latency the network is fitted; None for all points.
    population
        Closed networks of other DNNs on the same GPU type. They are the prior if fewer than ENOUGH_POINTS points are
        fitted; it may be empty otherwise.

    Returns
    -------
    ClosedNetwork
    """
    chosen = points if fitted is None else points.take(fitted)
    chosen = chosen.take(chosen.measured)
    return ClosedNetwork(
        **_rounded(_latency_coefficients(chosen, prior_of(chosen, population))),
        **_rounded(_memory_coefficients(points.batch, points.slice_memory_gib / points.processes, points.measured)),
        max_batch=int(chosen.batch.max()),
        max_processes=int(chosen.processes.max()),
    )


def prior_of(points: ProfilePoints, population: Sequence[ClosedNetwork] = ()) -> Prior:
    """The prior of a fit to some points: the networks of a population if the points are few, otherwise a broad one."""
    broad = _broad_prior(points)
    if not population or len(points.batch) >= ENOUGH_POINTS:
        return broad
    centre, spread = population_prior(population)
    return broad._replace(centre=centre, spread=spread)


def population_prior(population: Sequence[ClosedNetwork]) -> tuple[Floats, Floats]:
    """(centre, spread), the prior mean and standard deviation of the logarithms of a new DNN's latency coefficients,
    from the networks of other DNNs.
    """
    logs = network_logs(population)
    return logs.mean(axis=0), WIDENING * logs.std(axis=0, ddof=1)


def choose(points: ProfilePoints, count: int, population: Sequence[ClosedNetwork]) -> list[int]:
    """The indices of the ``count`` points to measure for a DNN that is assumed to resemble a population, by a D-optimal
    design.
    """

    def latency_ms(logs: Floats) -> Floats:
        return latency_of_logs(logs, points)

    _, spread = population_prior(population)
    return d_optimal(log_jacobians(latency_ms, network_logs(population), spread), count)


def roomy(points: ProfilePoints, population: Sequence[ClosedNetwork]) -> Bools:
    """(points,), the mask of the points at which every network of a population fits into the memory."""
    needed_gib = [network.memory_gib(points.batch, points.processes) for network in population]
    return np.max(needed_gib, axis=0) <= points.slice_memory_gib


def network_logs(networks: Sequence[ClosedNetwork]) -> Floats:
    """(networks, coefficients), the logarithms of the latency coefficients of closed networks."""
    return np.log([[getattr(network, name) for name in _BROAD] for network in networks])


def latency_of_logs(logs: Floats, points: ProfilePoints) -> Floats:
    """(points,), batch latencies in ms, from the logarithms of the coefficients."""
    return batch_latency_ms_array(_named(logs), *points.where)


def _latency_coefficients(points: ProfilePoints, prior: Prior) -> dict[str, float]:
    """The latency coefficients by name, by robust least squares on logarithms; the best result of several starts."""

    def residuals(logs: Floats) -> Floats:
        predicted_ms = latency_of_logs(logs, points)
        deviation = np.log(predicted_ms / points.latency_ms) / NOISE
        return np.concatenate([deviation, (logs - prior.centre) / prior.spread])

    def solve(start: Floats) -> Any:
        inside = np.clip(start, prior.low + 1e-3, prior.high - 1e-3)
        return least_squares(
            residuals, inside, bounds=(prior.low, prior.high), loss="soft_l1", x_scale=prior.spread
        )

    random = np.random.default_rng(SEED)
    shifts = [np.zeros(len(_BROAD)), *random.uniform(-1, 1, (STARTS - 1, len(_BROAD)))]
    solutions = [solve(prior.centre + prior.spread * shift) for shift in shifts]
    return vars(_named(min(solutions, key=lambda solution: solution.cost).x))


def _broad_prior(points: ProfilePoints) -> Prior:
    """The prior if no other DNNs are known. It takes its scales from the measurements: 1, the least latency (ms), or
    the median GPU work per request on one GPC (ms); see ``_Broad``.
    """
    work_ms = points.latency_ms * points.compute_slices / (points.processes * points.batch)
    scales = {"one": 1.0, "latency": points.latency_ms.min(), "work": np.median(work_ms)}
    unit = np.log([scales[broad.scale] for broad in _BROAD.values()])
    centre, low, high = unit + np.log([(broad.centre, broad.low, broad.high) for broad in _BROAD.values()]).T
    return Prior(centre, np.array([broad.spread for broad in _BROAD.values()]), low, high)


def _named(logs: Floats) -> SimpleNamespace:
    """An object with the coefficients as attributes, from their logarithms."""
    return SimpleNamespace(**dict(zip(_BROAD, np.exp(logs), strict=True)))


def _memory_coefficients(batch: Floats, memory_gib: Floats, valid: Bools) -> dict[str, float]:
    """The memory coefficients by name, from the memory that each process had and whether it was enough.

    A mixed-integer program finds them. Every point that ran out of memory must need more than it had. As few valid
    points as possible need more than they had. Among the solutions with this number, the solution with the widest
    relative margin between need and memory is taken.
    """
    count, points = valid.sum(), len(batch)
    if valid.all():
        return _most_memory(batch, memory_gib)
    # The variables are the fixed need, the need per request, the margin, and for each valid point whether it needs more
    # than it had.
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
    return _memory(*np.asarray(solution.x)[:2])


def _most_memory(batch: Floats, memory_gib: Floats) -> dict[str, float]:
    """The coefficients of the largest memory need that is below ``memory_gib`` at every batch, by a linear program."""
    need = np.column_stack([np.ones(len(batch)), batch])
    solution = linprog(-need.sum(axis=0), A_ub=need, b_ub=(1 - LEAST_MEMORY_MARGIN) * memory_gib)
    return _memory(*np.asarray(solution.x))


def _memory(fixed_gib: float, per_item_gib: float) -> dict[str, float]:
    return {"memory_fixed_gib": max(fixed_gib, 0), "memory_per_item_gib": max(per_item_gib, 0)}


def _rounded(coefficients: Mapping[str, float]) -> dict[str, float]:
    """Coefficients rounded to their significant digits."""
    return {name: float(f"{value:.{SIGNIFICANT_DIGITS}g}") for name, value in coefficients.items()}
