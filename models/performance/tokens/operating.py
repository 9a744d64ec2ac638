"""The highest rate at which a language model keeps its SLO on an engine, under Poisson arrivals.

Found by bisection over replays, on the safe side: every user counts as one that was silent, and a rate is only taken if
an upper confidence bound of the share of late requests stays within the SLO's percentile.
"""

import math

import numpy as np
from pydantic import Field, model_validator
from scipy.stats import t as student

from provision.models.base.fields import Number, Positive, Record
from provision.models.performance.tokens.batching import replay
from provision.models.performance.tokens.loads import TokenCounts
from provision.models.performance.tokens.records import Clients, Engine, request_table
from provision.models.performance.tokens.replays import hiccups_ms
from provision.models.performance.tokens.step import TokenCosts

REQUESTS = 20_000
WARM_UP = 2000
"""Requests at the start of a replay that do not count."""
SEEDS = range(5)
"""Of the replays of one rate. Near saturation whole replays differ, so that only their means are independent."""
CONFIDENCE = 0.99
BISECTIONS = 10
EVERYBODY = Clients(most=10**9, senders=1)


class TokenSlo(Record):
    """Limits in ms that so many percent of the requests keep, all of them: first token, per output token, whole."""

    ttft_ms: Positive | None = None
    tpot_ms: Positive | None = None
    e2e_ms: Positive | None = None
    percentile: Number = Field(default=99.0, gt=0, lt=100)

    @model_validator(mode="after")
    def _limits(self) -> "TokenSlo":
        if self.ttft_ms is self.tpot_ms is self.e2e_ms is None:
            raise ValueError("an SLO of tokens limits at least one of ttft_ms, tpot_ms, e2e_ms")
        return self


def highest_rate_rps(
    prompt: TokenCounts, output: TokenCounts, slo: TokenSlo, engine: Engine, costs: TokenCosts
) -> float:
    """Highest rate found at which the SLO is kept; 0 where not even a single request keeps it.

    Raises
    ------
    InputError
        If a request does not fit the engine's KV memory.
    """

    def kept(rate_rps: float) -> bool:
        replays = (late_requests(rate_rps, prompt, output, slo, engine, costs, seed) for seed in SEEDS)
        return _share_bound([late[WARM_UP:].mean() for late in replays]) <= 1 - slo.percentile / 100

    low, high = 0.0, _first_guess_rps(prompt, output, costs)
    if not kept(high):
        low_tried = high / 2**BISECTIONS
        if not kept(low_tried):
            return 0.0
        low = low_tried
    while low < high and kept(high):
        low, high = high, 2 * high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if kept(middle) else (low, middle)
    return low


def late_requests(
    rate_rps: float,
    prompt: TokenCounts,
    output: TokenCounts,
    slo: TokenSlo,
    engine: Engine,
    costs: TokenCosts,
    seed: int,
) -> np.ndarray:
    """Which of REQUESTS requests that arrive at random miss a limit of the SLO, in order of arrival.

    Raises
    ------
    InputError
        If a request does not fit the engine's KV memory.
    """
    silent = costs._replace(idle=0.0, delivery=costs.delivery + costs.idle)
    gaps_ms = np.random.default_rng([seed, 4]).exponential(1000 / rate_rps, REQUESTS)
    table = request_table(np.cumsum(gaps_ms), prompt.sample(REQUESTS, seed), output.sample(REQUESTS, seed + 1), engine)
    replay(table, engine, silent, EVERYBODY, math.inf)
    ttft_ms = table["first_ms"] - table["sent_ms"] + hiccups_ms(costs, REQUESTS, seed)
    tpot_ms = (table["end_ms"] - table["first_ms"]) / np.maximum(table["output"] - 1, 1)
    limits = ((ttft_ms, slo.ttft_ms), (tpot_ms, slo.tpot_ms), (table["end_ms"] - table["sent_ms"], slo.e2e_ms))
    return np.any([times > limit for times, limit in limits if limit is not None], axis=0)


def _share_bound(shares: list[float]) -> float:
    """Upper confidence bound of a share from independent replays (Law, Simulation Modeling and Analysis)."""
    spread = np.std(shares, ddof=1) / math.sqrt(len(shares))
    return float(np.mean(shares) + student.ppf(CONFIDENCE, len(shares) - 1) * spread)


def _first_guess_rps(prompt: TokenCounts, output: TokenCounts, costs: TokenCosts) -> float:
    """The rate of a single client that sends when it is answered."""
    decode_ms = (costs.step + costs.weights) * output.mean + costs.context * output.mean * prompt.mean
    return 1000 / (decode_ms + costs.token * prompt.mean)
