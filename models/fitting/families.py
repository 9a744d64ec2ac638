"""The families of latency models that can be fitted to a profile, by name."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.fitting import closed_network as fit_closed_network
from provision.models.fitting.design import farthest_points
from provision.models.fitting.latency_models import fit_igniter_slices, fit_lwr, fit_table
from provision.models.fitting.profile_points import Indices, ProfilePoints
from provision.models.performance.catalogue import load_performance
from provision.models.performance.closed_network import ClosedNetwork
from provision.models.performance.fitted_networks import FittedNetworks

KNOWN = "parvagpu-a100"
"""The name of the shipped performance data with closed networks of known DNNs. A new DNN is assumed to resemble them.
"""


class LatencyModel(Protocol):
    """A fitted latency model of any family."""

    def latency_ms(self, batch: Floats, processes: Floats, compute_slices: Floats) -> Floats:
        """Batch latencies, in ms, of points that are given as arrays of the same length."""


FitPoints = Callable[[ProfilePoints, Indices], LatencyModel]
ChoosePoints = Callable[[ProfilePoints, int, Sequence[ClosedNetwork]], Sequence[int] | Ints]


class Family(NamedTuple):
    """A family of models: how it is fitted, and how the points to measure are chosen.

    ``fit(points, fitted)`` returns a LatencyModel; ``choose(points, count, population)`` returns indices of points.
    ``population`` are closed networks of other DNNs.

    iGniter's model is measured at points that are D-optimal for closed networks. These points suit it better than its
    own D-optimal points, since most of its error is due to the model and not to measurement.
    """

    fit: FitPoints
    choose: ChoosePoints


def population(besides: str | None) -> tuple[ClosedNetwork, ...]:
    """The shipped closed networks of all DNNs except ``besides``, since the fit of a DNN must not use its own network.
    """
    models = cast(FittedNetworks, load_performance(KNOWN)).models
    return tuple(model.coefficients for name, model in models.items() if name != besides)


def _alone(fit: Callable[[ProfilePoints], LatencyModel]) -> FitPoints:
    """The fit function of a family that takes only the points to fit."""
    return lambda points, fitted: fit(points.take(fitted))


def _telling(points: ProfilePoints, count: int, population: Sequence[ClosedNetwork]) -> Ints:
    """The indices of D-optimal points, chosen among the points at which every known DNN fits into the memory, if there
    are enough of them. At other points only DNNs that need little memory run, and such DNNs differ from the rest in
    other respects too.
    """
    roomy = np.flatnonzero(fit_closed_network.roomy(points, population))
    candidates = roomy if len(roomy) >= count else np.arange(len(points.batch))
    return candidates[fit_closed_network.choose(points.take(candidates), count, population)]


def _spread_out(points: ProfilePoints, count: int, population: Sequence[ClosedNetwork]) -> list[int]:
    """The indices of points that fill the space of batch sizes, processes and slice sizes evenly; they do not depend on
    the DNN.
    """
    return farthest_points(np.log(np.column_stack(points.where)), count)


FAMILIES = {
    "closed-network": Family(fit_closed_network.fit, _telling),
    "igniter": Family(_alone(fit_igniter_slices), fit_closed_network.choose),
    "lwr": Family(_alone(fit_lwr), _spread_out),
    "table": Family(_alone(fit_table), _spread_out),
}
