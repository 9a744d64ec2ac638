"""Describes how far measured times were from predicted times (bands), and the source of a coefficient."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Annotated, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from provision.models.base.fields import Flag, Fraction, Name, Positive, PositiveCount, Record, Text, absent

NORMAL = NormalDist()
LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)
"""The levels of the quantiles that performance data state of their errors."""
CONFIDENCE = 0.9
"""The probability of a band if nothing else is asked for."""


class Band(Record):
    """An interval for the ratio of measured to predicted times: nine in ten of the measurements that no fit had seen
    were within it.
    """

    low: Positive
    high: Positive

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.high < self.low:
            raise ValueError(f"high {self.high:g} is below low {self.low:g}; swap them")
        return self

    @classmethod
    def of_deviation(cls, deviation: float, confidence: float = CONFIDENCE) -> Self:
        """The band of a lognormal ratio with median 1, from the standard deviation of its logarithm."""
        width = math.exp(NORMAL.inv_cdf((1 + confidence) / 2) * deviation)
        return cls(low=1 / width, high=width)

    def at(self, confidence: float) -> Band:
        """The band with another probability, of the lognormal ratio whose band with CONFIDENCE this is."""
        low, high = math.log(self.low), math.log(self.high)
        half = (high - low) / 2 * NORMAL.inv_cdf((1 + confidence) / 2) / NORMAL.inv_cdf((1 + CONFIDENCE) / 2)
        return Band(low=math.exp((low + high) / 2 - half), high=math.exp((low + high) / 2 + half))

    def wider(self, factor: float) -> Band:
        """The band with its lower end divided and its upper end multiplied by a factor."""
        return Band(low=self.low / factor, high=self.high * factor)


class TokenBands(Record):
    """The bands of a language model's mean times over requests: of the time to the first token, and of the time per
    further token.
    """

    ttft: Band
    tpot: Band
    source: Name


class Origin(Record):
    """The source of a coefficient, and the band of the laws of which it was composed."""

    source: Name
    band: Band


class Spot(NamedTuple):
    """Where a prediction is made: on slices of a profile, for a batch size and an SM share; ``beside`` tells whether
    the replica shares its slice with others.
    """

    profile: str
    batch: int
    sm_share: float = 1.0
    beside: bool = False


class SeenErrors(Record):
    """The distribution of the ratio of measured to predicted times over some points that no fit had seen.

    ``quantiles`` are the quantiles of the ratio at LEVELS, over ``points`` points. The distribution is that of replicas
    on slices of ``profile``, with a batch size in ``batches`` and an SM share in ``sm_shares`` (least and largest
    value), alone or ``beside`` others; of all where a field is absent.
    """

    profile: Name | None = Field(default=None, exclude_if=absent)
    batches: tuple[PositiveCount, PositiveCount] | None = Field(default=None, exclude_if=absent)
    sm_shares: tuple[Fraction, Fraction] | None = Field(default=None, exclude_if=absent)
    beside: Flag | None = Field(default=None, exclude_if=absent)
    points: PositiveCount
    quantiles: Annotated[tuple[Positive, ...], Field(min_length=len(LEVELS), max_length=len(LEVELS))]

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if list(self.quantiles) != sorted(self.quantiles):
            raise ValueError(f"quantiles: must ascend, one for each of the levels {', '.join(map(str, LEVELS))}")
        return self

    def describes(self, spot: Spot) -> bool:
        """Whether the distribution is that of predictions at a spot."""
        return (self.profile in (None, spot.profile) and self.beside in (None, spot.beside)
                and (self.batches is None or self.batches[0] <= spot.batch <= self.batches[1])
                and (self.sm_shares is None or self.sm_shares[0] <= spot.sm_share <= self.sm_shares[1]))

    @property
    def conditions(self) -> int:
        """The number of fields that limit where the distribution holds; ``beside`` does not count."""
        return sum(one is not None for one in (self.profile, self.batches, self.sm_shares))

    def ratio(self, level: float) -> float:
        """The quantile of the ratio at any level. The logarithms of the quantiles are interpolated over the levels'
        quantiles of the standard normal distribution; beyond the outermost level they grow as they do between the
        median and this level.
        """
        normal, logs = np.array([NORMAL.inv_cdf(one) for one in LEVELS]), np.log(self.quantiles)
        asked, middle = NORMAL.inv_cdf(level), len(LEVELS) // 2
        if normal[0] <= asked <= normal[-1]:
            return math.exp(np.interp(asked, normal, logs))
        end = 0 if asked < normal[0] else -1
        slope = (logs[end] - logs[middle]) / (normal[end] - normal[middle])
        return math.exp(logs[middle] + slope * (asked - normal[middle]))

    def band(self, confidence: float) -> Band:
        """The band within which a ratio is with a probability."""
        return Band(low=self.ratio((1 - confidence) / 2), high=self.ratio((1 + confidence) / 2))


class ErrorBands(Record):
    """The errors of a fit as seen on points that were left out of it: their ``source``, the ``command`` that computed
    them, and the distributions by model.
    """

    source: Text
    command: Text
    models: dict[Name, Annotated[tuple[SeenErrors, ...], Field(min_length=1)]]

    def band(self, model: str, spot: Spot, confidence: float) -> Band | None:
        """The band of predictions for a model at a spot: the widest ends of the most specific distributions that
        describe it. None if none does.
        """
        found = [one for one in self.models.get(model, ()) if one.describes(spot)]
        most = max((one.conditions for one in found), default=0)
        bands = [one.band(confidence) for one in found if one.conditions == most]
        return Band(low=min(one.low for one in bands), high=max(one.high for one in bands)) if bands else None

    def overall(self, model: str) -> list[SeenErrors]:
        """The distributions of a model that hold for the most slice types and batch sizes."""
        seen = self.models.get(model, ())
        least = min((one.conditions for one in seen), default=0)
        return [one for one in seen if one.conditions == least]
