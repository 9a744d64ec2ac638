"""Reads GuideLLM's JSON and CSV, with one object or row per run of a sweep.

A sweep consists of a synchronous run, a run with as many requests under way as allowed, and runs at constant or Poisson
rates in between. A run at a rate begins with a burst of as many requests as arrive in a second. Numbers of tokens are
drawn uniformly between the bounds of the run's ``Request Loader``, by Python's random number generator with the
profile's seed (prompts) and the next seed (outputs). The runs of a sweep continue in one sequence of samples, so that
the exact requests of every run are known. If bounds or seed are missing, numbers of tokens are drawn from the measured
distribution.

The header of the CSV (versions 0.4 and 0.5, three rows) names only the metrics of successful requests. If a run also
had incomplete or failed requests, their metrics are inserted, four cells each (mean, median, standard deviation,
percentiles), and all later cells are shifted to the right. Therefore cells are located here by counting, not by the
header. Incomplete requests have no rate.
"""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from provision.instances.files.files import read_text
from provision.instances.importers.tokens.server import read_json, written_by
from provision.models.base.errors import InputError
from provision.models.performance.tokens.loads import Figures, TokenBenchmark, TokenCounts, TokenDraws, TokenLoad

HEADERS = 3
CELLS = 4
LARGEST_CELL = 2**30
"""The most characters of a cell; a single cell holds all requests of a run."""
MS_PER_S = 1000


def read_guidellm_csv(path: str | Path) -> list[TokenBenchmark]:
    """Read the runs of a sweep. Raises InputError if the file cannot be read, or a column or cell is not as GuideLLM
    writes it.
    """
    usual = csv.field_size_limit(LARGEST_CELL)
    try:
        rows = list(csv.reader(io.StringIO(read_text(path), newline="")))
    finally:
        csv.field_size_limit(usual)
    if len(rows) <= HEADERS or "Run Info" not in rows[0]:
        raise InputError(f"{path}: has not GuideLLM's three header rows and a run below; export the benchmark as CSV")
    return [
        _benchmark_of_row(f"{path}: run {number}", rows[0], rows[1], row)
        for number, row in enumerate(rows[HEADERS:], start=1)
    ]


def _benchmark_of_row(where: str, groups: list[str], names: list[str], row: list[str]) -> TokenBenchmark:
    with written_by("GuideLLM", where):
        cells = dict(zip(names[: groups.index("Request Latency")], row, strict=False))
        unfinished, failed = int(cells["Incomplete"]), int(cells["Errored"])
        metrics = _metrics(row[groups.index("Request Latency") :], bool(unfinished), bool(failed))
        bounds = output_bounds(_data(json.loads(cells["Requests"])["data"]))
        prompt = measured_counts(metrics["prompt"])
        output = TokenCounts.uniform(*bounds) if bounds else measured_counts(metrics["output"])
        strategy = json.loads(cells["Profile"])["completed_strategies"][int(cells["Run Index"])]
        return TokenBenchmark(
            name=cells["Strategy"],
            model=json.loads(cells["Backend"]).get("model"),
            load=sweep_load(strategy, float(cells["Duration"]), prompt, output),
            rate_rps=metrics.pop("rate").mean,
            completed=int(cells["Successful"]),
            failed=failed,
            unfinished=unfinished,
            **metrics,
        )


def _data(text: str) -> str:
    """The description of the requests, without the brackets and quotes of the list in which it is written."""
    return text.strip("[]'\"")


def _metrics(cells: list[str], unfinished: bool, failed: bool) -> dict[str, Figures]:
    """Metrics of successful requests; ``cells`` begin at the request latency and are located by counting."""
    all_states, rate_states = 1 + unfinished + failed, 1 + failed
    widths = {
        "e2e": 1, "chunks": all_states, "ttft": all_states, "tpot": all_states, "itl": all_states, "rate": rate_states,
        "concurrency": all_states, "prompt": all_states, "output": all_states,
    }  # fmt: skip
    found, at = {}, 0
    for name, width in widths.items():
        mean, median, std = map(float, cells[at : at + 3])
        found[name] = sound_figures(mean, median, std, json.loads(cells[at + 3]), MS_PER_S if name == "e2e" else 1)
        at += CELLS * width
    del found["chunks"], found["concurrency"]
    return found


