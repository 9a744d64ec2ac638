"""Adds up the times of the operators of a decoder (see `laws`) to the time of an iteration."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.models.performance.operators.decoder import Decoder
from provision.models.performance.operators.laws import (
    WEIGHT_BYTES,
    Experts,
    Gemm,
    GpuOperators,
    decode_attention_ms,
    experts_ms,
    gemm_ms,
    moved_ms,
    prefill_attention_ms,
)

PLAIN = "bfloat16"
EXPERTS_ONLY = ("mxfp4", "mxfp4_mxfp8", "int4")
"""The precisions that apply to the weights of experts alone; all other matrices are then in PLAIN."""
ACTIVATION_BYTES = 2
MEMORY_PART = 0.9
"""The fraction of a GPU's memory that a server takes by default."""


class Factors(Protocol):
    """Factors that correct the times that laws predict, by precision and shape."""

    def gemm(self, precision: str, shape: Gemm) -> Floats:
        """The factors by which the predicted times of matrix products are multiplied."""

    def decode(self, precision: str, heads: Sequence[float], sequences: ArrayLike, context: ArrayLike) -> Floats:
        """The factors by which the predicted times of a layer's attention while decoding are multiplied; ``heads`` is
        (heads, KV heads, head dimension).
        """

    def prefill(self, precision: str, heads: Sequence[float], tokens: ArrayLike, pairs: ArrayLike) -> Floats:
        """The factors by which the predicted times of a layer's attention in prompts are multiplied. ``tokens`` are the
        tokens of the prompts, ``pairs`` the pairs of such a token and a token to which it attends.
        """

    def experts(self, precision: str, shape: Experts) -> Floats:
        """The factors by which the predicted times of layers of experts are multiplied."""


class Served(NamedTuple):
    """A decoder on a group of ``gpus`` GPUs of one type (tensor parallelism), with its weights in some precision.

    ``factors`` correct the times of the laws by tables, if there are any. ``memory_part`` is the fraction of the memory
    that the server takes, vLLM's ``gpu_memory_utilization``.
    """

    decoder: Decoder
    operators: GpuOperators
    gpus: int = 1
    precision: str = PLAIN
    kv_precision: str = PLAIN
    factors: Factors | None = None
    memory_part: float = MEMORY_PART

    @property
    def gemm_precision(self) -> str:
        """The precision of all matrices except those of experts and the last matrix."""
        return PLAIN if self.precision in EXPERTS_ONLY else self.precision

    @property
    def weight_bytes(self) -> float:
        """The bytes of all weights; the embedding and the last matrix are always in the precision PLAIN."""
        one = self.decoder
        layer = (one.attention_weights * WEIGHT_BYTES[self.gemm_precision]
                 + one.mlp_weights * WEIGHT_BYTES[self.precision if one.experts else self.gemm_precision])
        return one.layers * layer + one.embeddings * WEIGHT_BYTES[PLAIN]

    @property
    def kv_token_bytes(self) -> float:
        """The bytes of a token in the KV cache of all GPUs together; layers with a window hold next to nothing and are
        left out.
        """
        one = self.decoder
        heads = max(one.kv_heads, self.gpus)
        return (one.layers - one.windowed_layers) * 2 * heads * one.head_dim * WEIGHT_BYTES[self.kv_precision]

    @property
    def kv_tokens(self) -> int:
        """The number of tokens whose KV cache fits into the GPUs' memory beside the weights; 0 if not even the weights
        fit.
        """
        gpu = self.operators
        free = self.gpus * (self.memory_part * gpu.memory_bytes - gpu.other_bytes) - self.weight_bytes
        return max(int(free / self.kv_token_bytes), 0)


class Iterations(NamedTuple):
    """Iterations, as arrays: decoding sequences, tokens in the KV cache of each, prompt tokens, and pairs of a prompt
    token and a token to which it attends.
    """

    sequences: ArrayLike
    context: ArrayLike
    prompt: ArrayLike
    pairs: ArrayLike


def check(served: Served) -> None:
    """Refuse a decoder for which there are no operator times, or which cannot be split over the GPUs. Raises InputError
    if there are no operator times; the message names the option to change.
    """
    gpu, one = served.operators, served.decoder
    known = set(gpu.gemm) | ({name for name in EXPERTS_ONLY if name in gpu.experts} if one.experts else set())
    if served.precision not in known or (one.experts and served.precision not in gpu.experts):
        raise InputError(f"--precision {served.precision}: no operator times of it on this GPU"
                         f"{' for experts' if one.experts else ''}; there are some for {', '.join(sorted(known))}")
    if served.kv_precision not in gpu.decode:
        raise InputError(f"--kv-precision {served.kv_precision}: no operator times of it on this GPU; there are some "
                         f"for {', '.join(sorted(gpu.decode))}")
    if served.gpus > 1 and str(served.gpus) not in gpu.reduce:
        raise InputError(f"--tp {served.gpus}: no times of all-reduces over so many GPUs; give "
                         f"{', '.join(['1', *gpu.reduce])}")
    if one.heads % served.gpus:
        raise InputError(f"--tp {served.gpus}: {one.heads} heads cannot be dealt out to so many GPUs; give a divisor")


