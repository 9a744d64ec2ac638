"""Replays loads on the engine of a language model: the latencies that clients see, and the highest rate within its
limits.

The highest rate errs on the safe side. Every request is treated as the request of a user who has been silent for long,
since the front end is slowest then (see `step`). A rate is accepted only if, for every limit, an upper confidence bound
on the fraction of late requests is within what the percentile allows.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from provision.models.performance.tokens.batching import replay
from provision.models.performance.tokens.data import TokenSlice
from provision.models.performance.tokens.loads import SEED, Figures, TokenCounts, TokenLoad
from provision.models.performance.tokens.records import Clients, Engine, request_table
from provision.models.performance.tokens.requests import Limits, RequestTokens, SharedPrefix
from provision.models.performance.tokens.step import TokenCosts
from provision.models.traffic.arrivals import POISSON, Mmpp, Poisson, Renewal, Trace, arrival_times_s

PERCENTS = (50.0, 95.0, 99.0)
FEWEST_CLOSED = 4096
"""The number of requests with which the replay of a closed load begins; if they run out, the replay starts again with
more.
"""


def replay_load(load: TokenLoad, engine: Engine, costs: TokenCosts, seed: int = SEED) -> np.ndarray:
    """Replay a load and return the table of requests (dtype REQUEST) that ended within its duration. Raises InputError
    if a request does not fit the engine's KV memory.
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


REQUESTS = 20_000
WARM_UP = 0.1
"""The fraction of the requests, at the start of a replay, that is not counted."""
SEEDS = range(5)
"""The seeds of the replays of one rate. Near saturation the requests of one replay depend on each other; only the
results of different replays are independent.
"""
CONFIDENCE = 0.99
BISECTIONS = 7
STEP = 0.02
"""The relative accuracy of the search for the highest rate; the returned rate is lower by this fraction."""
FARTHEST = 2.0**10
"""The search gives up at a rate this many times lower than the first guess."""
SUSTAINED = 0.97
"""The fraction of a saturated engine's throughput that a rate never exceeds: at higher rates queues may grow slowly
without limit.
"""
SPARE, FEWER = 1.01, 0.75
"""Both are for limits that are suggested to a user: SPARE is the factor by which limits are lengthened; FEWER is the
fraction of the requests allowed to be late that may exceed the limits before that.
"""
STEADY = (0.2, 0.8)
"""The part of the answers, in order, during which the engine counts as saturated: from the first fraction to the
second.
"""
EVERYBODY = Clients(most=10**9)


class Part(NamedTuple):
    """The part of a request that a replica computes: by default all of it.

    ``cached``: requests come with their KV cache and first token, and are timed from their arrival at the replica.
    ``transfer_ms``: the delay of the answer per token of the prompt, for the transfer of its KV cache to another
    replica, in ms. ``prefix``: the part of the prompts that is found in the prefix cache and not computed.
    """

    cached: bool = False
    transfer_ms: float = 0.0
    prefix: SharedPrefix | None = None


ALL = Part()


def part_of(tokens: RequestTokens) -> Part:
    """The part that replicas of a workload compute: all of a request unless it is a prefill or decode pool."""
    return Part(tokens.cached, tokens.transfer_ms_per_token, tokens.shared_prefix)


def costs_of(data: TokenSlice) -> TokenCosts:
    """The coefficients of a slice's performance data, in the form that replays need."""
    times_ms = (getattr(data, f"{name}_ms") for name in TokenCosts._fields[:-1])
    return TokenCosts(*times_ms)._replace(active=data.active_part)


