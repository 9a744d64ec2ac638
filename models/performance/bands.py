"""Describes how far measured times were from predicted times (bands), and the source of a coefficient."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from provision.models.base.fields import Name, Positive, Record


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
