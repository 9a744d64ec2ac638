"""Measured layer times against a roofline: the machine's constants, and how far layers are from what they give.

A layer on c cores takes the longer of its operations over c times the peak and its bytes over c times the bandwidth,
and a time to start. The three constants are found by least squares on the logarithms of the times of the versions
fastest alone. Bytes are counted once; for layers that run again and again the bandwidth is that of a cache.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from provision.models.layers_networks import networks

COMPARED = ("network", "layer", "version", "cores", "measured_ms", "predicted_ms", "error")


class Roofline(NamedTuple):
    """Peak and bandwidth of one core (1/s), and the time to start a layer (s)."""

    core_flops: float
    core_bps: float
    start_s: float

    def time_s(self, work, cores):
        """Predicted times of layers; ``work`` are their operations and their bytes, (2, layers)."""
        return np.max(np.divide(work.T, self[:2]), axis=1) / cores + self.start_s


def fit_roofline(times):
    """The Roofline of LayerTimes."""
    work, cores, took_s = _measured(times)

    def errors(logs):
        return np.log(Roofline(*np.exp(logs)).time_s(work, cores) / took_s)

    best = (work / took_s / cores).max(axis=1)
    return Roofline(*np.exp(least_squares(errors, np.log([*best, took_s.min() / 2])).x).tolist())


def compared(times, roofline):
    """Measured and predicted times of layers in their versions fastest alone: a dict of COMPARED each."""
    work, cores, _ = _measured(times)
    predicted_s = roofline.time_s(work, cores)
    return [
        dict(zip(COMPARED, (*row[:4], row.median_ms, ms, ms / row.median_ms - 1), strict=True))
        for row, ms in zip(times.fastest_alone, (1e3 * predicted_s).tolist(), strict=True)
    ]


def by_network(rows):
    """What ``compared`` found by network and cores: ms of a whole query, mean and 95th percentile of absolute errors.

    Networks of which some layer was not measured have no ms.
    """
    found = []
    for name, cores in dict.fromkeys((row["network"], row["cores"]) for row in rows):
        mine = {row["layer"]: row for row in rows if (row["network"], row["cores"]) == (name, cores)}
        often, errors = Counter(networks()[name].firsts), np.abs([row["error"] for row in mine.values()])
        measured_ms, predicted_ms = (
            sum(mine[layer][column] * often[layer] for layer in often) if set(often) == set(mine) else None
            for column in ("measured_ms", "predicted_ms")
        )
        found.append({"network": name, "cores": cores, "shapes": len(mine),
                      "measured_ms": measured_ms, "predicted_ms": predicted_ms,
                      "mean_error": float(errors.mean()), "p95_error": float(np.percentile(errors, 95))})
    return found


def measured_networks(times):
    """The shipped networks, their layers with the effort that they were measured to take on one core."""
    rows = compared(times, fit_roofline(times))
    effort = {(row["network"], row["layer"]): 1 / (1 + row["error"]) for row in rows if row["cores"] == 1}
    return {
        name: network._replace(layers=tuple(
            layer._replace(effort=effort.get((name, first), 1.0))
            for layer, first in zip(network.layers, network.firsts, strict=True)
        ))
        for name, network in networks().items()
    }


def _measured(times):
    """Of the versions fastest alone: (operations, bytes) of each, cores, and s."""
    rows = times.fastest_alone
    layers = [times.shapes[row.network][row.layer] for row in rows]
    work = np.array([(layer.flops, layer.bytes) for layer in layers], float).T
    return work, np.array([row.cores for row in rows]), np.array([row.median_ms for row in rows]) / 1e3