@lru_cache(maxsize=4096)
def highest_rate_rps(prompt: TokenCounts, output: TokenCounts, limits: Limits, engine: Engine, costs: TokenCosts,
                     arrivals: Poisson | Renewal | Mmpp | Trace = POISSON, most_rps: float = math.inf,
                     part: Part = ALL) -> float:
    """Approximately the highest rate (requests/s), up to ``most_rps``, at which every limit is kept; 0 if even single
    requests miss a limit. Raises InputError if a request does not fit the engine's KV memory.
    """

    def shares(rate_rps: float, seed: int) -> np.ndarray:
        times_ms = answers_ms(rate_rps, prompt, output, engine, costs, arrivals, seed, part)
        return late_shares(times_ms, limits)

    def seems_kept(rate_rps: float) -> bool:
        return bool((shares(rate_rps, SEEDS[0]) <= limits.may_be_late).all())

    def kept(rate_rps: float) -> bool:
        found = np.array([shares(rate_rps, seed) for seed in SEEDS])
        return bool((_share_bounds(found) <= limits.may_be_late).all())

    most_rps = min(most_rps, SUSTAINED * saturated_rps(prompt, output, engine, costs, part))
    rate = min(_about(seems_kept, _first_guess_rps(prompt, output, costs), most_rps), most_rps)
    if rate == 0:
        return 0.0
    if kept(rate):
        while rate < most_rps and kept(rate * (1 + STEP)):
            rate *= 1 + STEP
        return min(rate, most_rps) * (1 - STEP)
    step = STEP
    while step < 1:
        high, rate, step = rate, rate * (1 - step), 2 * step
        if kept(rate):
            return _highest(kept, rate, high) * (1 - STEP)
    return 0.0


def _highest(kept: Callable[[float], bool], low: float, high: float) -> float:
    """The highest rate for which ``kept`` is true, within STEP; ``kept`` is true for ``low`` and false for ``high``."""
    while high > low * (1 + STEP):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if kept(middle) else (low, middle)
    return low


def saturated_rps(prompt: TokenCounts, output: TokenCounts, engine: Engine, costs: TokenCosts, part: Part = ALL
                  ) -> float:
    """The throughput (requests/s) of an engine at which all requests wait from the start, measured over STEADY."""
    ends_ms = np.sort(served_ms(np.zeros(REQUESTS), prompt, output, engine, costs, SEEDS[0], part)[2])
    low, high = (int(part * REQUESTS) for part in STEADY)
    return 1000 * (high - low) / float(ends_ms[high] - ends_ms[low])


def _about(kept: Callable[[float], bool], guess_rps: float, most_rps: float) -> float:
    """Roughly the highest rate (requests/s) for which ``kept`` is true; 0 if none down to ``guess_rps`` / FARTHEST is.

    ``guess_rps`` is doubled while it is kept and below ``most_rps``, or else halved until it is kept; then bisection
    follows.
    """
    rate = guess_rps
    if kept(rate):
        while rate < most_rps and kept(2 * rate):
            rate *= 2
    while rate <= guess_rps and not kept(rate):
        rate /= 2
        if rate < guess_rps / FARTHEST:
            return 0.0
    low, high = rate, 2 * rate
    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if kept(middle) else (low, middle)
    return low


def answers_ms(rate_rps: float, prompt: TokenCounts, output: TokenCounts, engine: Engine, costs: TokenCosts,
               arrivals: Poisson | Renewal | Mmpp | Trace, seed: int, part: Part = ALL) -> np.ndarray:
    """The latencies of about REQUESTS requests that arrive at a rate, in order of arrival.

    Returns
    -------
    array (3, requests)
        The time to the first token, the time per further token, and the time of the whole answer, in ms.

    Raises
    ------
    InputError
        If a request does not fit the engine's KV memory.
    """  # fmt: skip
    random = np.random.default_rng([seed, 4])
    planned_ms = 1000 * arrival_times_s(arrivals, rate_rps, REQUESTS / rate_rps, random)
    return served_ms(planned_ms, prompt, output, engine, costs, seed, part)


def served_ms(planned_ms: np.ndarray, prompt: TokenCounts, output: TokenCounts, engine: Engine, costs: TokenCosts,
              seed: int, part: Part = ALL) -> np.ndarray:
    """(3, requests) the latencies of requests, as in ``answers_ms``. Each request comes from another user, at its time
    in ``planned_ms`` (requests,), ascending.
    """
    count = len(planned_ms)
    return timed_ms(planned_ms, prompt.sample(count, seed), output.sample(count, seed + 1), engine, costs, seed, part)


