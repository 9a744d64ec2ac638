"""How far measured times were from predicted ones: bands, and where a coefficient comes from."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from provision.models.base.fields import Name, Positive, Record


class Band(Record):
    """Measured over predicted, within which nine in ten of the measurements were that no fit had seen."""

    low: Positive
    high: Positive

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.high < self.low:
            raise ValueError(f"high {self.high:g} is below low {self.low:g}; swap them")
        return self

    def wider(self, factor: float) -> Band:
        """The band with both ends so many times farther from 1."""
        return Band(low=self.low / factor, high=self.high * factor)


class TokenBands(Record):
    """Bands of a language model's times, as means over requests: to the first token, and per further one."""

    ttft: Band
    tpot: Band
    source: Name


class Origin(Record):
    """Where a coefficient comes from, and the band of the laws that it was composed of."""

    source: Name
    band: Band
