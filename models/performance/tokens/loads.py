"""Describes loads on language models and the latencies measured under them; importers, fits and replays exchange these
records.
"""

from functools import lru_cache
from random import Random
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from provision.models.base.fields import Count, Name, NonNegative, Number, Positive, PositiveCount, Record

SEED = 0


class TokenCounts(Record):
    """The distribution of the number of tokens of requests, as a quantile function that is linear between its points.

    ``levels`` ascend from 0 to 1; ``tokens`` are the quantiles at these levels.
    """

    levels: tuple[NonNegative, ...] = Field(min_length=2)
    tokens: tuple[NonNegative, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _ascending(self) -> "TokenCounts":
        levels, tokens = np.array(self.levels), np.array(self.tokens)
        if len(levels) != len(tokens) or levels[0] != 0 or levels[-1] != 1:
            raise ValueError("token counts need one number of tokens per level, and levels from 0 to 1")
        if (np.diff(levels) < 0).any() or (np.diff(tokens) < 0).any():
            raise ValueError("levels and numbers of tokens must ascend")
        return self

    @classmethod
    def uniform(cls, fewest: float, most: float) -> "TokenCounts":
        """The uniform distribution between two numbers of tokens."""
        return cls(levels=(0.0, 1.0), tokens=(float(fewest), float(most)))

    @property
    def mean(self) -> float:
        """The mean number of tokens."""
        return float(np.trapezoid(self.tokens, self.levels))

    @property
    def mean_square(self) -> float:
        """The mean of the squared numbers of tokens."""
        widths, tokens = np.diff(self.levels), np.array(self.tokens)
        low, high = tokens[:-1], tokens[1:]
        return float(np.sum(widths * (low * low + low * high + high * high)) / 3)

    def sample(self, count: int, seed: int) -> np.ndarray:
        """(count,), numbers of tokens, each at least 1: one from each of ``count`` equally likely parts of the
        distribution, in random order.
        """
        levels = (np.random.default_rng(seed).permutation(count) + 0.5) / count
        return np.maximum(np.rint(np.interp(levels, self.levels, self.tokens)), 1).astype(np.int64)


class TokenDraws(Record):
    """The numbers of tokens of consecutive requests, as a load generator with a known seed drew them.

    They are uniform integers from ``fewest`` to ``most`` of Python's random number generator. After ``cycle`` numbers
    they repeat. The load begins after the first ``skipped`` numbers.
    """

    fewest: PositiveCount
    most: PositiveCount
    seed: Count
    cycle: PositiveCount
    skipped: Count = 0

    @model_validator(mode="after")
    def _ascending(self) -> "TokenDraws":
        if self.most < self.fewest:
            raise ValueError(f"{self.most} tokens at most are fewer than {self.fewest} at least")
        return self

    def sample(self, count: int, seed: int) -> np.ndarray:
        """(count,), the numbers of tokens of the first ``count`` requests; they depend on the field ``seed``, not on
        the argument ``seed``.
        """
        drawn = _drawn(self.fewest, self.most, self.seed, self.cycle)
        return drawn[(self.skipped + np.arange(count)) % self.cycle]


@lru_cache(maxsize=64)
def _drawn(fewest: int, most: int, seed: int, count: int) -> np.ndarray:
    random = Random(seed)
    return np.array([random.randint(fewest, most) for _ in range(count)], np.int64)


class TokenLoad(Record):
    """Requests that clients send to one engine for ``duration_s`` seconds.

    ``closed``: each of ``concurrency`` clients sends a request when its last request is answered. ``constant`` and
    ``poisson``: requests come at ``rate_rps``, after ``burst`` requests at the start. At most ``concurrency`` requests
    are under way; others wait at the clients, and this waiting time is not measured. Requests that end after
    ``duration_s`` do not count.
    """

    arrivals: Literal["closed", "constant", "poisson"]
    rate_rps: Positive | None = None
    concurrency: PositiveCount = 10**9
    burst: Count = 0
    duration_s: Positive
    prompt: TokenCounts | TokenDraws
    output: TokenCounts | TokenDraws

    @model_validator(mode="after")
    def _rated(self) -> "TokenLoad":
        if (self.rate_rps is None) != (self.arrivals == "closed"):
            raise ValueError("a constant or Poisson load has a rate_rps, a closed one has none")
        return self

    def planned_ms(self, count: int, seed: int = SEED) -> np.ndarray:
        """(count,), the times in ms at which clients would send the first ``count`` requests."""
        if self.rate_rps is None:
            return np.zeros(count)
        gap_ms = 1000 / self.rate_rps
        gaps_ms = np.full(count, gap_ms)
        if self.arrivals == "poisson":
            gaps_ms = np.random.default_rng([seed, 2]).exponential(gap_ms, count)
        gaps_ms[: self.burst] = 0.0
        return np.cumsum(gaps_ms)

    def most_requests(self) -> int | None:
        """An upper estimate of the number of requests that are sent while the load lasts; None for a closed load."""
        if self.rate_rps is None:
            return None
        spread = 6 * np.sqrt(self.rate_rps * self.duration_s) if self.arrivals == "poisson" else 0
        return self.burst + int(self.rate_rps * self.duration_s + spread) + 1


class Figures(Record):
    """Measured statistics of one quantity; ``percentiles`` is keyed by percent. A field is None or empty if the source
    lacks it.
    """

    mean: Number | None = None
    std: Number | None = None
    percentiles: dict[float, Number] = Field(default_factory=dict)


class TokenBenchmark(Record):
    """One run of a load generator against a server of a language model; latencies in ms.

    ``ttft`` is the time to the first token. ``itl`` is the mean time between tokens of a request, weighted by tokens;
    ``tpot`` is the same mean weighted by requests. ``e2e`` is the time of whole requests. ``load`` is None if the
    source does not tell how requests were sent.
    """

    name: Name
    model: Name | None = None
    load: TokenLoad | None = None
    rate_rps: NonNegative | None = None
    completed: Count | None = None
    failed: Count | None = None
    unfinished: Count | None = None
    ttft: Figures = Figures()
    itl: Figures = Figures()
    tpot: Figures = Figures()
    e2e: Figures = Figures()
    prompt: Figures = Figures()
    output: Figures = Figures()
