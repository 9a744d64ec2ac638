"""Writes fits as performance data that instances can name; not every family of models has a kind of file."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from provision.models.base.arrays import Ints
from provision.models.base.errors import InputError
from provision.models.fitting.left_out import network_errors, unseen
from provision.models.fitting.profile import Fit
from provision.models.fitting.profile_points import ProfilePoints
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.bands import ErrorBands
from provision.models.performance.closed_network import ClosedNetwork
from provision.models.performance.fitted_networks import FittedModel, FittedNetworks, fitted_error
from provision.models.performance.measured_segments import MeasuredModel, MeasuredPoint, MeasuredSegments

REFUSED = {
    "igniter": "an igniter file also needs power, clock, L2 and PCIe, which are not in these tables; measure them and "
    "use `provision import igniter`, or fit --model closed-network",
    "lwr": "instances know no locally weighted regressions; fit --model closed-network or table",
}
"""For every family that has no kind of file, the reason and an alternative."""

NOT_FITTED = "The measured points that were not fitted."
LEFT_OUT = "All points; those of some pairs (slice type, batch size) were left out of a fit in turn."
"""A note in files: on which points the errors by slice type and batch size were computed."""


def check_kind(family: str) -> None:
    """Raise InputError if there is no kind of performance data for a family."""
    if family in REFUSED:
        raise InputError(f"--model {family} has no file to write: {REFUSED[family]}")


def performance_data(family: str, profiles: Mapping[str, tuple[Sequence[tuple[str, int, int]], ProfilePoints]],
                     fits: Mapping[str, Fit], **about: Any) -> FittedNetworks | MeasuredSegments:
    """Make performance data from the fits of several DNNs.

    Parameters
    ----------
    family
        ``closed-network`` or ``table``; a table contains the fitted points as they were measured.
    profiles, fits
        The points of every DNN, as keys (profile, batch, processes) and ProfilePoints; and the Fit of every DNN.
    about
        ``name``, ``gpu``, ``source`` and other fields of the file.

    Returns
    -------
    FittedNetworks or MeasuredSegments
    """
    check_kind(family)
    if family == "table":
        models = {dnn: _measured(*profiles[dnn], fit.fitted) for dnn, fit in fits.items()}
        return MeasuredSegments(version=1, kind="measured-segments", models=models, **about)
    networks = {dnn: cast("ClosedNetwork", fit.model) for dnn, fit in fits.items()}
    batches = _batches(max(network.max_batch for network in networks.values()))
    offered = tuple(dict.fromkeys(key[0] for keys, _ in profiles.values() for key in keys))
    errors = {dnn: network_errors(gpu_type(about["gpu"]), [key[0] for key in keys], points, fits[dnn], batches, offered)
              for dnn, (keys, points) in profiles.items()}
    return FittedNetworks(
        version=1,
        kind="closed-network",
        profiles=offered,
        batches=batches,
        bands=ErrorBands(source=NOT_FITTED if all(map(unseen, fits.values())) else LEFT_OUT,
                         command=about.get("command", ""), models=errors),
        models={
            dnn: FittedModel(coefficients=networks[dnn], error=fitted_error(fit.errors)) for dnn, fit in fits.items()
        },
        **about,
    )


def _batches(largest: int) -> list[int]:
    """The batch sizes of a file, in ascending order: powers of two and 1.5 times these, up to the largest batch size
    (1, 2, 3, 4, 6, 8, 12, ...), which is included too.
    """
    powers = 2 ** np.arange(int(largest).bit_length())
    grid = {*powers.tolist(), *(3 * powers).tolist(), largest}
    return sorted(batch for batch in grid if batch <= largest)


def _measured(keys: Sequence[tuple[str, int, int]], points: ProfilePoints, rows: Ints) -> MeasuredModel:
    """The measured points ``rows`` of one DNN as a table."""
    table = []
    for row in rows:
        (profile, batch, processes), latency_ms = keys[row], float(points.latency_ms[row])
        table.append(MeasuredPoint(profile, batch, processes, 1000 * batch * processes / latency_ms, latency_ms))
    return MeasuredModel(points=table)
