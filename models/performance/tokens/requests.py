"""Requests of a language model as instances state them: lengths, prompts that begin alike, and moves of KV caches; and
SLOs: limits on the time to the first token, on the time per further token, and on the time of the whole answer.
"""

from __future__ import annotations

import math
from functools import cached_property
from statistics import NormalDist
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from provision.models.base.fields import NonNegative, Percentile, Positive, PositiveCount, Record, absent, empty
from provision.models.performance.tokens.loads import TokenCounts

MOST_TOKENS = 10**7
"""The most tokens of a request; a larger number is refused as a typing error."""
P99 = NormalDist().inv_cdf(0.99)
MOST_SPREAD = 10.0
"""The largest ratio of P99 to mean that is accepted for a lognormal distribution. Such distributions exist up to a
ratio of 15, but close to it their tail is extremely long."""
LOWEST, HIGHEST = 1e-4, 1 - 1e-4
"""The levels at which the quantile function of a lognormal distribution is cut off."""
STEPS = 200
TAIL = (0.9975, 0.999, 0.9995)
"""Additional levels at which quantiles are tabulated, where the quantile function rises steeply."""

Tokens = Annotated[Positive, Field(ge=1, le=MOST_TOKENS)]


def _one(value: object) -> bool:
    return value == 1


class Bin(NamedTuple):
    """A bar of a histogram: a number of tokens, and the weight of the requests with this number, in any unit."""

    tokens: Tokens
    weight: Positive


