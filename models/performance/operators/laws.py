"""Predicts the times of operators from their shapes, with a few coefficients per GPU type, operator and precision (a
*law*). Every law is a roofline with rounded corners. The time for moving data (bytes divided by a bandwidth) and the
time for computing (operations divided by a rate) overlap: together they take the p-norm of both times, where p is the
``sharpness``. A fixed time is added. Shapes are arrays that broadcast against each other; times are in ms, bandwidths
in bytes/ms, rates in operations/ms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from provision.models.base.arrays import Floats
from provision.models.base.fields import Count, Name, NonNegative, Positive, Record

WEIGHT_BYTES = {"bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625, "mxfp4": 0.53125,
                "mxfp4_mxfp8": 0.53125, "int4": 0.53125}
"""The bytes of a weight by precision.

They include the scales: 16 weights of nvfp4, and 32 weights of mxfp4, have a scale of one byte together. ``mxfp4`` has
activations of 16 bits, ``mxfp4_mxfp8`` the same weights with activations in mxfp8.
"""

LEAST_MS = 1e-12
"""The least time that counts, in ms; it prevents a division by 0."""


class Residual(Record):
    """How far a law is from the measured times to which it was fitted: median and 90th percentile of the relative
    errors.
    """

    median: NonNegative
    p90: NonNegative
    rows: Count


class GemmLaw(Record):
    """The law of a matrix product (m x k)(k x n). The rate is half of the full rate if the output has ``half_outputs``
    numbers, or if each output is a sum of ``half_inputs`` products.
    """

    fixed_ms: NonNegative
    bytes_per_ms: Positive
    flop_per_ms: Positive
    sharpness: Positive
    half_outputs: NonNegative
    half_inputs: NonNegative
    residual: Residual


class DecodeLaw(Record):
    """The law of attention while decoding, with one new token per sequence: the KV caches are read, and every head of
    every sequence takes another ``head_ms``.
    """

    fixed_ms: NonNegative
    bytes_per_ms: Positive
    flop_per_ms: Positive
    sharpness: Positive
    head_ms: NonNegative
    residual: Residual


class PrefillLaw(Record):
    """The law of attention in prompts: work is done for every pair of a token and a token to which it attends; queries,
    keys and values are moved.
    """

    fixed_ms: NonNegative
    flop_per_ms: Positive
    bytes_per_ms: Positive
    sharpness: Positive
    residual: Residual


class ExpertsLaw(Record):
    """The law of a layer of experts: the weights of all experts that some token takes are read, each of these experts
    takes another ``expert_ms``, and activations are moved.
    """

    fixed_ms: NonNegative
    bytes_per_ms: Positive
    flop_per_ms: Positive
    sharpness: Positive
    activation_bytes_per_ms: Positive
    expert_ms: NonNegative
    residual: Residual


class ReduceLaw(Record):
    """The law of an all-reduce over a number of GPUs."""

    fixed_ms: NonNegative
    bytes_per_ms: Positive
    residual: Residual


class QuantizeLaw(Record):
    """The law of the scaling of activations to a lower precision."""

    fixed_ms: NonNegative
    bytes_per_ms: Positive
    residual: Residual


class GpuOperators(Record):
    """All laws of a GPU type, by precision; attention by the precision of the KV cache, all-reduces by the number of
    GPUs.

    ``elementwise_bytes_per_ms`` and ``elementwise_ms`` are the bandwidth and the fixed time of element-wise work.
    ``memory_bytes`` is the memory of the GPU; ``other_bytes`` of it are not available to weights and KV cache.
    """

    source: Name
    gemm: dict[Name, GemmLaw]
    decode: dict[Name, DecodeLaw]
    prefill: dict[Name, PrefillLaw]
    experts: dict[Name, ExpertsLaw]
    reduce: dict[str, ReduceLaw]
    quantize: QuantizeLaw | None = None
    elementwise_bytes_per_ms: Positive
    elementwise_ms: NonNegative
    memory_bytes: Positive
    other_bytes: NonNegative

    def sliced(self, sms: float, bandwidth: float, memory_bytes: float) -> GpuOperators:
        """The laws of a MIG slice with fractions of the SMs and of the bandwidth; all-reduces and fixed times stay."""
        parts = {"flop_per_ms": sms, "half_outputs": sms, "head_ms": 1 / sms, "expert_ms": 1 / sms,
                 **dict.fromkeys(("bytes_per_ms", "activation_bytes_per_ms", "elementwise_bytes_per_ms"), bandwidth)}

        def scaled(given: dict[str, Any]) -> dict[str, Any]:
            return {key: scaled(one) if isinstance(one, dict) and key != "reduce" else one * parts.get(key, 1.0)
                    if isinstance(one, float) else one for key, one in given.items()}
        return GpuOperators.model_validate(scaled(self.model_dump()) | {"memory_bytes": memory_bytes})


class Gemm(NamedTuple):
    """The shapes of matrix products (m x k)(k x n), and the bytes of a weight."""

    m: ArrayLike
    n: ArrayLike
    k: ArrayLike
    weight_bytes: float


class Experts(NamedTuple):
    """The shapes of layers of experts: ``tokens`` pass through the layer, and every token takes ``active`` of the
    ``experts``.
    """

    tokens: ArrayLike
    hidden: ArrayLike
    mlp: ArrayLike
    active: ArrayLike
    experts: ArrayLike
    slices: ArrayLike
    """The number of GPUs over which every expert is split."""
    groups: ArrayLike
    """The number of groups of GPUs among which the experts are divided."""
    weight_bytes: float


def gemm_ms(law: GemmLaw, shape: Gemm) -> Floats:
    """The times of matrix products, in ms."""
    m, n, k = (np.asarray(one, float) for one in shape[:3])
    moved = shape.weight_bytes * n * k + min(shape.weight_bytes, 2.0) * m * k + 2 * m * n
    work = 2 * m * n * k * (1 + law.half_outputs / (m * n)) * (1 + law.half_inputs / k)
    return law.fixed_ms + _both(moved / law.bytes_per_ms, work / law.flop_per_ms, law.sharpness)


def decode_attention_ms(law: DecodeLaw, sequences: ArrayLike, context: ArrayLike, heads: ArrayLike, kv_heads: ArrayLike,
                        head_dim: ArrayLike, kv_bytes: float) -> Floats:
    """The times of a layer's attention, in ms, for ``sequences`` decoding sequences, each with ``context`` tokens in
    its KV cache.
    """
    count, dim, heads = np.asarray(sequences, float), np.asarray(head_dim), np.asarray(heads)
    read = count * np.asarray(context, float) * dim
    both = _both(2 * kv_bytes * read * np.asarray(kv_heads) / law.bytes_per_ms, 4 * read * heads / law.flop_per_ms,
                 law.sharpness)
    return np.asarray(law.fixed_ms + law.head_ms * count * heads + both)


def prefill_attention_ms(law: PrefillLaw, tokens: ArrayLike, pairs: ArrayLike, heads: ArrayLike, kv_heads: ArrayLike,
                         head_dim: ArrayLike) -> Floats:
    """The times of a layer's attention, in ms, for ``tokens`` tokens of prompts and ``pairs`` pairs of such a token and
    a token to which it attends.
    """
    dim, heads = np.asarray(head_dim), np.asarray(heads, float)
    work, moved = 4 * np.asarray(pairs, float) * heads * dim, 4 * np.asarray(tokens, float) * dim * (heads + kv_heads)
    return law.fixed_ms + _both(work / law.flop_per_ms, moved / law.bytes_per_ms, law.sharpness)


def experts_ms(law: ExpertsLaw, shape: Experts) -> Floats:
    """The times of layers of experts, in ms, if tokens take all experts equally often."""
    tokens, hidden, mlp, active, experts, slices, groups = (np.asarray(one, float) for one in shape[:7])
    touched = experts / groups * -np.expm1(tokens * np.log1p(-np.minimum(active / experts, 1 - 1e-9)))
    size = 3 * hidden * mlp / slices
    both = _both(shape.weight_bytes * size * touched / law.bytes_per_ms,
                 2 * size * tokens * active / groups / law.flop_per_ms, law.sharpness)
    return law.fixed_ms + both + 4 * tokens * hidden / law.activation_bytes_per_ms + law.expert_ms * touched


def moved_ms(law: ReduceLaw | QuantizeLaw, size_bytes: ArrayLike) -> Floats:
    """The times of operators that only move bytes, in ms."""
    return np.asarray(law.fixed_ms + np.asarray(size_bytes, float) / law.bytes_per_ms)


def _both(first: Floats, second: Floats, sharpness: float) -> Floats:
    """The p-norm of two times; it is computed from their ratio, so that no power overflows."""
    large, small = np.maximum(np.maximum(first, second), LEAST_MS), np.minimum(first, second)
    return np.asarray(large * (1 + (small / large) ** sharpness) ** (1 / sharpness))
