"""How many tokens the requests of a workload have, as an instance states it."""

from __future__ import annotations

import math
from functools import cached_property
from statistics import NormalDist
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from provision.models.base.fields import NonNegative, Positive, Record
from provision.models.performance.tokens.loads import TokenCounts

MOST_TOKENS = 10**7
"""More in one request is taken for a slip."""
P99 = NormalDist().inv_cdf(0.99)
MOST_SPREAD = 10.0
"""A lognormal P99 is at most so many times the mean here; up to 15 there is one, with a tail that is then endless."""
LOWEST, HIGHEST = 1e-4, 1 - 1e-4
"""Ends of a lognormal distribution of tokens."""
STEPS = 200
TAIL = (0.9975, 0.999, 0.9995)
"""Further levels where quantiles rise steeply."""

Tokens = Annotated[Positive, Field(ge=1, le=MOST_TOKENS)]


class Bin(NamedTuple):
    """Requests of so many tokens, and how many they are; any unit of weight will do."""

    tokens: Tokens
    weight: Positive


class Lengths(Record):
    """Numbers of tokens, in one of four ways.

    ``mean`` alone: all requests alike. ``mean`` and ``p99``: lognormal, cut at ``max`` where that is given. ``min`` and
    ``max``: all numbers between alike. ``histogram``: pairs of tokens and weight. ``quantiles``: pairs of percent
    (0 to 100) and tokens, linear between them.
    """

    mean: Tokens | None = None
    p99: Tokens | None = None
    min: Tokens | None = None
    max: Tokens | None = None
    histogram: tuple[Bin, ...] = ()
    quantiles: tuple[tuple[Annotated[float, Field(ge=0, le=100)], Tokens], ...] = ()

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = {name for name in type(self).model_fields if getattr(self, name)}
        if given not in WAYS:
            raise ValueError(
                "tokens are given by mean, by mean and p99 (and max), by min and max, by histogram or by quantiles "
                f"(got {', '.join(sorted(given)) or 'nothing'})"
            )
        if self.mean and self.p99 and not self.mean <= self.p99 <= MOST_SPREAD * self.mean:
            raise ValueError(f"p99 {self.p99:g} should be from the mean {self.mean:g} to {MOST_SPREAD:g} times as "
                             "much; give a histogram of what is more spread")
        if self.max and self.max < (self.p99 or self.min or 0):
            raise ValueError(f"max {self.max:g} is below {'p99' if self.p99 else 'min'}; raise it")
        if self.quantiles and (self.quantiles[0][0], self.quantiles[-1][0]) != (0, 100):
            raise ValueError("quantiles should begin at 0 and end at 100 percent; add the fewest and the most tokens")
        self.counts  # noqa: B018 - quantiles that do not ascend are refused now
        return self

    @cached_property
    def counts(self) -> TokenCounts:
        """The quantile function."""
        if self.histogram:
            return _binned(self.histogram)
        if self.quantiles:
            return TokenCounts(levels=tuple(percent / 100 for percent, _ in self.quantiles),
                               tokens=tuple(tokens for _, tokens in self.quantiles))
        if self.min and self.max:
            return TokenCounts.uniform(self.min, self.max)
        assert self.mean is not None
        return _lognormal(self.mean, self.p99 or self.mean, self.max or math.inf)

    @property
    def most(self) -> int:
        """Tokens of the longest."""
        return math.ceil(self.counts.tokens[-1])

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in type(self).model_fields)))


class Transfer(Record):
    """The way of KV caches from replicas that compute prompts to others that decode: bandwidth, and bytes per token.

    By default 200 Gbit/s, the InfiniBand of the machines with A100s of Splitwise (Patel et al., ISCA 2024; twice that
    with H100s), and 16-bit keys and values of Llama-2-70B: 80 layers of 8 heads of 128. Those of Llama-3.1-8B, with 32
    layers, take 128 KiB.
    """

    gb_per_s: Positive = 25.0
    kv_kib_per_token: NonNegative = 320.0

    @property
    def ms_per_token(self) -> float:
        """Time for the KV cache of a token, in ms."""
        return self.kv_kib_per_token * 1024 / (1e6 * self.gb_per_s)


def _transfer(given: object) -> object:
    """``true`` stands for a transfer as it is by default."""
    return (Transfer() if given else None) if isinstance(given, bool) else given


def _not_given(value: object) -> bool:
    return not value


class RequestTokens(Record):
    """Tokens of prompts and of answers; the two are drawn independently of each other.

    ``disaggregated`` asks for two pools of replicas, for prompts and for what follows (`problem.pools` makes two
    workloads of it), and tells the way between them. The workload of a ``pool`` says which one it is. ``prefill``
    replicas compute prompts and give the first token; an answer then takes ``transfer_ms_per_token`` longer for every
    token of the prompt. Requests of ``decode`` come with their KV cache and first token.
    """

    input: Lengths
    output: Lengths
    disaggregated: Annotated[
        Transfer | None, BeforeValidator(_transfer, json_schema_input_type=bool | Transfer | None)
    ] = Field(default=None, exclude_if=_not_given)
    pool: Literal["prefill", "decode"] | None = Field(default=None, exclude_if=_not_given)
    transfer_ms_per_token: NonNegative = Field(default=0.0, exclude_if=_not_given)

    @model_validator(mode="after")
    def _of_one_pool(self) -> Self:
        if self.pool and self.disaggregated:
            raise ValueError("pool and disaggregated: the pools of a workload are not split again; keep one")
        if self.pool == "prefill" and self.output.most > 1:
            raise ValueError(f"output: a prefill pool gives one token (got {self.output.most}); write mean: 1")
        return self

    @property
    def cached(self) -> bool:
        """Whether requests come with the KV cache of their prompt and with their first token."""
        return self.pool == "decode"

    @property
    def most(self) -> int:
        """Tokens of the longest prompt with the longest answer."""
        return self.input.most + self.output.most


WAYS = ({"mean"}, {"mean", "p99"}, {"mean", "p99", "max"}, {"min", "max"}, {"histogram"}, {"quantiles"})


def _lognormal(mean: float, p99: float, most: float) -> TokenCounts:
    """Quantiles of the lognormal distribution with this mean and P99, at least 1 token."""
    if p99 == mean:
        return TokenCounts.uniform(mean, mean)
    spread = P99 - math.sqrt(P99**2 - 2 * math.log(p99 / mean))
    centre = math.log(mean) - spread**2 / 2
    levels = [0.0, *(step / STEPS for step in range(1, STEPS)), *TAIL, 1.0]
    marks = [NormalDist().inv_cdf(min(max(level, LOWEST), HIGHEST)) for level in levels]
    return TokenCounts(levels=tuple(levels),
                       tokens=tuple(min(max(math.exp(centre + spread * mark), 1.0), most) for mark in marks))


def _binned(bins: tuple[Bin, ...]) -> TokenCounts:
    """A quantile function that is constant over every bin."""
    ascending, total = sorted(bins), math.fsum(one.weight for one in bins)
    ends = [math.fsum(one.weight for one in ascending[:at]) / total for at in range(len(ascending))] + [1.0]
    return TokenCounts(
        levels=tuple(end for at in range(len(ascending)) for end in ends[at : at + 2]),
        tokens=tuple(float(one.tokens) for one in ascending for _ in range(2)),
    )
