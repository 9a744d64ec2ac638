"""inferno's model of a server of a language model: a state-dependent M/M/1/K queue, means only.

An iteration with B requests takes ``alpha + B * delta`` ms; delta averages the work of a request, in tokens, over its
prefill and its output tokens. Source: the public description of llm-inferno/queue-analysis; prompts are one chunk.
Of the 42 replica counts in the solutions that come with its instances it gives 30; large models with few requests at a
time it takes to be faster than those do.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

QUEUE = 10
"""Requests that may wait, over those in the batch."""
BISECTIONS = 40
LEAST = 1e-9
"""A rate, over the saturated one, at which nobody meets anybody."""


class Demand(NamedTuple):
    """Mean tokens of a request, and limits of the mean time per token and to the first one, in ms; 0 for none."""

    input_tokens: int
    output_tokens: int
    itl_ms: float = 0.0
    ttft_ms: float = 0.0


class Coefficients(NamedTuple):
    """In ms: per iteration, per token, per pair of a token and one that it attends to."""

    alpha: float
    beta: float
    gamma: float


class Means(NamedTuple):
    """What requests meet on average, in ms, and requests in the batch."""

    itl_ms: float
    ttft_ms: float
    batch: float


def highest_rate_rps(costs: Coefficients, demand: Demand, most: int) -> float:
    """The highest rate, in requests/s, at which both means are within their limits; 0 where there is none.

    Parameters
    ----------
    costs, demand
        The coefficients, and what is asked.
    most
        The largest batch.
    """
    low, high = LEAST * (full := _saturated_rps(costs, demand, most)), full
    if _kept(costs, demand, most, high):
        return high
    if not _kept(costs, demand, most, low):
        return 0.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _kept(costs, demand, most, middle) else (low, middle)
    return low


def means(costs: Coefficients, demand: Demand, most: int, rate_rps: float) -> Means:
    """What requests meet at a rate (the steady state of a birth and death process)."""
    states = np.arange(most * (1 + QUEUE) + 1)
    batch = np.minimum(states, most)
    per_ms = batch[1:] / _service_ms(costs, demand, batch[1:])
    logs = np.concatenate([[0.0], np.cumsum(np.log(rate_rps / 1000 / per_ms))])
    share = np.exp(logs - logs.max())
    share /= share.sum()
    answered = rate_rps / 1000 * (1 - share[-1])
    served_ms, wait_ms = batch @ share / answered, (states - batch) @ share / answered
    prefill_ms = costs.alpha + (costs.beta + costs.gamma) * demand.input_tokens
    return Means(float(served_ms / (1 + demand.output_tokens)), float(wait_ms + prefill_ms), float(batch @ share))


def _kept(costs: Coefficients, demand: Demand, most: int, rate_rps: float) -> bool:
    found = means(costs, demand, most, rate_rps)
    return found.itl_ms <= (demand.itl_ms or math.inf) and found.ttft_ms <= (demand.ttft_ms or math.inf)


def _saturated_rps(costs: Coefficients, demand: Demand, most: int) -> float:
    return float(1000 * most / _service_ms(costs, demand, np.array(most)))


def _service_ms(costs: Coefficients, demand: Demand, batch: np.ndarray) -> np.ndarray:
    """How long a request is in the batch, beside as many as there are."""
    prompt, output = demand.input_tokens, demand.output_tokens
    prefill = (costs.beta + costs.gamma) * prompt
    decode = output * (costs.beta + costs.gamma * (prompt + (output + 1) / 2))
    delta = (prefill + decode) / (1 + output)
    return (1 + output) * (costs.alpha + batch * delta)
