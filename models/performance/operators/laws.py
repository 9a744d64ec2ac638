"""Times of operators by their shapes: a few coefficients per GPU type, operator and precision.

Every law is a roofline with rounded corners. What an operator moves (bytes over a bandwidth) and what it computes
(operations over a rate) overlap: they take the p-norm of both, the ``sharpness`` p. A fixed time comes on top.
Shapes are arrays that broadcast against each other; times are in ms, bandwidths in bytes/ms, rates in operations/ms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from provision.models.base.arrays import Floats
from provision.models.base.fields import Count, Name, NonNegative, Positive, Record

WEIGHT_BYTES = {"bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625, "mxfp4": 0.53125, "int4": 0.53125}
"""Bytes of a weight by precision, shared scales included: 16 weights of nvfp4 share one of a byte, 32 of mxfp4 one."""

LEAST_MS = 1e-12
"""What takes less time than this takes none."""


class Residual(Record):
    """How far a law is from the measured times that it was fitted to: median and 90th percentile of relative errors."""

    median: NonNegative
    p90: NonNegative
    rows: Count


class GemmLaw(Record):
    """A matrix product (m x k)(k x n). Its rate is half of the full one where the output has ``half_outputs`` numbers,
    and where each of them is a sum of ``half_inputs`` products."""

    fixed_ms: NonNegative
    bytes_per_ms: Positive
    flop_per_ms: Positive
    sharpness: Positive
    half_outputs: NonNegative
    half_inputs: NonNegative
    residual: Residual


class DecodeLaw(Record):
    """Attention of one new token each of some sequences: their KV caches are read, ``head_ms`` is a head's own work."""

    fixed_ms: NonNegative
    bytes_per_ms: Positive
    flop_per_ms: Positive
    sharpness: Positive
    head_ms: NonNegative
    residual: Residual


class PrefillLaw(Record):
    """Attention of prompts: pairs of a token and one that it attends to, and the bytes of queries, keys and values."""

    fixed_ms: NonNegative
    flop_per_ms: Positive
    bytes_per_ms: Positive
    sharpness: Positive
    residual: Residual


class ExpertsLaw(Record):
    """A layer of experts: the weights of those that any token takes, ``expert_ms`` for each, and activations."""

    fixed_ms: NonNegative
    bytes_per_ms: Positive
    flop_per_ms: Positive
    sharpness: Positive
    activation_bytes_per_ms: Positive
    expert_ms: NonNegative
    residual: Residual


class ReduceLaw(Record):
    """An all-reduce over some GPUs."""

    fixed_ms: NonNegative
    bytes_per_ms: Positive
    residual: Residual


class QuantizeLaw(Record):
    """Scaling an activation to a lower precision."""

    fixed_ms: NonNegative
    bytes_per_ms: Positive
    residual: Residual


class GpuOperators(Record):
    """All laws of a GPU type, by precision (of the KV cache for attention, of the GPUs for all-reduces).

    ``elementwise_bytes_per_ms`` and ``elementwise_ms`` are the bandwidth and the fixed time of element-wise work.
    ``memory_bytes`` is the GPU's memory, ``other_bytes`` what of it neither weights nor KV cache may use.
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


class Gemm(NamedTuple):
    """Shapes of matrix products (m x k)(k x n), with the bytes of a weight."""

    m: ArrayLike
    n: ArrayLike
    k: ArrayLike
    weight_bytes: float


class Experts(NamedTuple):
    """Tokens through a layer of experts of some sizes, of which every token takes ``active``."""

    tokens: ArrayLike
    hidden: ArrayLike
    mlp: ArrayLike
    active: ArrayLike
    experts: ArrayLike
    slices: ArrayLike
    """GPUs that every expert is cut over."""
    groups: ArrayLike
    """Groups of GPUs that the experts are dealt out to."""
    weight_bytes: float


def gemm_ms(law: GemmLaw, shape: Gemm) -> Floats:
    """Times of matrix products."""
    m, n, k = (np.asarray(one, float) for one in shape[:3])
    moved = shape.weight_bytes * n * k + min(shape.weight_bytes, 2.0) * m * k + 2 * m * n
    work = 2 * m * n * k * (1 + law.half_outputs / (m * n)) * (1 + law.half_inputs / k)
    return law.fixed_ms + _both(moved / law.bytes_per_ms, work / law.flop_per_ms, law.sharpness)


def decode_attention_ms(law: DecodeLaw, sequences: ArrayLike, context: ArrayLike, heads: ArrayLike, kv_heads: ArrayLike,
                        head_dim: ArrayLike, kv_bytes: float) -> Floats:
    """Times of a layer's attention for so many sequences, with so many tokens each in their KV caches."""
    count, dim, heads = np.asarray(sequences, float), np.asarray(head_dim), np.asarray(heads)
    read = count * np.asarray(context, float) * dim
    both = _both(2 * kv_bytes * read * np.asarray(kv_heads) / law.bytes_per_ms, 4 * read * heads / law.flop_per_ms,
                 law.sharpness)
    return np.asarray(law.fixed_ms + law.head_ms * count * heads + both)


def prefill_attention_ms(law: PrefillLaw, tokens: ArrayLike, pairs: ArrayLike, heads: ArrayLike, kv_heads: ArrayLike,
                         head_dim: ArrayLike) -> Floats:
    """Times of a layer's attention for so many tokens of prompts, with so many pairs of such and one attended to."""
    dim, heads = np.asarray(head_dim), np.asarray(heads, float)
    work, moved = 4 * np.asarray(pairs, float) * heads * dim, 4 * np.asarray(tokens, float) * dim * (heads + kv_heads)
    return law.fixed_ms + _both(work / law.flop_per_ms, moved / law.bytes_per_ms, law.sharpness)


def experts_ms(law: ExpertsLaw, shape: Experts) -> Floats:
    """Times of layers of experts, with all of them equally liked."""
    tokens, hidden, mlp, active, experts, slices, groups = (np.asarray(one, float) for one in shape[:7])
    touched = experts / groups * -np.expm1(tokens * np.log1p(-np.minimum(active / experts, 1 - 1e-9)))
    size = 3 * hidden * mlp / slices
    both = _both(shape.weight_bytes * size * touched / law.bytes_per_ms,
                 2 * size * tokens * active / groups / law.flop_per_ms, law.sharpness)
    return law.fixed_ms + both + 4 * tokens * hidden / law.activation_bytes_per_ms + law.expert_ms * touched


def moved_ms(law: ReduceLaw | QuantizeLaw, size_bytes: ArrayLike) -> Floats:
    """Times of operators that only move bytes."""
    return np.asarray(law.fixed_ms + np.asarray(size_bytes, float) / law.bytes_per_ms)


def _both(first: Floats, second: Floats, sharpness: float) -> Floats:
    """The p-norm of two times; written by their ratio, which no power of a time can overflow."""
    large, small = np.maximum(np.maximum(first, second), LEAST_MS), np.minimum(first, second)
    return np.asarray(large * (1 + (small / large) ** sharpness) ** (1 / sharpness))
