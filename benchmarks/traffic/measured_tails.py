"""P99 of serving stations from their throughput, by constants calibrated on measured ones: MLPerf's server scenario.

A station is as many devices with as many processes as its configuration says. Two queues are replayed with Poisson
arrivals: one for all devices, and one for each device with its share of the arrivals. Harnesses stand between the two,
so their geometric mean is taken. Of a full batch's time every batch takes the model's ``fixed_share``; the rest is in
proportion to its size. What a queue does not know (requests of unequal length, work around a batch, what neighbours on
MIG slices take, configurations that differ from that of the throughput run) is calibrated per model:

    P99 = margin * (stretch * queue's P99 + overhead)

Constants come from ``mlperf-v1.1.yaml``, where their source stands. They are an upper envelope of what was
measured. Where the overhead makes up most of a prediction they say little about other loads: measure there.
"""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import yaml
from pydantic import Field
from stations import answers

from provision.models.base.fields import Name, NonNegative, Positive, PositiveCount, Record, Text

REQUESTS = (150_000, 600_000)
"""Fewest and most requests of a replay, in between ``BATCHES`` full batches."""

BATCHES = 4000

WARM_UP = 0.05
"""The part of a replay, at its beginning, that is not counted."""

SEED = 1


class Station(NamedTuple):
    """A serving station: ``rate_rps`` arrive at all its ``devices`` together, which serve up to ``full_rps``."""

    devices: int
    processes: int
    batch: int
    delay_ms: float
    rate_rps: float
    full_rps: float


class Tail(Record):
    """How a model's P99 follows from the queue's: ``stretch`` times it, and ``overhead_ms`` more.

    ``fixed_share`` is the part of a full batch's time that every batch takes, whatever its size.
    """

    fixed_share: Annotated[float, Field(ge=0, le=1)]
    stretch: Positive
    overhead_ms: NonNegative


class MeasuredTails(Record):
    """The calibrated constants and where they come from.

    Attributes
    ----------
    source, licence
        Of the measurements.
    margin
        Factor on every prediction, for models that were calibrated on few systems.
    largest_batch
        By model, the largest batch of a system that it was calibrated on. Of larger ones nothing is known.
    unknown
        The Tail of models that were not measured.
    items_per_request
        Of models whose batch size counts items, of which a request has so many on average.
    models
        The Tail of a model, from all systems.
    without
        By system, the same from all other systems: what is known about a system before it is measured.
    """

    source: Text
    licence: Text
    margin: Positive
    largest_batch: dict[Name, PositiveCount]
    unknown: Tail
    items_per_request: dict[Name, Positive]
    models: dict[Name, Tail]
    without: dict[Name, dict[Name, Tail]]

    def tail(self, model: str, system: str | None = None) -> Tail:
        """The Tail of a model, from measurements of other systems than the one named."""
        known = self.without.get(system, self.models) if system else self.models
        return known.get(family(model), self.unknown)

    def p99_ms(self, station: Station, model: str, system: str | None = None) -> float:
        """P99 of the latency of a station's requests, in ms; infinite where its batch is larger than any calibrated on.

        Parameters
        ----------
        station
            Its ``batch`` counts what the model's batches count.
        model
            Name of the model; an accuracy such as ``-99.9`` at its end does not matter.
        system
            Name of the system, whose own measurements are then not used.
        """
        if station.batch > self.largest_batch.get(family(model), math.inf):
            return math.inf
        tail = self.tail(model, system)
        queue_ms = queue_p99_ms(in_requests(station, model, self.items_per_request), tail.fixed_share)
        return self.margin * (tail.stretch * queue_ms + tail.overhead_ms)


def in_requests(station: Station, model: str, items_per_request: Mapping[str, float]) -> Station:
    """The Station with a batch size that counts requests, of which each has so many items."""
    return station._replace(batch=max(1, int(station.batch / items_per_request.get(family(model), 1.0))))


def family(model: str) -> str:
    """The name of a model without the accuracy that MLPerf asks of it."""
    return model.split("-99")[0]


@cache
def shipped_tails() -> MeasuredTails:
    """The constants that the package ships."""
    text = Path(__file__).with_name("mlperf-v1.1.yaml").read_text()
    return MeasuredTails.model_validate(yaml.safe_load(text))


def queue_p99_ms(station: Station, fixed_share: float) -> float:
    """P99 at a station whose batches count requests: between one queue for all devices and one for each, in ms.

    Parameters
    ----------
    station
        Its throughput is that of full batches.
    fixed_share
        Of a full batch's time, what every batch takes.
    """
    alone = station._replace(
        devices=1, rate_rps=station.rate_rps / station.devices, full_rps=station.full_rps / station.devices
    )
    return math.sqrt(_replayed_p99_ms(station, fixed_share) * _replayed_p99_ms(alone, fixed_share))


def _replayed_p99_ms(station: Station, fixed_share: float) -> float:
    """P99 of one queue before all devices of a station."""
    count = int(np.clip(BATCHES * station.batch, *REQUESTS))
    gaps = np.random.default_rng(SEED).exponential(1000 / station.rate_rps, count)
    arrivals = gaps.cumsum()
    full_ms = 1000 * station.devices * station.batch / station.full_rps
    fixed_ms, per_request_ms = fixed_share * full_ms, (1 - fixed_share) * full_ms / station.batch
    done = answers(
        arrivals, station.devices, station.processes, station.batch, station.delay_ms, fixed_ms, per_request_ms
    )
    return float(np.quantile((done - arrivals)[int(WARM_UP * count) :], 0.99))