PERCENTS = (0.0, 0.1, 1.0, 5.0, 10.0, 25.0, 75.0, 90.0, 95.0, 99.0, 100.0)
SUFFIX = " [min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max]"
POINTS = ("p001", "p01", "p05", "p10", "p25", "p75", "p90", "p95", "p99")
NESTED = {
    "Total Prompt token count": ("prompt_token_count", "total"),
    "Successful Output token count": ("output_token_count", "successful"),
    "Successful Time to first token ms": ("time_to_first_token_ms", "successful"),
    "Successful Inter token latency ms": ("inter_token_latency_ms", "successful"),
    "Successful Time per output token ms": ("time_per_output_token_ms", "successful"),
    "Successful Request latency": ("request_latency", "successful"),
}
"""The place of each metric in a report as GuideLLM saves it: (its name, which requests count)."""
DEFAULT_CONCURRENCY = 512
"""GuideLLM's default of the most requests under way."""
ARRIVALS = {
    "synchronous": "closed",
    "concurrent": "closed",
    "throughput": "closed",
    "constant": "constant",
    "poisson": "poisson",
}


def read_guidellm(path: str | Path) -> list[TokenBenchmark]:
    """Read the runs of a sweep. Raises InputError if the file cannot be read, or a field is missing or of another kind
    than expected.
    """
    runs = read_json(path)
    if isinstance(runs, dict) and isinstance(runs.get("benchmarks"), list):
        with written_by("GuideLLM", f"{path}: benchmarks"):
            runs = [_flat(run) for run in runs["benchmarks"]]
    if not isinstance(runs, list) or not runs:
        raise InputError(f"{path}: holds no list of GuideLLM's runs; export the benchmark as JSON")
    found, drawn = [], 0
    for number, run in enumerate(runs, start=1):
        found.append(_benchmark(f"{path}: run {number}", run, drawn))
        drawn += _drawn_by(found[-1])
    return found


def _flat(run: dict[str, Any]) -> dict[str, Any]:
    """A run of a report as GuideLLM saves it (``{"benchmarks": [...]}``), under the flat keys of its export.

    Up to version 0.3 a run has ``args``, ``worker`` and ``request_loader``; later all three are in ``config``.
    """
    config, metrics = run.get("config") or {}, run["metrics"]
    arguments, totals = run.get("args") or config, metrics["request_totals"]
    model = run["worker"]["backend_model"] if "worker" in run else config["backend"].get("model")
    data = (run.get("request_loader") or config["requests"])["data"]
    took_s = run["duration"] if "duration" in run else run["end_time"] - run["start_time"]
    found = {
        "Args": json.dumps(arguments), "Worker": json.dumps({"backend_model": model}), "Duration": took_s,
        "Request Loader": json.dumps({"data": str(data[0] if isinstance(data, list) else data)}),
        "Name": arguments["strategy"]["type_"], "Successful Requests": totals["successful"],
        "Errored Requests": totals["errored"], "Incomplete Requests": totals["incomplete"],
        "Successful Requests per second mean": metrics["requests_per_second"]["successful"]["mean"],
    }
    for key, (name, part) in NESTED.items():
        told = metrics[name][part]
        found |= {f"{key} {word}": told[word.replace(" ", "_")] for word in ("mean", "median", "std dev")}
        found[key + SUFFIX] = [told["min"], *(told["percentiles"][point] for point in POINTS), told["max"]]
    return found


def _drawn_by(run: TokenBenchmark) -> int:
    """The number of requests that a run has drawn: requests sent, and requests that wait at the clients when the run
    ends.
    """
    sent = (run.completed or 0) + (run.failed or 0) + (run.unfinished or 0)
    waiting = run.load and run.load.rate_rps is None and run.load.concurrency > 1
    return sent + (run.load.concurrency if run.load and waiting else 0)


