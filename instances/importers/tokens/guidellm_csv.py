"""Reads GuideLLM's CSV of versions 0.4 and 0.5, with three header rows and one row per run of a sweep.

The header names only the metrics of successful requests. If a run also had incomplete or failed requests, their metrics
are inserted, four cells each (mean, median, standard deviation, percentiles), and all later cells are shifted to the
right. Therefore cells are located here by counting, not by the header. Incomplete requests have no rate.
"""

import csv
import io
import json
from pathlib import Path

from provision.instances.files.files import read_text
from provision.instances.importers.tokens.contents import written_by
from provision.instances.importers.tokens.guidellm import measured_counts, output_bounds, sound_figures, sweep_load
from provision.models.base.errors import InputError
from provision.models.performance.tokens.loads import Figures, TokenBenchmark, TokenCounts

HEADERS = 3
CELLS = 4
LARGEST_CELL = 2**30
"""The most characters of a cell; a single cell holds all requests of a run."""
MS_PER_S = 1000


def read_guidellm_csv(path: str | Path) -> list[TokenBenchmark]:
    """Read the runs of a sweep.

    Raises
    ------
    InputError
        If the file cannot be read, or a column or cell is not as GuideLLM writes it.
    """
    usual = csv.field_size_limit(LARGEST_CELL)
    try:
        rows = list(csv.reader(io.StringIO(read_text(path), newline="")))
    finally:
        csv.field_size_limit(usual)
    if len(rows) <= HEADERS or "Run Info" not in rows[0]:
        raise InputError(f"{path}: has not GuideLLM's three header rows and a run below; export the benchmark as CSV")
    return [
        _benchmark(f"{path}: run {number}", rows[0], rows[1], row) for number, row in enumerate(rows[HEADERS:], start=1)
    ]


def _benchmark(where: str, groups: list[str], names: list[str], row: list[str]) -> TokenBenchmark:
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
