"""Computes how much a known background load slows layers down, by version, and fits a linear proxy for the slowdown.

VELTAIR's proxy is linear in the miss rate and the accesses of L3, which it reads from hardware counters (section 4.3).
Virtual machines rarely have these counters; in these measurements the background load is known instead. Let the
background stream B GB/s, and a layer alone move a GB/s. Then the layer's slowdown is predicted as 1 + u B + v B a.
Least squares on every second row determine u and v; the other rows judge them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from provision.models.cpu.times import LayerTime, LayerTimes

LEAST_ROWS = 8


class LoadProxy(NamedTuple):
    """The fitted proxy: ``weights`` has u and v; ``r_squared`` is measured on the rows left out of the fit."""

    weights: list[float]
    r_squared: float


def slowdowns(times: LayerTimes) -> list[tuple[LayerTime, float]]:
    """The pairs (LayerTime, slowdown) of the rows that were measured beside a load and also alone."""
    alone_ms = {row[:4]: row.median_ms for row in times.times if row.level == 0}
    return [(row, row.median_ms / alone_ms[row[:4]]) for row in times.times if row.level > 0 and row[:4] in alone_ms]


def fit_proxy(times: LayerTimes) -> LoadProxy | None:
    """The LoadProxy fitted to LayerTimes; None if too few rows were measured beside a load."""
    found = slowdowns(times)
    if len(found) < LEAST_ROWS:
        return None
    streamed = np.array([times.gbps[row.level] for row, _ in found])
    own = np.array([times.shapes[row.network][row.layer].bytes * slower / row.median_ms / 1e6 for row, slower in found])
    features, extra = np.stack([streamed, streamed * own], axis=1), np.array([slower for _, slower in found]) - 1
    weights = np.linalg.lstsq(features[::2], extra[::2], rcond=None)[0]
    error = extra[1::2] - features[1::2] @ weights
    return LoadProxy(weights.tolist(), float(1 - error.var() / extra[1::2].var()))


def by_level(times: LayerTimes) -> list[dict[str, Any]]:
    """One row per number of cores and level: how much the load slows layers down, and how much time other versions
    would save.

    ``slowdown`` is the mean slowdown of the versions that are fastest without the load. ``changed`` is the number of
    layers for which another version is fastest under the load, and ``gain`` the time that this version would save.
    ``fastest`` has the number of layers by their fastest version. Among versions that take about equally long, noise
    decides which is fastest; therefore ``changed`` and ``gain`` are upper estimates.
    """
    found: dict[tuple[int, float], list[tuple[float, float, bool, str]]] = {}
    for best in times.fastest.values():
        alone = times.fastest.get((best.network, best.layer, best.cores, 0))
        if alone and (kept_ms := times.median_ms.get((*alone[:4], best.level))):
            one = (kept_ms / alone.median_ms, kept_ms / best.median_ms - 1, best.version != alone.version, best.version)
            found.setdefault((best.cores, best.level), []).append(one)
    return [_at_level(cores, level, times, found[cores, level]) for cores, level in sorted(found)]


def _at_level(
    cores: int, level: float, times: LayerTimes, layers: Sequence[tuple[float, float, bool, str]]
) -> dict[str, Any]:
    slowdown, gain, changed, versions = zip(*layers, strict=True)
    return {
        "cores": cores, "level": level, "gbps": times.gbps.get(level, 0.0), "layers": len(layers),
        "slowdown": fmean(slowdown), "changed": sum(changed), "gain": fmean(gain),
        "fastest": dict(Counter(versions).most_common()),
    }
