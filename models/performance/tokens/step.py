"""The time of one iteration of continuous batching, and what surrounds it: the coefficients of model kind `tokens`."""

import math
from typing import NamedTuple

from provision.models.base.compiled import compiled

HALF_IDLE_MS = 30_000.0
"""A sender that sent its last request so long ago meets half of the delay of an idle one."""


class TokenCosts(NamedTuple):
    """Coefficients, in ms, of a language model on a GPU type or MIG slice, with one tensor parallelism.

    An iteration reads the model's weights once and multiplies all its tokens with them, those of prompts and one of
    each decoding sequence. It is limited by memory or by computing, whichever takes longer (Williams et al., Roofline,
    CACM 52(4), 2009). Attention and the work per sequence come on top:

        step + max(weights, token * tokens) + several [all of it for many sequences, nothing for one]
        + sequence * decoding sequences + context * tokens in their KV caches
        + [if there is any prefill] prefill + attended * pairs of a prompt token and one that it attends to.

    Around it stands the server's front end. It takes requests in one after another, ``request`` each and ``read`` for
    every token of their prompts. Those of a sender whose last request is long ago reach the engine up to ``idle``
    later, although none waits behind them. A first token reaches its client ``delivery`` after its iteration, and with
    n sequences in the batch ``delivery_sequence`` * n^1.5 later: the tokens of an iteration are sent one after another,
    and each takes the longer the busier server and clients are with the others (of n, n^1.5 and n^2 the power that is
    closest to measured sweeps). One in twenty of those who send by the clock meets a further delay, exponential with
    mean ``hiccup``.
    """

    step: float
    weights: float
    token: float
    several: float
    sequence: float
    context: float
    prefill: float
    attended: float
    request: float
    read: float
    idle: float
    delivery: float
    delivery_sequence: float
    hiccup: float


@compiled
def decode_ms(costs: TokenCosts, sequences: float, context_tokens: float) -> float:
    """Time of an iteration that only decodes."""
    shared_ms = max(costs.weights, costs.token * sequences)
    batched_ms = costs.several * (1 - 1 / max(sequences, 1.0)) + costs.sequence * sequences
    return costs.step + shared_ms + batched_ms + costs.context * context_tokens


@compiled
def prefill_ms(costs: TokenCosts, sequences: float, prompt_tokens: float, attended: float) -> float:
    """Time that prefill adds to an iteration in which so many sequences decode."""
    if prompt_tokens == 0:
        return 0.0
    shared_ms = max(costs.weights, costs.token * (sequences + prompt_tokens))
    added_ms = shared_ms - max(costs.weights, costs.token * sequences)
    return costs.prefill + added_ms + costs.attended * attended


@compiled
def intake_ms(costs: TokenCosts, prompt_tokens: int) -> float:
    """Time that the front end spends on a request."""
    return costs.request + costs.read * prompt_tokens


@compiled
def idle_ms(costs: TokenCosts, since_ms: float) -> float:
    """Delay of a request whose sender sent its last one so long before."""
    return costs.idle * since_ms / (since_ms + HALF_IDLE_MS)


@compiled
def delivery_ms(costs: TokenCosts, sequences: float) -> float:
    """From the end of an iteration until its tokens have reached their clients."""
    return costs.delivery + costs.delivery_sequence * sequences * math.sqrt(sequences)
