"""The time of one iteration of continuous batching, and what surrounds it: the coefficients of model kind `tokens`."""

from typing import NamedTuple

from provision.models.base.compiled import compiled


class TokenCosts(NamedTuple):
    """Coefficients of a language model on a GPU type or MIG slice, with one tensor parallelism.

    An iteration takes

        step_ms + sequence_ms * decoding sequences + context_ms * tokens in their KV caches
        + prefill_ms [if there is any prefill] + prompt_token_ms * prompt tokens
        + attended_ms * pairs of a prompt token and a token that it attends to.

    Around it stands the server's front end. It takes requests in one after another, ``request_ms`` each. A first token
    reaches the client ``delivery_ms`` after its iteration, and ``delivery_sequence_ms`` later for every sequence in the
    batch, because the tokens of an iteration are sent one after another.
    """

    step_ms: float
    sequence_ms: float
    context_ms: float
    prefill_ms: float
    prompt_token_ms: float
    attended_ms: float
    request_ms: float
    delivery_ms: float
    delivery_sequence_ms: float


@compiled
def decode_ms(costs: TokenCosts, sequences: float, context_tokens: float) -> float:
    """Time of an iteration that only decodes."""
    return costs.step_ms + costs.sequence_ms * sequences + costs.context_ms * context_tokens


@compiled
def prefill_ms(costs: TokenCosts, prompt_tokens: float, attended: float) -> float:
    """Time that prefill adds to an iteration."""
    if prompt_tokens == 0:
        return 0.0
    return costs.prefill_ms + costs.prompt_token_ms * prompt_tokens + costs.attended_ms * attended


@compiled
def intake_ms(costs: TokenCosts, prompt_tokens: float) -> float:
    """Time that the front end spends on a request before the engine has it."""
    return costs.request_ms


@compiled
def delivery_ms(costs: TokenCosts, sequences: float) -> float:
    """From the end of an iteration until its tokens have reached their clients."""
    return costs.delivery_ms + costs.delivery_sequence_ms * sequences
