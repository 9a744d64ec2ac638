"""Corrects the laws of operators by the user's tables: the ratio of measured times to the law's times, interpolated
between the measured shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import RegularGridInterpolator

from provision.models.base.arrays import Floats
from provision.models.fitting.operators.laws import EXPERT_PRECISIONS, folder_of, table
from provision.models.performance.operators.laws import (
    WEIGHT_BYTES,
    Experts,
    Gemm,
    GpuOperators,
    decode_attention_ms,
    experts_ms,
    gemm_ms,
    prefill_attention_ms,
)

if TYPE_CHECKING:
    from pandas import DataFrame

Key = tuple[Any, ...]


class TableResiduals:
    """Factors that correct the laws of a GPU type, from the tables to which the laws were fitted; see
    ``compose.Factors``.

    Between measured shapes the logarithm of the factor is linear in the logarithms of the sizes; beyond the measured
    shapes the factor of the nearest shape is kept. If a table has no rows of a model's heads or experts, the factor is
    1.
    """

    def __init__(self, folder: str | Path, gpu: str, laws: GpuOperators) -> None:
        at = folder_of(folder, gpu)
        self._gemm = {name: _products(rows, name, laws) for name, rows in _by(table(at, "gemm_perf"), "gemm_dtype")
                      if name in laws.gemm}
        self._decode = _attention(table(at, "generation_attention_perf"), "step", partial(_decodes_ms, laws))
        self._prefill = _attention(table(at, "context_attention_perf"), "isl", partial(_prefills_ms, laws))
        self._experts = _layers(table(at, "moe_perf"), laws)

    def gemm(self, precision: str, shape: Gemm) -> Floats:
        """See ``compose.Factors.gemm``."""
        found = self._gemm.get(precision)
        return _ones(shape.m) if found is None else _at(found, shape.m, shape.n, shape.k)

    def decode(self, precision: str, heads: Sequence[float], sequences: ArrayLike, context: ArrayLike) -> Floats:
        """See ``compose.Factors.decode``."""
        found = self._decode.get((precision, *heads))
        return _ones(sequences) if found is None else _at(found, sequences, context)

    def prefill(self, precision: str, heads: Sequence[float], tokens: ArrayLike, pairs: ArrayLike) -> Floats:
        """See ``compose.Factors.prefill``. The factors are those of prompts of equal length that have the given numbers
        of tokens and pairs in total.
        """
        found, count = self._prefill.get((precision, *heads)), np.asarray(tokens, float)
        length = 2 * np.asarray(pairs, float) / count
        return _ones(tokens) if found is None else _at(found, count / length, length)

    def experts(self, precision: str, shape: Experts) -> Floats:
        """See ``compose.Factors.experts``."""
        sizes = (float(np.asarray(one)) for one in shape[1:7])
        found = self._experts.get((precision, *sizes))
        return _ones(shape.tokens) if found is None else _at(found, shape.tokens)


def _decodes_ms(laws: GpuOperators, rows: DataFrame, precision: str) -> Floats:
    return decode_attention_ms(
        laws.decode[precision], rows["batch_size"], rows["step"] + 1, rows["num_heads"], rows["num_key_value_heads"],
        rows["head_dim"], WEIGHT_BYTES[precision])


def _prefills_ms(laws: GpuOperators, rows: DataFrame, precision: str) -> Floats:
    tokens = rows["batch_size"] * rows["isl"]
    sizes = (rows[name] for name in ("num_heads", "num_key_value_heads", "head_dim"))
    return prefill_attention_ms(laws.prefill[precision], tokens, tokens * (rows["isl"] + 1) / 2, *sizes)


def _products(rows: DataFrame, name: str, laws: GpuOperators) -> RegularGridInterpolator:
    law_ms = gemm_ms(laws.gemm[name], Gemm(rows["m"], rows["n"], rows["k"], WEIGHT_BYTES[name]))
    return _grid(rows, law_ms, "m", "n", "k")


def _attention(rows: DataFrame, length: str, law: Callable[[DataFrame, str], Floats]) -> dict[Key, Any]:
    """Interpolators of factors over numbers of sequences and their lengths, by (precision, heads, KV heads, head
    dimension).
    """
    if "window_size" in rows:
        rows = rows[rows["window_size"] == 0]
    grouped = rows.groupby(["kv_cache_dtype", "num_heads", "num_key_value_heads", "head_dim"])
    return {(str(key[0]), *map(float, key[1:])): _grid(some, law(some, str(key[0])), "batch_size", length)
            for key, some in grouped}


def _layers(rows: DataFrame, laws: GpuOperators) -> dict[Key, Any]:
    sizes = ["hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"]
    found = {}
    for (name, *shape), some in rows.groupby(["moe_dtype", *sizes]):
        precision = EXPERT_PRECISIONS.get(str(name), str(name))
        if precision in laws.experts:
            key = [float(one) for one in shape]
            hidden, mlp, active, experts, slices, groups = key
            law_ms = experts_ms(laws.experts[precision], Experts(
                some["num_tokens"], hidden, mlp, active, experts, slices, groups, WEIGHT_BYTES[precision]))
            found[(precision, *key)] = _grid(some, law_ms, "num_tokens")
    return found


def _grid(rows: DataFrame, law_ms: ArrayLike, *sizes: str) -> RegularGridInterpolator:
    """An interpolator of the logarithms of factors; a missing shape has the factor of the next smaller shape."""
    logs = np.log(rows["latency"].to_numpy(float) / np.asarray(law_ms, float))
    means = rows[list(sizes)].assign(logs=logs).groupby(list(sizes))["logs"].mean()
    axes = [np.sort(rows[name].unique()).astype(float) for name in sizes]
    whole = np.full([len(one) for one in axes], np.nan)
    places = [np.searchsorted(axis, means.index.get_level_values(name)) for axis, name in zip(axes, sizes, strict=True)]
    whole[tuple(places)] = means.to_numpy()
    return RegularGridInterpolator([np.log(one) for one in axes], _filled(whole), bounds_error=False, fill_value=None)


def _filled(values: Floats) -> Floats:
    """The array without missing values: a missing value is copied from the element before it along the last axis, then
    along the other axes; if there is none, it is 0.
    """
    filled = values.copy()
    for axis in reversed(range(filled.ndim)):
        moved = np.moveaxis(filled, axis, 0)
        for at in range(1, len(moved)):
            moved[at] = np.where(np.isnan(moved[at]), moved[at - 1], moved[at])
    return np.nan_to_num(filled)


def _at(found: RegularGridInterpolator, *sizes: ArrayLike) -> Floats:
    """The factors at the given sizes, which broadcast against each other; beyond the grid the factors at its border."""
    logs = (np.log(np.maximum(np.asarray(one, float), 1e-3)) for one in sizes)
    points = np.stack(np.broadcast_arrays(*logs), axis=-1)
    lowest, highest = ([axis[at] for axis in found.grid] for at in (0, -1))
    return np.asarray(np.exp(found(np.clip(points, lowest, highest))))


def _by(rows: DataFrame, column: str) -> list[tuple[str, DataFrame]]:
    return [(str(name), some) for name, some in rows.groupby(column)]


def _ones(like: ArrayLike) -> Floats:
    return np.ones_like(np.asarray(like, float))
