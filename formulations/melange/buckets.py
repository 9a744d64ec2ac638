"""Sorts requests into buckets by the tokens of prompt and output. Mélange profiles buckets and assigns them to GPU
types.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.performance.tokens.lengths import RequestTokens
from provision.models.performance.tokens.loads import TokenCounts

BASE = 4.0
"""The ratio of the ends of a bin: bins reach from one power of this number of tokens to the next."""
FEWEST = 64.0
"""Lengths below this number of tokens are in the first bin."""
LEVELS = (np.arange(10_000) + 0.5) / 10_000


class Bucket(NamedTuple):
    """A bucket: the mean prompt and output tokens of its requests, and the fraction of all requests that are in it."""

    prompt: float
    output: float
    share: float


def buckets_of(tokens: RequestTokens) -> list[Bucket]:
    """The buckets that have requests. Prompt and output lengths are independent, so the share of a bucket is the
    product of the shares of its two bins.
    """
    prompts, outputs = (_bins(one.counts) for one in (tokens.input, tokens.output))
    return [Bucket(prompt, output, before * after) for (prompt, before), (output, after) in product(prompts, outputs)]


def _bins(counts: TokenCounts) -> list[tuple[float, float]]:
    """Pairs (mean tokens, fraction of the requests) for all bins that have requests."""
    tokens = np.maximum(np.interp(LEVELS, counts.levels, counts.tokens), 1.0)
    bins = bin_of(tokens)
    return [(float(tokens[bins == one].mean()), float((bins == one).mean())) for one in np.unique(bins)]


def bin_of(tokens: Floats) -> Ints:
    """The index of the bin of each number of tokens, in the shape of ``tokens``."""
    return np.floor(np.log(np.maximum(tokens, FEWEST)) / np.log(BASE) + 1e-9).astype(int)
