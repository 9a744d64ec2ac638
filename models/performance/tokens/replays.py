"""Replays a load on an engine, and summarises the latencies that its clients see."""

import numpy as np

from provision.models.performance.tokens.batching import replay
from provision.models.performance.tokens.loads import SEED, Figures, TokenLoad
from provision.models.performance.tokens.records import Clients, Engine, request_table
from provision.models.performance.tokens.step import TokenCosts

PERCENTS = (50.0, 95.0, 99.0)
FEWEST_CLOSED = 4096
"""The number of requests with which the replay of a closed load begins; if they run out, the replay starts again with
more.
"""


def replay_load(load: TokenLoad, engine: Engine, costs: TokenCosts, seed: int = SEED) -> np.ndarray:
    """Replay a load and return the table of requests (dtype REQUEST) that ended within its duration.

    Raises
    ------
    InputError
        If a request does not fit the engine's KV memory.
    """
    count = load.most_requests() or max(FEWEST_CLOSED, 2 * min(load.concurrency, FEWEST_CLOSED))
    until_ms = load.duration_s * 1000
    while True:
        prompt, output = load.prompt.sample(count, seed), load.output.sample(count, seed + 1)
        table = request_table(load.planned_ms(count, seed), prompt, output, engine)
        replay(table, engine, costs, Clients(load.concurrency), until_ms)
        if load.rate_rps is not None:
            table["first_ms"] += hiccups_ms(costs, count, seed)
        if load.rate_rps is not None or np.isinf(table["sent_ms"][-1]):
            return table[table["end_ms"] <= until_ms]
        count *= 2


def hiccups_ms(costs: TokenCosts, count: int, seed: int) -> np.ndarray:
    """(count,), random delays of first tokens in ms: exponential for one request in twenty, 0 for the others."""
    return costs.hiccup * np.maximum(np.random.default_rng([seed, 3]).exponential(size=count) - 3, 0)


def figures(table: np.ndarray) -> tuple[Figures, Figures]:
    """The pair of statistics of answered requests, in ms: of the time to the first token, and of the inter-token
    latency. A request enters with its mean inter-token latency, weighted by the number of its tokens after the first,
    as in GuideLLM.
    """
    several = table[table["output"] > 1]
    gaps = several["output"] - 1
    return (
        summary(table["first_ms"] - table["sent_ms"], np.ones(len(table))),
        summary((several["end_ms"] - several["first_ms"]) / gaps, gaps),
    )


def summary(values: np.ndarray, weights: np.ndarray) -> Figures:
    """The mean and percentiles of weighted values; empty Figures if there are no values."""
    if not len(values):
        return Figures()
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    at = np.searchsorted(reached, np.array(PERCENTS) / 100 * reached[-1])
    percentiles = values[order][np.minimum(at, len(values) - 1)]
    mean = float(np.average(values, weights=weights))
    return Figures(mean=mean, percentiles=dict(zip(PERCENTS, percentiles.tolist(), strict=True)))
