"""inferno's model of a server of a language model: a state-dependent M/M/1/K queue, means only.

An iteration with B requests takes ``alpha + B * delta`` ms; delta averages the work of a request over its prefill and
its output tokens. What a request itself computes comes on top: (beta + gamma) per token of its prompt, and beta with
gamma for all tokens that it attends to per output token. Source: the public description of llm-inferno/queue-analysis;
prompts are one chunk. With ten batches that may wait it gives all 42 replica counts, and so the costs, of the solutions
that come with inferno's instances.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

BISECTIONS = 40
SPARE = 0.1
"""The part of the saturated rate that is kept back for whoever is promised tokens per second."""


class Setting(NamedTuple):
    """Requests that may wait, over those in the batch; whether a request's own work comes on top of the iterations.

    Rates are looked for from the part ``edge`` of that of a single request to that part below the saturated one.
    """

    queue: int = 10
    own: bool = True
    edge: float = 1e-3


SHIPPED = Setting()
"""That of the solutions that come with inferno's instances."""


class Demand(NamedTuple):
    """Mean tokens of a request; limits of the mean time per token and to the first one, in ms; tokens/s; 0 for none."""

    input_tokens: int
    output_tokens: int
    itl_ms: float = 0.0
    ttft_ms: float = 0.0
    tokens_per_s: float = 0.0


class Coefficients(NamedTuple):
    """In ms: per iteration, per token, per token and one that it attends to."""

    alpha: float
    beta: float
    gamma: float


class Means(NamedTuple):
    """What requests meet on average, in ms, requests in the batch, and those answered in a second."""

    itl_ms: float
    ttft_ms: float
    batch: float
    answered_rps: float


def highest_rate_rps(costs: Coefficients, demand: Demand, most: int, setting: Setting = SHIPPED) -> float:
    """What is answered, in requests/s, at the highest rate that keeps both means within their limits; 0 without one.

    Parameters
    ----------
    costs, demand
        The coefficients, and what is asked.
    most
        The largest batch.
    setting
        Of the queue.
    """
    least_rps, full_rps = 1000 * _per_ms(costs, demand, np.array([1, most]), setting)
    low = setting.edge * least_rps
    high = (1 - setting.edge) * full_rps * (1 - SPARE if demand.tokens_per_s else 1)
    if not _kept(costs, demand, most, low, setting):
        return 0.0
    if _kept(costs, demand, most, high, setting):
        low = high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _kept(costs, demand, most, middle, setting) else (low, middle)
    return means(costs, demand, most, low, setting).answered_rps


def means(costs: Coefficients, demand: Demand, most: int, rate_rps: float, setting: Setting = SHIPPED) -> Means:
    """What requests meet at a rate (the steady state of a birth and death process)."""
    states = np.arange(most * (1 + setting.queue) + 1)
    batch = np.minimum(states, most)
    logs = np.concatenate([[0.0], np.cumsum(np.log(rate_rps / 1000 / _per_ms(costs, demand, batch[1:], setting)))])
    share = np.exp(logs - logs.max())
    share /= share.sum()
    answered = rate_rps / 1000 * (1 - share[-1])
    served_ms, wait_ms = batch @ share / answered, (states - batch) @ share / answered
    prefill_ms = float(_prefill_ms(costs, demand, batch @ share))
    itl_ms = (served_ms - prefill_ms) / demand.output_tokens
    return Means(float(itl_ms), float(wait_ms + prefill_ms + itl_ms), float(batch @ share), float(1000 * answered))


def _kept(costs: Coefficients, demand: Demand, most: int, rate_rps: float, setting: Setting) -> bool:
    found = means(costs, demand, most, rate_rps, setting)
    return found.itl_ms <= (demand.itl_ms or math.inf) and found.ttft_ms <= (demand.ttft_ms or math.inf)


def _per_ms(costs: Coefficients, demand: Demand, batch: np.ndarray, setting: Setting) -> np.ndarray:
    """Requests that are answered in a ms while so many are in the batch."""
    own_ms = costs.beta + costs.gamma * _attended(demand) if setting.own else 0.0
    token_ms = _iteration_ms(costs, demand, batch) + own_ms
    return np.asarray(batch / (_prefill_ms(costs, demand, batch) + demand.output_tokens * token_ms))


def _prefill_ms(costs: Coefficients, demand: Demand, batch: np.ndarray) -> np.ndarray:
    """The iteration with a request's prompt, which comes on top of what the batch needs."""
    return _iteration_ms(costs, demand, batch) + (costs.beta + costs.gamma) * demand.input_tokens


def _iteration_ms(costs: Coefficients, demand: Demand, batch: np.ndarray) -> np.ndarray:
    prompt, output = demand.input_tokens, demand.output_tokens
    return costs.alpha + batch * (costs.beta * (prompt + output) / (1 + output) + costs.gamma * _attended(demand))


def _attended(demand: Demand) -> float:
    """Tokens that a token of a request attends to, on average."""
    return demand.input_tokens + demand.output_tokens / 2
