"""Proposes what a first instance has, and writes its text with comments that explain the values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.hardware.prices import ON_DEMAND, list_prices
from provision.models.performance.catalogue import PerformanceFile, load_performance, shipped_performance
from provision.models.performance.operating_points import OperatingPoints

KINDS = ("measured-segments", "closed-network", "igniter")
"""The kinds of shipped data that need only a rate and an SLO for a model, in the order of preference."""
ROOM = 5.0
"""The proposed SLO as a multiple of the fastest batch time, so that a batch has time to fill and to wait."""

MOST_BATCH = 256
"""The largest batch size that is considered; larger batches are measured only for their throughput."""
WORDS = ("true", "false", "null", "yes", "no", "on", "off")
"""The words that YAML does not read as text."""

TEXT = """\
# Written by provision init. Change what is not so; then:
#   provision solve {path} --out plan.json      the plan, proven
#   provision what-if {path} --vary rate=0.8:1.4:0.1
# provision schema instance has every field there is.
version: 2
name: {name}

# The GPUs there are. price: a provider's list price that ships (provision gpus); or price_per_hour: what you pay.
# count: how many there are at that price; without it, as many as needed. mig: false leaves a GPU whole.
fleet:
{fleet}

# How models behave on them: shipped data, or files beside this one.
performance: [{performance}]

# What is served. slo_ms: the latency that 99 of 100 requests must keep, waiting included; proposed is five times the
# shortest batch, rounded up. rate_rps: requests per second at the peak.
workloads:
{workloads}
"""


@dataclass(frozen=True)
class Served:
    """A workload of the instance that ``provision init`` writes."""

    model: str
    rate_rps: float
    slo_ms: float


def shipped_for(gpu: str) -> PerformanceFile | None:
    """The shipped data of a GPU type that ``provision init`` can use; None if there is none."""
    return min((data for data in _usable() if data.gpu == gpu), key=lambda data: KINDS.index(data.kind), default=None)


def serves(data: PerformanceFile, model: str) -> bool:
    """Whether the data has operating points of a model with batch sizes up to MOST_BATCH."""
    return any((batches <= MOST_BATCH).any() for batches in (points.batch for points in _points(data, model)))


def types_with_data() -> list[str]:
    """The GPU types for which ``provision init`` can write an instance from shipped data alone."""
    return sorted({data.gpu for data in _usable()})


def _usable() -> list[PerformanceFile]:
    """The shipped data that ``provision init`` can use."""
    return [data for data in map(load_performance, shipped_performance()) if data.kind in KINDS]


def proposed(data: PerformanceFile, model: str) -> Served:
    """A proposed workload in round numbers, which the operating point of a model with the shortest batch time can
    carry.
    """
    points = min(_points(data, model), key=lambda points: float(np.min(points.latency_ms)))
    fastest = int(np.argmin(points.latency_ms))
    return Served(model, _round(float(points.throughput_rps[fastest]) / 2, down=True),
                  _round(ROOM * float(points.latency_ms[fastest]), down=False))


def _points(data: PerformanceFile, model: str) -> list[OperatingPoints]:
    """The operating points of a model, for every slice on which it has some."""
    profiles = [WHOLE, *gpu_type(data.gpu).profiles]
    return [points for profile in profiles if len((points := data.operating_points(model, profile)).batch)]


def _round(value: float, down: bool) -> float:
    """The nearest number not above the value (``down``) or not below it that is 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    steps = [power * step for step in (1, 2, 5, 10)]
    return max(one for one in steps if one <= value) if down else min(one for one in steps if one >= value)


def fleet_text(gpu: str, data: Sequence[PerformanceFile]) -> str:
    """The text of a fleet entry: with MIG off if only whole GPUs were measured, and with a list price if one ships."""
    mine = [one for one in data if one.gpu == gpu]
    partitioned = any(len(one.operating_points(model, profile).batch) for one in mine for model in one.models
                      for profile in gpu_type(gpu).profiles)
    mig = ", mig: false" if gpu_type(gpu).mig and mine and not partitioned else ""
    found = [price.provider for price in list_prices(gpu) if price.tier == ON_DEMAND]
    price = f"price: {found[0]}}}" if found else "price_per_hour: 1.00}   # write what it costs you"
    return f"  - {{gpu: {gpu}{mig}, {price}"


def instance_text(path: str, name: str, gpus: Sequence[str], data: Sequence[PerformanceFile], files: Sequence[str],
                  served: Sequence[Served]) -> str:
    """The text of an instance with comments; ``files`` are the names or paths of its performance data."""
    return TEXT.format(
        path=path, name=name, performance=", ".join(files), fleet="\n".join(fleet_text(gpu, data) for gpu in gpus),
        workloads="\n".join(
            f"  - {{name: {_quoted(one.model)}, model: {_quoted(one.model)}, slo_ms: {one.slo_ms:g}, "
            f"rate_rps: {one.rate_rps:g}}}" for one in served
        ),
    )


def _quoted(name: str) -> str:
    """A name as YAML text, in quotes if YAML would read it as something else."""
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    return name if plain.isalnum() and plain[0].isalpha() and plain.lower() not in WORDS else f"'{name}'"
