"""GuideLLM's JSON of flat keys (``guidellm export`` of version 0.3): one object per run of a sweep.

A sweep is a synchronous run, one with as many requests under way as allowed, and runs at constant or Poisson rates in
between. A run at a rate begins with a burst of as many requests as arrive in a second. Prompt and output lengths are
drawn uniformly between the bounds of the run's ``Request Loader``; where it names none, the measured ones are taken.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from provision.instances.importers.tokens.contents import read_json, written_by
from provision.models.base.errors import InputError
from provision.models.performance.tokens.loads import Figures, TokenBenchmark, TokenCounts, TokenLoad

PERCENTS = (0.0, 0.1, 1.0, 5.0, 10.0, 25.0, 75.0, 90.0, 95.0, 99.0, 100.0)
SUFFIX = " [min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max]"
DEFAULT_CONCURRENCY = 512
"""What GuideLLM lets be under way at most, unless told otherwise."""
PROCESSES = 10
"""That GuideLLM sends from, unless told otherwise."""
ARRIVALS = {
    "synchronous": "closed",
    "concurrent": "closed",
    "throughput": "closed",
    "constant": "constant",
    "poisson": "poisson",
}


def read_guidellm(path: str | Path) -> list[TokenBenchmark]:
    """The runs of a sweep.

    Raises
    ------
    InputError
        When the file cannot be read, or a field is missing or of another kind than expected.
    """
    runs = read_json(path)
    if not isinstance(runs, list) or not runs:
        raise InputError(f"{path}: holds no list of GuideLLM's runs; export the benchmark as JSON")
    return [_benchmark(f"{path}: run {number}", run) for number, run in enumerate(runs, start=1)]


def _benchmark(where: str, run: dict[str, Any]) -> TokenBenchmark:
    """One run; ``where`` names it."""
    with written_by("GuideLLM", where):
        arguments, worker = json.loads(run["Args"]), json.loads(run["Worker"])
        prompt, output = _figures(run, "Total Prompt token count"), _figures(run, "Successful Output token count")
        bounds = output_bounds(json.loads(run["Request Loader"])["data"])
        output_counts = TokenCounts.uniform(*bounds) if bounds else measured_counts(output)
        return TokenBenchmark(
            name=run["Name"],
            model=worker["backend_model"],
            load=sweep_load(arguments["strategy"], float(run["Duration"]), measured_counts(prompt), output_counts),
            rate_rps=float(run["Successful Requests per second mean"]),
            completed=int(run["Successful Requests"]),
            failed=int(run["Errored Requests"]),
            unfinished=int(run["Incomplete Requests"]),
            ttft=_figures(run, "Successful Time to first token ms"),
            itl=_figures(run, "Successful Inter token latency ms"),
            tpot=_figures(run, "Successful Time per output token ms"),
            e2e=_figures(run, "Successful Request latency", 1000),
            prompt=prompt,
            output=output,
        )


def sweep_load(strategy: dict[str, Any], duration_s: float, prompt: TokenCounts, output: TokenCounts) -> TokenLoad:
    """The load of a run from GuideLLM's description of its strategy."""
    kind, rate = strategy["type_"], strategy.get("rate")
    most = 1 if kind == "synchronous" else strategy.get("streams") or strategy.get("max_concurrency")
    return TokenLoad(
        arrivals=ARRIVALS[kind],
        rate_rps=rate,
        concurrency=most or DEFAULT_CONCURRENCY,
        senders=1 if kind == "synchronous" else strategy.get("worker_count", PROCESSES),
        burst=math.floor(rate) if rate and strategy.get("initial_burst") else 0,
        duration_s=duration_s,
        prompt=prompt,
        output=output,
    )


def _figures(run: dict[str, Any], key: str, scale: float = 1) -> Figures:
    """Mean, spread and percentiles under a key."""
    points = run[key + SUFFIX]
    points = json.loads(points) if isinstance(points, str) else points
    mean, median, std = (float(run[f"{key} {name}"]) for name in ("mean", "median", "std dev"))
    return sound_figures(mean, median, std, points, scale)


def sound_figures(mean: float, median: float, std: float, points: list[float], scale: float = 1) -> Figures:
    """Figures from GuideLLM's; without mean and spread where clocks were broken, so that the mean is negative."""
    percentiles = dict(zip(PERCENTS, (float(point) * scale for point in points), strict=True)) | {50.0: median * scale}
    return Figures(
        mean=mean * scale if mean >= 0 else None,
        std=std * scale if mean >= 0 else None,
        percentiles={percent: value for percent, value in sorted(percentiles.items()) if value >= 0},
    )


def output_bounds(data: str) -> tuple[int, int] | None:
    """Fewest and most output tokens that requests are drawn with, where they are drawn uniformly between bounds."""
    pairs = dict(pair.strip().split("=", 1) for pair in data.split(",") if "=" in pair)
    if "output_tokens_stdev" in pairs or not {"output_tokens_min", "output_tokens_max"} <= pairs.keys():
        return None
    return int(pairs["output_tokens_min"]), int(pairs["output_tokens_max"])


def measured_counts(figures: Figures) -> TokenCounts:
    """Numbers of tokens as measured: through the percentiles, scaled to the mean."""
    levels, tokens = np.array(list(figures.percentiles)) / 100, np.array(list(figures.percentiles.values()))
    counts = TokenCounts(levels=tuple(levels), tokens=tuple(tokens))
    scale = (figures.mean or counts.mean) / counts.mean
    return TokenCounts(levels=counts.levels, tokens=tuple(tokens * scale))
