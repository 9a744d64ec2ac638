"""Reads two logs of benchmarks: the results of ``vllm bench serve``, and AIPerf's ``profile_export.jsonl``.

``vllm bench serve`` writes one JSON object per file, or one per line. Times are in ms under keys that end in ``_ms``; a
variant of the format has times in seconds under keys without that ending. Arrivals are Poisson if the burstiness is 1;
with the rate ``inf`` everything is sent at once.

AIPerf writes one JSON object per request, each metric with its value and unit.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from provision.instances.files.files import read_text
from provision.instances.importers.tokens.server import parsed_json, written_by
from provision.models.base.errors import InputError
from provision.models.performance.tokens.loads import Figures, TokenBenchmark, TokenCounts, TokenLoad

MS_PER_S = 1000
NAMED = {"mean": None, "std": None, "median": 50.0}


def read_vllm_bench(path: str | Path) -> list[TokenBenchmark]:
    """Read the runs of a file.

    The lengths of single requests are rarely saved; therefore all requests of a run's load have the run's mean lengths.
    Raises InputError if the file cannot be read, or a field is missing or of another kind.
    """
    text = read_text(path)
    lines = [line for line in text.splitlines() if line.strip()]
    whole = len(lines) < 2 or not all(line.startswith("{") and line.endswith("}") for line in lines)
    if whole:
        return [_benchmark(f"{path}", parsed_json(f"{path}", text))]
    places = [f"{path}:{number}" for number, _ in enumerate(lines, start=1)]
    return [_benchmark(place, parsed_json(place, line)) for place, line in zip(places, lines, strict=True)]


def _benchmark(where: str, run: Any) -> TokenBenchmark:
    if not isinstance(run, dict):
        raise InputError(f"{where}: holds no run of vllm bench; save one with --save-result")
    with written_by("vllm bench serve", where):
        completed = int(run["completed"])
        return TokenBenchmark(
            name=run.get("date") or Path(where).stem,
            model=run.get("model_id"),
            load=_load(run, completed),
            rate_rps=float(run["request_throughput"]),
            completed=completed,
            failed=max(int(run["num_prompts"]) - completed, 0),
            ttft=_figures(run, "ttft"),
            itl=_figures(run, "itl"),
            tpot=_figures(run, "tpot"),
            e2e=_figures(run, "e2el"),
            prompt=Figures(mean=run["total_input_tokens"] / completed),
            output=Figures(mean=run["total_output_tokens"] / completed),
        )


def _load(run: dict[str, Any], completed: int) -> TokenLoad | None:
    """The load of a run; None for gamma arrivals, which this package does not replay."""
    rate, most = float(run["request_rate"]), run.get("max_concurrency") or int(run["num_prompts"])
    bursty = run.get("burstiness", 1.0) != 1.0 and math.isfinite(rate)
    if bursty:
        return None
    return TokenLoad(
        arrivals="poisson" if math.isfinite(rate) else "closed",
        rate_rps=rate if math.isfinite(rate) else None,
        concurrency=most,
        duration_s=float(run["duration"]),
        prompt=_constant(run["total_input_tokens"] / completed),
        output=_constant(run["total_output_tokens"] / completed),
    )


def _constant(tokens: float) -> TokenCounts:
    return TokenCounts.uniform(tokens, tokens)


def _figures(run: dict[str, Any], metric: str) -> Figures:
    """Statistics of a metric, from keys such as ``p99_ttft_ms``, or ``p99_ttft`` in seconds."""
    found: dict[str, float] = {}
    for ending, scale in ((f"_{metric}", MS_PER_S), (f"_{metric}_ms", 1)):
        keys = {key: key.removesuffix(ending) for key in run if key.endswith(ending)}
        found |= {name: float(run[key]) * scale for key, name in keys.items() if run[key] is not None}
    percentiles = {float(name[1:]): value for name, value in found.items() if name not in NAMED}
    if "median" in found:
        percentiles[50.0] = found["median"]
    return Figures(mean=found.get("mean"), std=found.get("std"), percentiles=dict(sorted(percentiles.items())))


MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "sec": 1e3, "s": 1e3}
"""The number of milliseconds in each unit of time."""
PERCENTS = (0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 100.0)
TIMES = {"ttft": "time_to_first_token", "itl": "inter_token_latency", "e2e": "request_latency"}
COUNTS = {"prompt": "input_sequence_length", "output": "output_sequence_length"}
NS_PER_S = 1e9


def read_aiperf(path: str | Path) -> TokenBenchmark:
    """Make a benchmark from all requests of the profiling phase; requests of the warm-up are left out.

    The file does not tell how requests were sent; therefore the benchmark has no load. The inter-token latency is
    weighted by tokens, as in this package's replays, and the time per output token by requests. Raises InputError if
    the file cannot be read, holds no answered request, or a field is missing or of another kind.
    """
    rows = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if line.strip():
            rows.append(_row(f"{path}:{number}", parsed_json(f"{path}:{number}", line)))
    profiled = [row for row in rows if row]
    answered = [row for row in profiled if not row["failed"]]
    if not answered:
        raise InputError(f"{path}: holds no answered request of the profiling phase; export the profile again")
    columns = {key: np.array([row[key] for row in answered]) for key in (*TIMES, *COUNTS)}
    span_s = (max(row["end"] for row in answered) - min(row["start"] for row in answered)) / NS_PER_S
    every, gaps = np.ones(len(answered)), np.maximum(columns["output"] - 1, 0)
    return TokenBenchmark(
        name=Path(path).stem,
        rate_rps=len(answered) / span_s if span_s > 0 else None,
        completed=len(answered),
        failed=len(profiled) - len(answered),
        itl=_weighted(columns["itl"], gaps),
        tpot=_weighted(columns["itl"], every),
        **{key: _weighted(columns[key], every) for key in ("ttft", "e2e", *COUNTS)},
    )


def _row(where: str, record: Any) -> dict[str, float] | None:
    """Times of a request in ms, counts in tokens, start and end in ns; None for a request of the warm-up."""
    with written_by("AIPerf", where):
        about, metrics = record["metadata"], record["metrics"]
        if about.get("benchmark_phase", "profiling") != "profiling":
            return None
        failed = bool(record.get("error") or about.get("was_cancelled"))
        row = {"failed": failed, "start": about["request_start_ns"], "end": about["request_end_ns"]}
        if not failed:
            row |= {key: metrics[name]["value"] * MS[metrics[name]["unit"]] for key, name in TIMES.items()}
            row |= {key: metrics[name]["value"] for key, name in COUNTS.items()}
        return row


def _weighted(values: np.ndarray, weights: np.ndarray) -> Figures:
    if not weights.any():
        return Figures()
    mean = np.average(values, weights=weights)
    std = np.sqrt(np.average((values - mean) ** 2, weights=weights))
    points = np.percentile(values, PERCENTS, weights=weights, method="inverted_cdf")
    percentiles = dict(zip(PERCENTS, points.tolist(), strict=True))
    return Figures(mean=float(mean), std=float(std), percentiles=percentiles)