def _benchmark(where: str, run: dict[str, Any], drawn: int) -> TokenBenchmark:
    """The benchmark of one run; ``where`` names the run, and earlier runs of the sweep have drawn ``drawn`` requests.
    """
    with written_by("GuideLLM", where):
        arguments, worker = json.loads(run["Args"]), json.loads(run["Worker"])
        prompt, output = _figures(run, "Total Prompt token count"), _figures(run, "Successful Output token count")
        data = json.loads(run["Request Loader"])["data"]
        bounds = output_bounds(data)
        counts = _draws(data, arguments.get("profile", {}).get("random_seed"), drawn) or (
            measured_counts(prompt), TokenCounts.uniform(*bounds) if bounds else measured_counts(output))
        return TokenBenchmark(
            name=run["Name"],
            model=worker["backend_model"],
            load=sweep_load(arguments["strategy"], float(run["Duration"]), *counts),
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


def _draws(data: str, seed: int | None, drawn: int) -> tuple[TokenDraws, TokenDraws] | None:
    """The draws of prompts and outputs of a run, after ``drawn`` requests; None if bounds, seed or cycle are
    unknown."""
    told = _told(data)
    prompt, output = _bounds(told, "prompt"), _bounds(told, "output")
    if seed is None or "samples" not in told or prompt is None or output is None:
        return None
    cycle = int(told["samples"])
    return (TokenDraws(fewest=prompt[0], most=prompt[1], seed=seed, cycle=cycle, skipped=drawn % cycle),
            TokenDraws(fewest=output[0], most=output[1], seed=seed + 1, cycle=cycle, skipped=drawn % cycle))


def sweep_load(strategy: dict[str, Any], duration_s: float, prompt: TokenCounts | TokenDraws,
               output: TokenCounts | TokenDraws) -> TokenLoad:
    """The load of a run from GuideLLM's description of its strategy."""
    kind, rate = strategy["type_"], strategy.get("rate")
    most = 1 if kind == "synchronous" else strategy.get("streams") or strategy.get("max_concurrency")
    return TokenLoad(
        arrivals=ARRIVALS[kind],
        rate_rps=rate,
        concurrency=most or DEFAULT_CONCURRENCY,
        burst=math.floor(rate) if rate and strategy.get("initial_burst") else 0,
        duration_s=duration_s,
        prompt=prompt,
        output=output,
    )


def _figures(run: dict[str, Any], key: str, scale: float = 1) -> Figures:
    """Mean, standard deviation and percentiles of the metric under a key, multiplied by ``scale``."""
    points = run[key + SUFFIX]
    points = json.loads(points) if isinstance(points, str) else points
    mean, median, std = (float(run[f"{key} {name}"]) for name in ("mean", "median", "std dev"))
    return sound_figures(mean, median, std, points, scale)


def sound_figures(mean: float, median: float, std: float, points: list[float], scale: float = 1) -> Figures:
    """Figures from GuideLLM's numbers; a negative mean, due to clocks that differ, is left out with the standard
    deviation.
    """
    percentiles = dict(zip(PERCENTS, (float(point) * scale for point in points), strict=True)) | {50.0: median * scale}
    return Figures(
        mean=mean * scale if mean >= 0 else None,
        std=std * scale if mean >= 0 else None,
        percentiles={percent: value for percent, value in sorted(percentiles.items()) if value >= 0},
    )


def output_bounds(data: str) -> tuple[int, int] | None:
    """The bounds between which numbers of output tokens are drawn uniformly; None if they are drawn otherwise."""
    return _bounds(_told(data), "output")


def _told(data: str) -> dict[str, str]:
    """GuideLLM's description of its requests, ``name=value,...``, as a dict."""
    return dict(pair.strip().split("=", 1) for pair in data.split(",") if "=" in pair)


def _bounds(told: dict[str, str], kind: str) -> tuple[int, int] | None:
    """The bounds between which numbers of tokens of prompts or outputs are drawn uniformly; None if there are none."""
    names = f"{kind}_tokens_min", f"{kind}_tokens_max"
    if f"{kind}_tokens_stdev" in told or not set(names) <= told.keys():
        return None
    return int(told[names[0]]), int(told[names[1]])


def measured_counts(figures: Figures) -> TokenCounts:
    """The distribution of measured numbers of tokens: it passes through the percentiles, scaled to the measured mean.
    """
    levels, tokens = np.array(list(figures.percentiles)) / 100, np.array(list(figures.percentiles.values()))
    counts = TokenCounts(levels=tuple(levels), tokens=tuple(tokens))
    scale = (figures.mean or counts.mean) / counts.mean
    return TokenCounts(levels=counts.levels, tokens=tuple(tokens * scale))
