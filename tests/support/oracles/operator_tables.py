"""Operator times in aiconfigurator's format, made up: those that laws of our own give, on a coarse grid of shapes."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas
import yaml

from provision.models.performance.operators import laws

NO_RESIDUAL = laws.Residual(median=0.0, p90=0.0, rows=0)
GEMM = laws.GemmLaw(fixed_ms=0.004, bytes_per_ms=3e9, flop_per_ms=7e11, sharpness=2.5, half_outputs=2e5,
                    half_inputs=150.0, residual=NO_RESIDUAL)
DECODE = laws.DecodeLaw(fixed_ms=0.012, bytes_per_ms=2.8e9, flop_per_ms=5e11, sharpness=4.0, head_ms=2e-6,
                        residual=NO_RESIDUAL)
PREFILL = laws.PrefillLaw(fixed_ms=0.012, flop_per_ms=6e11, bytes_per_ms=1.2e9, sharpness=1.2, residual=NO_RESIDUAL)
EXPERTS = laws.ExpertsLaw(fixed_ms=0.04, bytes_per_ms=3e9, flop_per_ms=6e11, sharpness=1.5, activation_bytes_per_ms=2e8,
                          expert_ms=5e-5, residual=NO_RESIDUAL)
REDUCE = laws.ReduceLaw(fixed_ms=0.005, bytes_per_ms=2e8, residual=NO_RESIDUAL)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 8192)
SIDES = (512, 1024, 4096, 8192, 16384, 28672)
SYSTEM = {
    "gpu": {"mem_bw": 3.35e12, "mem_bw_empirical_scaling_factor": 0.8, "mem_empirical_constant_latency": 3e-6,
            "mem_capacity": 85899345920},
    "misc": {"other_mem": 3758096384},
}


def write_tables(folder: Path) -> Path:
    """Tables of an H100 in a folder; the folder."""
    at = folder / "h100_sxm"
    at.mkdir(parents=True)
    (at / "system.yaml").write_text(yaml.safe_dump(SYSTEM))
    for name, rows in (("gemm_perf", _products()), ("generation_attention_perf", _decodes()),
                       ("context_attention_perf", _prefills()), ("moe_perf", _experts()),
                       ("custom_allreduce_perf", _reduces())):
        rows.assign(version="0.0.0").to_parquet(at / f"{name}.parquet")
    return folder


def _products():
    rows = pandas.DataFrame(list(product(TOKENS, SIDES, SIDES)), columns=["m", "n", "k"])
    times = laws.gemm_ms(GEMM, laws.Gemm(rows["m"], rows["n"], rows["k"], 2.0))
    return rows.assign(gemm_dtype="bfloat16", latency=times)


def _heads(lengths, many):
    sizes = [(heads, heads // group) for heads in (8, 16, 32) for group in (4,)]
    grid = [(count, length, *size, 128) for count, length, size in product(many, lengths, sizes)]
    columns = ["batch_size", "length", "num_heads", "num_key_value_heads", "head_dim"]
    return pandas.DataFrame(grid, columns=columns).assign(kv_cache_dtype="bfloat16", window_size=0)


def _decodes():
    rows = _heads((1, 63, 1023, 8191), (1, 8, 64, 256))
    times = laws.decode_attention_ms(DECODE, rows["batch_size"], rows["length"] + 1, rows["num_heads"],
                                     rows["num_key_value_heads"], rows["head_dim"], 2.0)
    return rows.rename(columns={"length": "step"}).assign(latency=times)


def _prefills():
    rows = _heads((16, 256, 2048, 8192), (1, 4))
    tokens = rows["batch_size"] * rows["length"]
    times = laws.prefill_attention_ms(PREFILL, tokens, tokens * (rows["length"] + 1) / 2, rows["num_heads"],
                                      rows["num_key_value_heads"], rows["head_dim"])
    return rows.rename(columns={"length": "isl"}).assign(latency=times)


def _experts():
    columns = ["num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"]
    rows = pandas.DataFrame([(tokens, *shape) for tokens in TOKENS for shape in (
        (2048, 768, 8, 128, 1, 1), (2048, 768, 8, 128, 2, 1), (4096, 14336, 2, 8, 1, 1))], columns=columns)
    times = laws.experts_ms(EXPERTS, laws.Experts(*(rows[name] for name in columns), 2.0))
    return rows.assign(moe_dtype="bfloat16", distribution="balanced", latency=times)


def _reduces():
    grid = list(product((2, 4, 8), np.logspace(7, 25, 7, base=2)))
    rows = pandas.DataFrame(grid, columns=["num_gpus", "message_size"])
    times = laws.moved_ms(REDUCE, 2 * rows["message_size"])
    return rows.assign(backend="vllm_graph", latency=times)


if __name__ == "__main__":
    write_tables(Path(__file__).parents[2] / "data/operators")
