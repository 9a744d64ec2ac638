"""The coefficients of data kind `tokens`: they give the time of one iteration of continuous batching, and of the front
end around it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from provision.models.base.compiled import inner
from provision.models.performance.tokens.records import RECORDED_TOKENS

HALF_IDLE_MS = 30_000.0
"""A client that sent its last request so many ms ago has half of the full ``idle`` delay."""


class TokenCosts(NamedTuple):
    """Coefficients, in ms, of a language model on a GPU type or MIG slice, with one tensor parallelism.

    An iteration reads the model's weights once and multiplies all its tokens with them: prompt tokens, and one token of
    each decoding sequence. Reading or computing limits it, whichever takes longer (Williams et al., Roofline, CACM
    52(4), 2009). Attention and the work per sequence are added:

        step + max(weights, token * tokens) + several [all of it for many sequences, nothing for one] + sequence *
        decoding sequences + context * tokens in their KV caches + [if there is any prefill] prefill + attended * pairs
        of a prompt token and a token to which it attends.

    A mixture of experts also reads the weights of the experts that any token of the iteration takes. If every token
    takes the fraction ``active`` of the experts, this adds ``experts`` * (1 - (1 - active)^tokens).

    With any prefill, an iteration of more than RECORDED_TOKENS takes at least ``launch``: its kernels are launched one
    by one from the CPU, which runs ahead of the GPU and is the slower of the two if the GPU has little to do.

    The server's front end is modelled around the engine. It accepts requests one after another, which takes ``request``
    for each request and ``read`` for every token of its prompt. The request of a client whose last request was long ago
    reaches the engine up to ``idle`` later; this delay does not hold up other requests. A first token reaches its
    client ``delivery`` + ``delivery_sequence`` * n^1.5 after its iteration, where n is the number of sequences in the
    batch: the tokens of an iteration are sent one after another, and each takes longer the busier server and clients
    are. (Among n, n^1.5 and n^2 this power is closest to measured sweeps.) One in twenty requests of clients that send
    by the clock has a further delay, exponential with mean ``hiccup``.
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
    experts: float = 0.0
    launch: float = 0.0
    active: float = 0.0

    def scaled(self, factor: float) -> TokenCosts:
        """The coefficients with all times multiplied by a factor."""
        return TokenCosts(*(factor * one for one in self))._replace(active=self.active)


@inner
def experts_ms(costs: TokenCosts, tokens: float) -> float:
    """The time to read the experts that so many tokens take, in ms."""
    if costs.experts == 0:
        return 0.0
    return costs.experts * (1 - (1 - costs.active) ** tokens)


@inner
def decode_ms(costs: TokenCosts, sequences: float, context_tokens: float) -> float:
    """The time of an iteration that only decodes, in ms."""
    shared_ms = max(costs.weights, costs.token * sequences)
    batched_ms = costs.several * (1 - 1 / max(sequences, 1.0)) + costs.sequence * sequences
    return costs.step + shared_ms + batched_ms + costs.context * context_tokens + experts_ms(costs, sequences)


@inner
def prefill_ms(costs: TokenCosts, sequences: float, prompt_tokens: float, attended: float) -> float:
    """The time that prefill adds to an iteration in which ``sequences`` sequences decode, in ms."""
    if prompt_tokens == 0:
        return 0.0
    shared_ms = max(costs.weights, costs.token * (sequences + prompt_tokens))
    added_ms = shared_ms - max(costs.weights, costs.token * sequences)
    added_ms += experts_ms(costs, sequences + prompt_tokens) - experts_ms(costs, sequences)
    return costs.prefill + added_ms + costs.attended * attended


@inner
def launched_ms(costs: TokenCosts, time_ms: float, sequences: float, prompt_tokens: float) -> float:
    """Time of an iteration, in ms, that takes the GPU ``time_ms``, launching its kernels included."""
    if prompt_tokens > 0 and sequences + prompt_tokens > RECORDED_TOKENS:
        return max(time_ms, costs.launch)
    return time_ms


@inner
def intake_ms(costs: TokenCosts, prompt_tokens: int) -> float:
    """The time that the front end spends on a request with ``prompt_tokens`` tokens, in ms."""
    return costs.request + costs.read * prompt_tokens


@inner
def idle_ms(costs: TokenCosts, since_ms: float) -> float:
    """The delay, in ms, of a request whose client sent its last request ``since_ms`` before."""
    return costs.idle * since_ms / (since_ms + HALF_IDLE_MS)


@inner
def delivery_ms(costs: TokenCosts, sequences: float) -> float:
    """The time from the end of an iteration until its tokens have reached their clients, in ms."""
    return costs.delivery + costs.delivery_sequence * sequences * math.sqrt(sequences)
