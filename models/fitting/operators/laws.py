"""Fits the laws of operators to measured times, by least squares on logarithms with a robust loss; one fit per law.

The tables are those of aiconfigurator (Apache-2.0): a folder per GPU type with a table per operator (parquet) and
``system.yaml``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import yaml
from scipy.optimize import least_squares

from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.models.performance.operators.laws import (
    WEIGHT_BYTES,
    DecodeLaw,
    Experts,
    ExpertsLaw,
    Gemm,
    GemmLaw,
    GpuOperators,
    PrefillLaw,
    QuantizeLaw,
    ReduceLaw,
    Residual,
    decode_attention_ms,
    experts_ms,
    gemm_ms,
    moved_ms,
    prefill_attention_ms,
)

if TYPE_CHECKING:
    from pandas import DataFrame

FOLDERS = {"a100-80gb": "a100_sxm", "h100-80gb": "h100_sxm", "h200-141gb": "h200_sxm", "l40s": "l40s",
           "b200-180gb": "b200_sxm"}
"""The folder of the tables of each GPU type."""
EXPERT_PRECISIONS = {"w4a16_mxfp4": "mxfp4", "w4a8_mxfp4_mxfp8": "mxfp4_mxfp8", "int4_wo": "int4"}
"""The precision for each name in the table of experts; precisions with the same name there are left out."""
ROBUST = 0.1
"""Relative errors much larger than this count linearly, not squared."""
ROWS = 6000
"""The most rows of a table to which a law is fitted, drawn with SEED; the residual is computed on all rows."""
SEED = 0
DIGITS = 4
NARROWEST, WIDEST, SMALLEST = 512, 2**15, 2**20
"""The bounds on matrices of a decoder: the least and the largest number of rows and of columns, and the least number of
elements.
"""
MOST_REDUCED = 2**27
"""The bytes of the largest message whose all-reduce is fitted; servers use another kernel for larger messages."""
REGULAR_DIMS = (64, 128)
"""The head dimensions for which attention is fitted."""
NO_RESIDUAL = Residual(median=0.0, p90=0.0, rows=0)
NO_TIME = 1e-9
"""A coefficient below this value counts as 0."""
SHARPEST, FARTHEST = 1.8, 18.0
"""The largest change of the logarithm of a sharpness, and of any other coefficient, from the start of its fit."""
Law = TypeVar("Law")


def fit_operators(folder: str | Path, gpu: str) -> GpuOperators:
    """The laws of a GPU type, fitted to the tables of a folder. Raises InputError if there are no tables of this GPU
    type, or a table cannot be read.
    """
    at = folder_of(folder, gpu)
    system = _system(at)
    gemm, contexts, decodes = (table(at, name) for name in ("gemm_perf", "context_attention_perf",
                                                             "generation_attention_perf"))
    experts, reduces = table(at, "moe_perf"), table(at, "custom_allreduce_perf")
    version = ", ".join(sorted({str(one) for one in gemm["version"]}))
    quantize = (at / "scale_matrix_perf.parquet").exists()
    return GpuOperators(
        source=f"operator times of vLLM {version} on {FOLDERS[gpu]} (ai-dynamo/aiconfigurator, Apache-2.0)",
        gemm={str(name): _gemm(rows, str(name)) for name, rows in gemm.groupby("gemm_dtype")},
        decode={str(name): _decode(rows, str(name)) for name, rows in _regular(decodes).groupby("kv_cache_dtype")},
        prefill={str(name): _prefill(rows) for name, rows in _regular(contexts).groupby("kv_cache_dtype")},
        experts={name: _experts(rows, name) for given, rows in experts.groupby("moe_dtype")
                 if (name := EXPERT_PRECISIONS.get(str(given), str(given))) in WEIGHT_BYTES},
        reduce={str(many): _reduce(rows) for many, rows in _graphs(reduces).groupby("num_gpus")},
        quantize=_quantize(table(at, "scale_matrix_perf"), table(at, "computescale_perf")) if quantize else None,
        elementwise_bytes_per_ms=_rounded(system["gpu"]["mem_bw"] * system["gpu"]["mem_bw_empirical_scaling_factor"]
                                          / 1000),
        elementwise_ms=_rounded(1000 * system["gpu"]["mem_empirical_constant_latency"]),
        memory_bytes=float(system["gpu"]["mem_capacity"]), other_bytes=float(system["misc"]["other_mem"]),
    )


def has_tables(folder: str | Path, gpu: str) -> bool:
    """Whether a folder has tables of a GPU type."""
    return gpu in FOLDERS and (Path(folder) / FOLDERS[gpu]).is_dir()


def folder_of(folder: str | Path, gpu: str) -> Path:
    """The folder with the tables of a GPU type. Raises InputError if there are no such tables."""
    if gpu not in FOLDERS:
        raise InputError(f"--gpu {gpu}: there are no operator times of it; take one of {', '.join(FOLDERS)}")
    return Path(folder) / FOLDERS[gpu]


def _gemm(rows: DataFrame, precision: str) -> GemmLaw:
    sides = rows[["n", "k"]]
    usual = (sides >= NARROWEST).all(axis=1) & (sides <= WIDEST).all(axis=1)
    rows = rows[usual & (sides["n"] * sides["k"] >= SMALLEST)]
    m, n, k = _columns(rows, "m", "n", "k")
    shape = Gemm(m, n, k, WEIGHT_BYTES[precision])
    begin = {"fixed_ms": 3e-3, "bytes_per_ms": 2e9, "flop_per_ms": 5e11, "sharpness": 2.0, "half_outputs": 1e5,
             "half_inputs": 100.0}
    return _fit(GemmLaw, begin, lambda law, take: gemm_ms(law, _taken(shape, take)), _latency(rows))


def _decode(rows: DataFrame, precision: str) -> DecodeLaw:
    count, step, heads, kv_heads, dim = _columns(rows, "batch_size", "step", "num_heads", "num_key_value_heads",
                                                 "head_dim")

    def times(law: DecodeLaw, take: Any) -> Floats:
        return decode_attention_ms(law, count[take], step[take] + 1, heads[take], kv_heads[take], dim[take],
                                   WEIGHT_BYTES[precision])

    begin = {"fixed_ms": 1e-2, "bytes_per_ms": 2e9, "flop_per_ms": 1e11, "sharpness": 2.0, "head_ms": 1e-6}
    return _fit(DecodeLaw, begin, times, _latency(rows))


def _prefill(rows: DataFrame) -> PrefillLaw:
    batch, prompt, heads, kv_heads, dim = _columns(rows, "batch_size", "isl", "num_heads", "num_key_value_heads",
                                                   "head_dim")
    shape = (batch * prompt, batch * prompt * (prompt + 1) / 2, heads, kv_heads, dim)
    begin = {"fixed_ms": 1e-2, "flop_per_ms": 3e11, "bytes_per_ms": 1e9, "sharpness": 1.0}
    return _fit(PrefillLaw, begin, lambda law, take: prefill_attention_ms(law, *(one[take] for one in shape)),
                _latency(rows))


def _experts(rows: DataFrame, precision: str) -> ExpertsLaw:
    tokens, hidden, mlp, active, experts, slices, groups = _columns(
        rows, "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
    shape = Experts(tokens, hidden, mlp, active, experts, slices, groups, WEIGHT_BYTES[precision])
    begin = {"fixed_ms": 3e-2, "bytes_per_ms": 2e9, "flop_per_ms": 5e11, "sharpness": 2.0,
             "activation_bytes_per_ms": 1e9, "expert_ms": 1e-5}
    return _fit(ExpertsLaw, begin, lambda law, take: experts_ms(law, _taken(shape, take)), _latency(rows))


def _reduce(rows: DataFrame) -> ReduceLaw:
    size = 2 * _columns(rows, "message_size")[0]
    rows, size = rows[size <= MOST_REDUCED], size[size <= MOST_REDUCED]
    return _fit(ReduceLaw, {"fixed_ms": 5e-3, "bytes_per_ms": 2e8}, lambda law, take: moved_ms(law, size[take]),
                _latency(rows))


def _quantize(apply: DataFrame, find: DataFrame) -> QuantizeLaw:
    both = apply.merge(find, on=["m", "k"], suffixes=("", "_find"))
    m, k = _columns(both, "m", "k")
    times_ms = _latency(both) + both["latency_find"].to_numpy(float)
    size = 3 * m * k
    return _fit(QuantizeLaw, {"fixed_ms": 3e-3, "bytes_per_ms": 1e9}, lambda law, take: moved_ms(law, size[take]),
                times_ms)


def _fit(kind: Callable[..., Law], begin: Mapping[str, float], times: Callable[[Law, Any], Floats],
         measured_ms: Floats) -> Law:
    """The law of a kind that is closest to the measured times, with its residual."""
    take = np.random.default_rng(SEED).permutation(len(measured_ms))[:ROWS]

    def law_of(logs: Floats) -> Law:
        given = dict(zip(begin, np.exp(logs).tolist(), strict=True))
        return kind(residual=NO_RESIDUAL, **given)

    def errors(logs: Floats) -> Floats:
        return np.log(times(law_of(logs), take) / measured_ms[take])

    first = np.log(list(begin.values()))
    reach = np.array([SHARPEST if name == "sharpness" else FARTHEST for name in begin])
    found = least_squares(errors, first, loss="soft_l1", f_scale=ROBUST, bounds=(first - reach, first + reach))
    every = np.arange(len(measured_ms))
    rounded = dict(zip(begin, (_rounded(one) for one in np.exp(found.x)), strict=True))
    off = np.abs(times(kind(residual=NO_RESIDUAL, **rounded), every) / measured_ms - 1)
    residual = Residual(median=_rounded(np.median(off)), p90=_rounded(np.quantile(off, 0.9)), rows=len(off))
    return kind(residual=residual, **rounded)


def _rounded(value: float) -> float:
    return 0.0 if value < NO_TIME else float(f"{value:.{DIGITS}g}")


def _taken(shape: Any, take: Any) -> Any:
    """A shape with only the rows ``take`` of its arrays; its last field is a number and is kept."""
    return type(shape)(*(one[take] for one in shape[:-1]), shape[-1])


def _columns(rows: DataFrame, *names: str) -> list[Floats]:
    return [rows[name].to_numpy(float) for name in names]


def _latency(rows: DataFrame) -> Floats:
    return rows["latency"].to_numpy(float)


def _regular(rows: DataFrame) -> DataFrame:
    """The rows of attention to all tokens (no window), with regular head dimensions."""
    rows = rows[rows["head_dim"].isin(REGULAR_DIMS)]
    return rows[rows["window_size"] == 0] if "window_size" in rows else rows


def _graphs(rows: DataFrame) -> DataFrame:
    """The rows of all-reduces inside CUDA graphs, as servers run them."""
    return rows[rows["backend"] == "vllm_graph"]


def table(folder: Path, name: str) -> DataFrame:
    """The table of this name in the folder of a GPU type. Raises InputError if the table cannot be read."""
    try:
        import pandas
    except ImportError as error:
        raise InputError("--tables needs pandas and pyarrow; pip install 'gpu-provision[pandas,parquet]'") from error
    path = folder / f"{name}.parquet"
    try:
        return pandas.read_parquet(path)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(f"{path}: cannot be read ({error}); name the folder of aiconfigurator's tables") from error


def _system(folder: Path) -> dict[str, Any]:
    path = folder / "system.yaml"
    try:
        return dict(yaml.load(path.read_text(), yaml.CSafeLoader))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read; name the folder of aiconfigurator's tables") from error