class Lengths(Record):
    """A distribution of numbers of tokens, stated in one of five ways.

    ``mean`` alone: all requests have this number. ``mean`` and ``p99``: lognormal, cut at ``max`` if given. ``min`` and
    ``max``: uniform between the two. ``histogram``: pairs of tokens and weight. ``quantiles``: pairs of percent (0 to
    100) and tokens, interpolated linearly.
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
        """The quantile function of the distribution."""
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
        """The largest number of tokens."""
        return math.ceil(self.counts.tokens[-1])

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in type(self).model_fields)))


class SharedPrefix(Record):
    """The part of every prompt that prefix caching finds in the cache, stated in one of two ways. ``tokens``: prompts
    begin with one of ``distinct`` texts of so many tokens, such as system prompts. Each text is in KV memory once, for
    all requests. ``share``: the fraction of every prompt with which an earlier prompt began too, such as the
    conversation so far. Each request then holds all of its own blocks.

    Servers reuse whole blocks, and compute at least the last token of a prompt.
    """

    tokens: Tokens | None = Field(default=None, exclude_if=absent)
    distinct: PositiveCount = Field(default=1, exclude_if=_one)
    share: Annotated[float, Field(gt=0, lt=1)] | None = Field(default=None, exclude_if=absent)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.tokens is None) == (self.share is None):
            raise ValueError("a shared prefix is given by tokens or by share; give one of them")
        if self.share is not None and self.distinct > 1:
            raise ValueError(f"distinct {self.distinct}: is for prefixes of so many tokens; leave it out beside share")
        return self

    def reused(self, prompt: np.ndarray, block: int) -> np.ndarray:
        """The numbers of tokens that are not computed, for prompts with ``prompt`` tokens: whole blocks of ``block``
        tokens.
        """
        begin = np.full_like(prompt, self.tokens) if self.tokens else (self.share or 0.0) * prompt
        return np.asarray(np.minimum(begin, prompt - 1) // block * block, np.int64)

    def shared_blocks(self, prompt: np.ndarray, block: int) -> np.ndarray:
        """The numbers of blocks of prompts that are in memory once for all requests."""
        return self.reused(prompt, block) // block if self.tokens else np.zeros_like(prompt)

    def set_aside(self, block: int) -> int:
        """The number of blocks of memory that hold the prefixes."""
        return self.distinct * int((self.tokens or 0) // block)


class Transfer(Record):
    """The transfer of KV caches from prefill replicas to decode replicas: bandwidth, and size per token.

    The default bandwidth is 200 Gbit/s, the InfiniBand of Splitwise's machines with A100s (Patel et al., ISCA 2024; its
    machines with H100s have 400 Gbit/s). The default size is the size of 16-bit keys and values of Llama-2-70B: 80
    layers of 8 heads of dimension 128. Llama-3.1-8B, with 32 layers, needs 128 KiB.
    """

    gb_per_s: Positive = 25.0
    kv_kib_per_token: NonNegative = 320.0

    @property
    def ms_per_token(self) -> float:
        """The time to transfer the KV cache of one token, in ms."""
        return self.kv_kib_per_token * 1024 / (1e6 * self.gb_per_s)


def _transfer(given: object) -> object:
    """Replace ``true`` in a file by the default Transfer."""
    return (Transfer() if given else None) if isinstance(given, bool) else given


class RequestTokens(Record):
    """The lengths of prompts (``input``) and answers (``output``) in tokens, drawn independently of each other.

    ``disaggregated`` asks for two groups of replicas, one for prompts and one for decoding, and describes the transfer
    between them; each group then is a workload of its own. ``pool`` tells to which of the two groups a workload
    belongs: replicas of ``prefill`` compute prompts and give the first token, and the answer is delayed by
    ``transfer_ms_per_token`` for every token of the prompt; requests of ``decode`` come with their KV cache and first
    token. ``shared_prefix`` describes the part of prompts that the server's prefix cache has; ``input`` counts these
    tokens too.
    """

    input: Lengths
    output: Lengths
    shared_prefix: SharedPrefix | None = Field(default=None, exclude_if=empty)
    disaggregated: Annotated[
        Transfer | None, BeforeValidator(_transfer, json_schema_input_type=bool | Transfer | None)
    ] = Field(default=None, exclude_if=empty)
    pool: Literal["prefill", "decode"] | None = Field(default=None, exclude_if=empty)
    transfer_ms_per_token: NonNegative = Field(default=0.0, exclude_if=empty)

    @model_validator(mode="after")
    def _of_one_pool(self) -> Self:
        if self.pool and self.disaggregated:
            raise ValueError("pool and disaggregated: the pools of a workload are not split again; keep one")
        if self.pool == "prefill" and self.output.most > 1:
            raise ValueError(f"output: a prefill pool gives one token (got {self.output.most}); write mean: 1")
        if self.pool == "decode" and self.shared_prefix:
            raise ValueError("shared_prefix: a decode pool computes no prompts; leave it out")
        return self

    @property
    def cached(self) -> bool:
        """Whether requests come with the KV cache of their prompt and with their first token."""
        return self.pool == "decode"

    @property
    def most(self) -> int:
        """The number of tokens of the longest prompt and the longest answer together."""
        return self.input.most + self.output.most

    @property
    def most_held(self) -> int:
        """The number of tokens of KV memory that the longest request takes together with all shared prefixes except its
        own.
        """
        prefix = self.shared_prefix
        return self.most + (math.ceil((prefix.distinct - 1) * (prefix.tokens or 0)) if prefix else 0)

    def computed_parts(self, block: int) -> tuple[float, float]:
        """(part of the tokens, part of the pairs of tokens) that are computed, for a prompt of mean length."""
        if self.shared_prefix is None:
            return 1.0, 1.0
        mean = max(self.input.counts.mean, 1.0)
        part = float(self.shared_prefix.reused(np.array([mean]), block)[0]) / mean
        return 1 - part, 1 - part**2


WAYS = ({"mean"}, {"mean", "p99"}, {"mean", "p99", "max"}, {"min", "max"}, {"histogram"}, {"quantiles"})


def _lognormal(mean: float, p99: float, most: float) -> TokenCounts:
    """The quantile function of the lognormal distribution with this mean and P99, cut off below 1 token and above
    ``most`` tokens.
    """
    if p99 == mean:
        return TokenCounts.uniform(mean, mean)
    spread = P99 - math.sqrt(P99**2 - 2 * math.log(p99 / mean))
    centre = math.log(mean) - spread**2 / 2
    levels = [0.0, *(step / STEPS for step in range(1, STEPS)), *TAIL, 1.0]
    marks = [NormalDist().inv_cdf(min(max(level, LOWEST), HIGHEST)) for level in levels]
    return TokenCounts(levels=tuple(levels),
                       tokens=tuple(min(max(math.exp(centre + spread * mark), 1.0), most) for mark in marks))


def _binned(bins: tuple[Bin, ...]) -> TokenCounts:
    """The quantile function of a histogram: constant within every bin."""
    ascending, total = sorted(bins), math.fsum(one.weight for one in bins)
    ends = [math.fsum(one.weight for one in ascending[:at]) / total for at in range(len(ascending))] + [1.0]
    return TokenCounts(
        levels=tuple(end for at in range(len(ascending)) for end in ends[at : at + 2]),
        tokens=tuple(float(one.tokens) for one in ascending for _ in range(2)),
    )


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