def iteration_ms(served: Served, given: Iterations) -> Floats:
    """The times of iterations on the GPUs alone, in ms, without scheduling, sampling and front end."""
    sequences, context, prompt, pairs = (np.asarray(one, float) for one in given)
    tokens = sequences + prompt
    layer_ms = (_matrices_ms(served, tokens) + _elementwise_ms(served, tokens) + 2 * _reduce_ms(served, tokens))
    return np.asarray(served.decoder.layers * layer_ms + _attention_ms(served, sequences, context, prompt, pairs)
                      + _last_ms(served, sequences, prompt) + _reduce_ms(served, tokens))


def _matrices_ms(served: Served, tokens: Floats) -> Floats:
    """The time of all matrix products of a layer and of the quantisation of their inputs, in ms."""
    one, gpu, name, parts = served.decoder, served.operators, served.gemm_precision, served.gpus
    size = WEIGHT_BYTES[name]
    heads = (one.heads / parts + 2 * max(1.0, one.kv_heads / parts)) * one.head_dim
    shapes = [(heads, one.hidden), (one.hidden, one.heads * one.head_dim / parts)]
    if not one.experts:
        shapes += [(2 * one.mlp / parts, one.hidden), (one.hidden, one.mlp / parts)]
    elif one.shared_mlp:
        shapes += [(2 * one.shared_mlp / parts, one.hidden), (one.hidden, one.shared_mlp / parts)]
    total = sum((_product_ms(served, name, Gemm(tokens, n, k, size)) for n, k in shapes), np.zeros_like(tokens))
    if one.experts:
        precise = served.precision
        shape = Experts(tokens, one.hidden, one.mlp, one.active_experts, one.experts, parts, 1, WEIGHT_BYTES[precise])
        layer_ms = experts_ms(gpu.experts[precise], shape)
        total += layer_ms * served.factors.experts(precise, shape) if served.factors else layer_ms
    if name != PLAIN and gpu.quantize:
        total += sum(moved_ms(gpu.quantize, 3 * tokens * k) for _, k in shapes)
    return np.asarray(total)


def _product_ms(served: Served, precision: str, shape: Gemm) -> Floats:
    time_ms = gemm_ms(served.operators.gemm[precision], shape)
    return np.asarray(time_ms * served.factors.gemm(precision, shape)) if served.factors else time_ms


def _attention_ms(served: Served, sequences: Floats, context: Floats, prompt: Floats, pairs: Floats) -> Floats:
    """The time of the attention of all layers, in ms; layers with a window are computed separately."""
    one, gpu = served.decoder, served.operators
    sizes = (one.heads / served.gpus, max(1.0, one.kv_heads / served.gpus), float(one.head_dim))
    kept, factors = served.kv_precision, served.factors
    total = np.zeros(np.broadcast_shapes(sequences.shape, context.shape, prompt.shape, pairs.shape))
    for layers, window in ((one.layers - one.windowed_layers, np.inf), (one.windowed_layers, one.window)):
        if not layers:
            continue
        seen, met = np.minimum(context, window), pairs if window == np.inf else np.minimum(pairs, prompt * window)
        tokens, met = np.maximum(prompt, 1), np.maximum(met, 1)
        decode = decode_attention_ms(gpu.decode[kept], sequences, seen, *sizes, WEIGHT_BYTES[kept])
        fresh = prefill_attention_ms(gpu.prefill[kept], tokens, met, *sizes)
        if factors:
            decode, fresh = (decode * factors.decode(kept, sizes, sequences, seen),
                             fresh * factors.prefill(kept, sizes, tokens, met))
        total += layers * (np.where(sequences > 0, decode, 0) + np.where(prompt > 0, fresh, 0))
    return total


def _elementwise_ms(served: Served, tokens: Floats) -> Floats:
    """The time of a layer's element-wise work, in ms: two norms, each with the addition before it, and the activation.
    """
    one, gpu = served.decoder, served.operators
    wide = one.mlp * max(one.active_experts, 1) / served.gpus
    moved = ACTIVATION_BYTES * tokens * (2 * 4 * one.hidden + (0 if one.experts else 3 * wide))
    return np.asarray((2 if one.experts else 3) * gpu.elementwise_ms + moved / gpu.elementwise_bytes_per_ms)


def _reduce_ms(served: Served, tokens: Floats) -> Floats:
    """The time of an all-reduce of the activations of all tokens, in ms; 0 on one GPU."""
    if served.gpus == 1:
        return np.zeros_like(tokens)
    size = ACTIVATION_BYTES * tokens * served.decoder.hidden
    return moved_ms(served.operators.reduce[str(served.gpus)], size)


def _last_ms(served: Served, sequences: Floats, prompt: Floats) -> Floats:
    """The time of the last matrix product, in ms, for the sequences that sample a token."""
    one = served.decoder
    sampling = np.maximum(sequences + (prompt > 0), 1)
    shape = Gemm(sampling, one.vocabulary / served.gpus, one.hidden, WEIGHT_BYTES[PLAIN])
    return _product_ms(served, PLAIN, shape)
