"""SLOs of language models: limits on the time to the first token, on the time per further token, and on the time of the
whole answer.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

from pydantic import Field, model_validator

from provision.models.base.fields import Percentile, Positive, Record, absent


def longest_ms(ttft_ms: float, tpot_ms: float, most_tokens: int) -> float:
    """The longest time of an answer of ``most_tokens`` tokens that both limits permit, in ms."""
    return ttft_ms + tpot_ms * max(most_tokens - 1, 1)


class TokenSlo(Record):
    """Limits in ms, as an instance states them; ``percentile`` percent of the requests must keep each limit.

    ``ttft_ms`` limits the time to the first token, ``tpot_ms`` a request's mean time per output token after the first,
    ``e2e_ms`` the time of the whole answer.
    """

    ttft_ms: Positive | None = Field(default=None, exclude_if=absent)
    tpot_ms: Positive | None = Field(default=None, exclude_if=absent)
    e2e_ms: Positive | None = Field(default=None, exclude_if=absent)
    percentile: Percentile | None = Field(default=None, exclude_if=absent)

    @model_validator(mode="after")
    def _limits(self) -> Self:
        if self.ttft_ms is self.tpot_ms is self.e2e_ms is None:
            raise ValueError("an SLO of tokens limits at least one of ttft_ms, tpot_ms, e2e_ms")
        return self


class Limits(NamedTuple):
    """Limits in ms, infinite if there is no limit, and the percentage of the requests that must keep each limit."""

    ttft_ms: float = math.inf
    tpot_ms: float = math.inf
    e2e_ms: float = math.inf
    percentile: float = 99.0

    @property
    def may_be_late(self) -> float:
        """The fraction of the requests that may miss each limit."""
        return 1 - self.percentile / 100

    @property
    def times_ms(self) -> tuple[float, float, float]:
        """(limit on the first token, limit per further token, limit on the whole answer), in ms."""
        return self.ttft_ms, self.tpot_ms, self.e2e_ms

    def scaled(self, factor: float) -> Limits:
        """The limits with all times multiplied by a factor."""
        return Limits(factor * self.ttft_ms, factor * self.tpot_ms, factor * self.e2e_ms, self.percentile)
