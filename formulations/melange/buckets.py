"""Requests sorted into buckets by size, the tokens of prompt and answer: what Mélange profiles and deals out."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.performance.tokens.lengths import RequestTokens
from provision.models.performance.tokens.loads import TokenCounts

BASE = 4.0
"""A bucket reaches from a power of this number of tokens to the next one."""
FEWEST = 64.0
"""What is shorter is in the first bucket."""
LEVELS = (np.arange(10_000) + 0.5) / 10_000


class Bucket(NamedTuple):
    """Mean tokens of prompt and answer of the requests in it, and which part of all requests they are."""

    prompt: float
    output: float
    share: float


def buckets_of(tokens: RequestTokens) -> list[Bucket]:
    """The buckets that have requests; prompt and answer are independent, so shares multiply."""
    prompts, outputs = (_bins(one.counts) for one in (tokens.input, tokens.output))
    return [Bucket(prompt, output, before * after) for (prompt, before), (output, after) in product(prompts, outputs)]


def _bins(counts: TokenCounts) -> list[tuple[float, float]]:
    """Mean tokens and share of every bin."""
    tokens = np.maximum(np.interp(LEVELS, counts.levels, counts.tokens), 1.0)
    bins = bin_of(tokens)
    return [(float(tokens[bins == one].mean()), float((bins == one).mean())) for one in np.unique(bins)]


def bin_of(tokens: Floats) -> Ints:
    """Which bin numbers of tokens are in."""
    return np.floor(np.log(np.maximum(tokens, FEWEST)) / np.log(BASE) + 1e-9).astype(int)
