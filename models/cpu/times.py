"""Layer times that were measured on a CPU: the file format, and tables made from a file. Layers of the same shape are
measured once, under the name of the first such layer. The background load is a process on its own core that streams
through memory for a fraction of the time, its ``level``; ``gbps`` is the memory traffic that it caused.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from statistics import fmean
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from provision.models.base.fields import Fraction, Name, NonNegative, Number, Positive, PositiveCount, Record, Text
from provision.models.base.fields import Version as FileVersion
from provision.models.cpu.layers import MEASURED_TOKENS, Layer, networks

Level = Annotated[Number, Field(ge=0, le=1)]


class MeasuredCpu(Record):
    """The machine: its CPU, the number of usable cores, the sizes of its caches (None if unknown), and the version of
    PyTorch.
    """

    cpu: Name
    cores: PositiveCount
    l2_mib: Positive | None = None
    l3_mib: Positive | None = None
    torch: Name


class Streaming(Record):
    """The memory traffic of the background load at one level."""

    level: Fraction
    gbps: Positive


class LayerTime(NamedTuple):
    """The time of one version of a layer: the median of its repetitions, and their interquartile range divided by the
    median.
    """

    network: Name
    layer: Name
    version: Name
    cores: PositiveCount
    level: Level
    median_ms: Positive
    spread: NonNegative


class LayerTimes(Record):
    """Measured layers of shipped networks on one machine."""

    version: FileVersion
    kind: Literal["layer-times"]
    source: Text = ""
    machine: MeasuredCpu
    background: tuple[Streaming, ...] = ()
    times: tuple[LayerTime, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _known_layers(self) -> Self:
        for row in self.times:
            if row.network not in self.shapes:
                raise ValueError(f"times: no network {row.network!r} ships; there are {', '.join(self.shapes)}")
            if row.layer not in self.shapes[row.network]:
                raise ValueError(f"times: {row.network} has no layer {row.layer!r}")
        if len(self.median_ms) < len(self.times):
            raise ValueError("times: a layer was measured twice in one version, on as many cores, at one level")
        if not self.fastest_alone:
            raise ValueError("times: no layer was measured alone in all its versions; measure again")
        if unknown := {row.level for row in self.times} - {0, *self.gbps}:
            raise ValueError(f"background: level {min(unknown):g} is missing, which times have")
        return self

    @cached_property
    def shapes(self) -> dict[str, dict[str, Layer]]:
        """The layers of the shipped networks, by network and name."""
        return {name: {layer.name: layer for layer in network.layers}
                for name, network in networks(MEASURED_TOKENS).items()}

    @cached_property
    def median_ms(self) -> dict[tuple[str, str, str, int, float], float]:
        """The median times in ms, by (network, layer, version, cores, level)."""
        return {row[:5]: row.median_ms for row in self.times}

    @cached_property
    def gbps(self) -> dict[float, float]:
        """The memory traffic of the background load in GB/s, by level."""
        return {streaming.level: streaming.gbps for streaming in self.background}

    @cached_property
    def fastest(self) -> dict[tuple[str, str, int, float], LayerTime]:
        """The LayerTime of the fastest version by (network, layer, cores, level), for the keys with which all versions
        were measured.
        """
        versions = Counter(key[:2] for key in {row[:3] for row in self.times})
        rows: dict[tuple[str, str, int, float], list[LayerTime]] = {}
        for row in self.times:
            rows.setdefault((row.network, row.layer, row.cores, row.level), []).append(row)
        return {key: min(several, key=lambda row: row.median_ms)
                for key, several in rows.items() if len(several) == versions[key[:2]]}

    @cached_property
    def fastest_alone(self) -> list[LayerTime]:
        """The LayerTimes of the versions that are fastest without a background load."""
        return [row for (*_, level), row in self.fastest.items() if level == 0]


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


def _at_level(cores: int, level: float, times: LayerTimes,
              layers: Sequence[tuple[float, float, bool, str]]) -> dict[str, Any]:
    slowdown, gain, changed, versions = zip(*layers, strict=True)
    return {
        "cores": cores, "level": level, "gbps": times.gbps.get(level, 0.0), "layers": len(layers),
        "slowdown": fmean(slowdown), "changed": sum(changed), "gain": fmean(gain),
        "fastest": dict(Counter(versions).most_common()),
    }
