"""Reads AIPerf's ``profile_export.jsonl``: one JSON object per request, each metric with its value and unit."""

from pathlib import Path
from typing import Any

import numpy as np

from provision.instances.files.files import read_text
from provision.instances.importers.tokens.server import parsed_json, written_by
from provision.models.base.errors import InputError
from provision.models.performance.tokens.loads import Figures, TokenBenchmark

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
        itl=_figures(columns["itl"], gaps),
        tpot=_figures(columns["itl"], every),
        **{key: _figures(columns[key], every) for key in ("ttft", "e2e", *COUNTS)},
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


def _figures(values: np.ndarray, weights: np.ndarray) -> Figures:
    if not weights.any():
        return Figures()
    mean = np.average(values, weights=weights)
    std = np.sqrt(np.average((values - mean) ** 2, weights=weights))
    points = np.percentile(values, PERCENTS, weights=weights, method="inverted_cdf")
    percentiles = dict(zip(PERCENTS, points.tolist(), strict=True))
    return Figures(mean=float(mean), std=float(std), percentiles=percentiles)