def timed_ms(planned_ms: np.ndarray, prompt: np.ndarray, output: np.ndarray, engine: Engine, costs: TokenCosts,
             seed: int, part: Part = ALL) -> np.ndarray:
    """(3, requests), the latencies as in ``served_ms``, for given numbers of tokens of prompts and answers,
    (requests,); ``seed`` draws random delays. In a pool that only decodes, requests arrive with their first token. A
    request that needs no further token is then treated as if it needed one more. The delivery time of tokens to users
    is left out there, since it is the same for the first token, which the other pool sent.
    """
    silent = costs._replace(idle=0.0, delivery=0.0 if part.cached else costs.delivery + costs.idle)
    output = np.maximum(output, 2 if part.cached else 1)
    block, reused, shared = engine.block_tokens, np.zeros_like(prompt), np.zeros_like(prompt)
    if part.prefix is not None:
        reused, shared = part.prefix.reused(prompt, block), part.prefix.shared_blocks(prompt, block)
        engine = engine._replace(kv_blocks=engine.kv_blocks - part.prefix.set_aside(block))
    table = request_table(planned_ms, prompt, output, engine, part.cached, reused, shared)
    if len(table):
        replay(table, engine, silent, EVERYBODY, math.inf)
    e2e_ms = table["end_ms"] - table["sent_ms"] + part.transfer_ms * prompt
    if part.cached:
        return np.array([np.zeros(len(table)), e2e_ms / (output - 1), e2e_ms])
    ttft_ms = table["first_ms"] - table["sent_ms"] + part.transfer_ms * prompt
    tpot_ms = (table["end_ms"] - table["first_ms"]) / np.maximum(output - 1, 1)
    return np.array([ttft_ms + hiccups_ms(costs, len(table), seed), tpot_ms, e2e_ms])


def late_shares(times_ms: np.ndarray, limits: Limits) -> np.ndarray:
    """(3,), the fraction of the requests after the warm-up that exceeds each of the three limits."""
    counted = times_ms[:, int(times_ms.shape[1] * WARM_UP) :]
    return (counted > np.array(limits.times_ms)[:, None]).mean(axis=1)


def least_limits(prompt: TokenCounts, output: TokenCounts, asked: Limits, engine: Engine, costs: TokenCosts,
                 part: Part = ALL) -> Limits:
    """The limits ``asked``, each raised if necessary so that requests that come one at a time keep it."""
    rate_rps = _first_guess_rps(prompt, output, costs) / FARTHEST
    times_ms = answers_ms(rate_rps, prompt, output, engine, costs, POISSON, SEEDS[0], part)
    kept = np.percentile(times_ms, 100 * (1 - FEWER * asked.may_be_late), axis=1)
    ttft_ms, tpot_ms, e2e_ms = np.maximum(asked.times_ms, SPARE * kept)
    return Limits(float(ttft_ms), float(tpot_ms), float(e2e_ms), asked.percentile)


def _share_bounds(shares: np.ndarray) -> np.ndarray:
    """(limits,), upper confidence bounds on fractions from independent replays (Law, Simulation Modeling and Analysis);
    ``shares`` has shape (replays, limits).
    """
    spread = shares.std(axis=0, ddof=1) / math.sqrt(len(shares))
    return shares.mean(axis=0) + stdtrit(len(shares) - 1, CONFIDENCE) * spread


def _first_guess_rps(prompt: TokenCounts, output: TokenCounts, costs: TokenCosts) -> float:
    """The rate (requests/s) of a single client that sends a request whenever its last request is answered."""
    decode_ms = (costs.step + costs.weights) * output.mean + costs.context * output.mean * prompt.mean
    return 1000 / (decode_ms + costs.token * prompt.mean)
