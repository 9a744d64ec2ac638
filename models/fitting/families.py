"""The families of latency models that a profile can be fitted with, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.fitting import closed_network as fit_closed_network
from provision.models.fitting import igniter_slices, interpolated_table, lwr
from provision.models.fitting.design import farthest_points
from provision.models.fitting.profile_points import Indices, ProfilePoints
from provision.models.performance.catalogue import load_performance
from provision.models.performance.closed_network import ClosedNetwork
from provision.models.performance.fitted_networks import FittedNetworks

KNOWN = "parvagpu-a100"
"""Shipped closed networks of the DNNs that a new one is supposed to resemble."""


class LatencyModel(Protocol):
    """A fitted model, whatever its family."""

    def latency_ms(self, batch: Floats, processes: Floats, compute_slices: Floats) -> Floats:
        """Batch latencies, in ms, of points given as arrays of one length."""


FitPoints = Callable[[ProfilePoints, Indices, Sequence[ClosedNetwork]], LatencyModel]
ChoosePoints = Callable[[ProfilePoints, int, Sequence[ClosedNetwork]], Sequence[int] | Ints]


class Family(NamedTuple):
    """How a family is fitted and where it is measured.

    iGniter's is measured at points that are D-optimal for closed networks: they suit it better than those that are
    D-optimal for itself, since most of its error is not one of measurement.

    ``fit(points, fitted, population)`` gives an object with ``latency_ms(batch, processes, compute_slices)`` on
    arrays; ``choose(points, count, population)`` gives indices of points. ``population`` are closed networks
    of other DNNs.
    """

    fit: FitPoints
    choose: ChoosePoints


def population(besides: str | None) -> tuple[ClosedNetwork, ...]:
    """The shipped closed networks of all DNNs but ``besides``: the fit of a DNN must not use its own network."""
    models = cast(FittedNetworks, load_performance(KNOWN)).models
    return tuple(model.coefficients for name, model in models.items() if name != besides)


def _alone(fit: Callable[[ProfilePoints], LatencyModel]) -> FitPoints:
    """The fit of a family that makes no use of what is known of other DNNs."""
    return lambda points, fitted, population: fit(points.take(fitted))


def _telling(points: ProfilePoints, count: int, population: Sequence[ClosedNetwork]) -> Ints:
    """D-optimal points, chosen where every known DNN fits into memory, if there are enough such points.

    Points beyond these exist only for DNNs that need little memory, and such DNNs differ from the others in more.
    """
    roomy = np.flatnonzero(fit_closed_network.roomy(points, population))
    candidates = roomy if len(roomy) >= count else np.arange(len(points.batch))
    return candidates[fit_closed_network.choose(points.take(candidates), count, population)]


def _spread_out(points: ProfilePoints, count: int, population: Sequence[ClosedNetwork]) -> list[int]:
    """Points that fill the space of batches, processes and slice sizes evenly; the DNN makes no difference."""
    return farthest_points(np.log(np.column_stack(points.where)), count)


FAMILIES = {
    "closed-network": Family(fit_closed_network.fit, _telling),
    "igniter": Family(_alone(igniter_slices.fit), fit_closed_network.choose),
    "lwr": Family(_alone(lwr.fit), _spread_out),
    "table": Family(_alone(interpolated_table.fit), _spread_out),
}
