"""Layer times that were measured on a CPU: the file format, and tables made from a file. Layers of the same shape are
measured once, under the name of the first such layer. The background load is a process on its own core that streams
through memory for a fraction of the time, its ``level``; ``gbps`` is the memory traffic that it caused.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from provision.models.base.fields import Fraction, Name, NonNegative, Number, Positive, PositiveCount, Record, Text
from provision.models.base.fields import Version as FileVersion
from provision.models.cpu.layers import Layer
from provision.models.cpu.networks import MEASURED_TOKENS, networks

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
