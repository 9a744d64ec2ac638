"""P99 of TTFT and TPOT at the rates of MLPerf's language models, composed of operator times, against those measured.

    .venv/bin/python benchmarks/tokens/mlperf.py ../shared/data/mlperf_llm/v5.1.csv

Nothing is fitted to these rows. Each is a server or several under Poisson arrivals at the highest rate that its
submitter showed. The results do not tell input lengths, so those of the data sets are taken, nor how GPUs are put
together: of the groups that hold the model the one is taken that carries most per GPU by the prediction. Rows of models
or GPU types without operator times are left out, and so are those whose GPUs are not given.

The last line: ``rows N carried M ttft_p99 R tpot_p99 R``: M rows whose rate the predicted servers carry at all, and
over these the medians of predicted over measured P99.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
import results

from provision.models.fitting.operators.costs import fit_costs
from provision.models.performance.operators.compose import Served
from provision.models.performance.operators.decoder import shipped_decoder
from provision.models.performance.operators.servers import server_software, shipped_operators
from provision.models.performance.tokens.operating import SUSTAINED, answers_ms, saturated_rps
from provision.models.performance.tokens.records import Engine
from provision.models.performance.tokens.requests import Lengths
from provision.models.performance.tokens.step import TokenCosts
from provision.models.traffic.arrivals import POISSON

GPUS = {"B200": "b200-180gb", "GB200": "b200-180gb", "H200": "h200-141gb", "H100": "h100-80gb", "L40S": "l40s",
        "A100": "a100-80gb"}
"""GPU types by a word of their names; a GB200's GPU is taken for a B200."""
PRECISIONS = {"fp4": "nvfp4", "fp8": "fp8"}
INPUTS = {"llama2-70b": {"mean": 294.0, "p99": 900.0, "max": 1024.0},
          "llama3.1-8b": {"mean": 778.0, "p99": 1900.0, "max": 2540.0},
          "llama3.1-405b": {"mean": 9428.0, "p99": 19000.0, "max": 20000.0},
          "mixtral-8x7b": {"mean": 294.0, "p99": 900.0, "max": 1024.0}}
"""Tokens of prompts in the data sets: OpenOrca, CNN-DailyMail, long documents, OpenOrca with code and sums."""
LONGEST = {"llama2-70b": 1024, "llama3.1-8b": 128, "llama3.1-405b": 2000, "mixtral-8x7b": 1024}
"""The most tokens of an answer by the rules."""
SPREAD = 3.0
"""P99 over mean of answers, where the rules permit it."""
BUDGET, SEQUENCES, BLOCK = 8192, 1024, 16
DEGREES = (1, 2, 4, 8)
SEED = 0


class Run(NamedTuple):
    """A measured run: model and GPU type, precision, software, GPUs, requests/s, mean output, P99s in ms."""

    model: str
    scenario: str
    gpu: str
    precision: str
    server: str
    gpus: int
    rate_rps: float
    output: float
    ttft_ms: float
    tpot_ms: float


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE.csv", type=Path)
    parser.add_argument("--first", type=int, metavar="N", help="that many rows only")
    results.add_results(parser)
    arguments = parser.parse_args()
    known: dict[tuple[object, ...], tuple[TokenCosts, int]] = {}
    groups: dict[str, list[tuple[float, float] | None]] = {}
    for run in list(_runs(arguments.file))[: arguments.first]:
        name = f"{run.model} {run.scenario} {run.gpu}"
        groups.setdefault(name, []).append(_ratios(run, known))
    if not groups:
        sys.exit(f"{arguments.file}: no run of a model and a GPU type with operator times")
    lines = [(name, *_told(found)) for name, found in sorted(groups.items())]
    lines.append(("all", *_told([one for found in groups.values() for one in found])))
    for name, rows, carried, ttft, tpot in lines:
        shown = f"rows {rows} carried {carried} ttft_p99 {ttft:.2f} tpot_p99 {tpot:.2f}"
        print(shown if name == "all" else f"{name:42} {shown}")
    results.write(arguments.results, "mlperf-language", ("group", "rows", "carried", "ttft_p99", "tpot_p99"), lines,
                  seeds=(SEED,))


def _runs(path: Path) -> Iterator[Run]:
    """The runs that can be predicted, each once."""
    left_out: dict[str, int] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            model = row["model"].split("-99")[0]
            gpu = next((kind for word in row["gpu"].replace("-", " ").split() if (kind := GPUS.get(word))), None)
            precision = PRECISIONS.get(row["precision"])
            reason = ("same run" if row["same_run_as"] else f"model {model}" if model not in INPUTS
                      else f"GPU {row['gpu'] or '(none)'}" if gpu is None
                      else f"precision {row['precision']} on {gpu}" if precision not in shipped_operators()[gpu].gemm
                      else "")
            if reason or gpu is None or precision is None:
                left_out[reason] = left_out.get(reason, 0) + 1
                continue
            server = "vllm" if "vllm" in row["framework"].lower() else "trtllm"
            yield Run(model, row["scenario"], gpu, precision, server, int(row["gpus"]),
                      float(row["scheduled_qps"]), float(row["output_tokens_mean"]), float(row["ttft_p99_ms"]),
                      float(row["tpot_p99_ms"]))
    for reason, many in sorted(left_out.items()):
        print(f"left out: {reason} ({many})")


def _ratios(run: Run, known: dict[tuple[object, ...], tuple[TokenCosts, int]]) -> tuple[float, float] | None:
    """Predicted over measured P99 of TTFT and of TPOT; None where the predicted servers do not carry the rate."""
    prompt = Lengths.model_validate(INPUTS[run.model]).counts
    most = float(LONGEST[run.model])
    output = Lengths(mean=run.output, p99=max(min(SPREAD * run.output, most), run.output), max=most + 1).counts
    best: tuple[float, int, TokenCosts, Engine] | None = None
    for gpus in DEGREES:
        key = (run.model, run.gpu, run.precision, run.server, gpus)
        if key not in known:
            known[key] = _composed(run, gpus)
        costs, kv_tokens = known[key]
        if gpus > run.gpus or kv_tokens < prompt.tokens[-1] + output.tokens[-1] + BLOCK:
            continue
        engine = Engine(BUDGET, SEQUENCES, BLOCK, kv_tokens // BLOCK)
        best = max(best or (0.0, gpus, costs, engine),
                   (saturated_rps(prompt, output, engine, costs) / gpus, gpus, costs, engine))
    if best is None:
        return None
    carried_rps, gpus, costs, engine = best
    rate_rps = run.rate_rps * gpus / run.gpus
    if rate_rps > SUSTAINED * carried_rps * gpus:
        return None
    times_ms = answers_ms(rate_rps, prompt, output, engine, costs, POISSON, SEED)
    ttft_ms, tpot_ms = np.percentile(times_ms[:2], 99, axis=1)
    return float(ttft_ms / run.ttft_ms), float(tpot_ms / run.tpot_ms)


def _composed(run: Run, gpus: int) -> tuple[TokenCosts, int]:
    """The coefficients of a server on so many GPUs, and the tokens that its memory holds."""
    name = run.model.replace("llama2", "llama-2").replace("llama3", "llama-3")
    served = Served(shipped_decoder(name), shipped_operators()[run.gpu], gpus, run.precision, "fp8")
    costs = fit_costs(served).costs if served.kv_tokens else TokenCosts(*([0.0] * len(TokenCosts._fields)))
    return server_software(run.server, name, run.gpu).around(costs, served.decoder, gpus), served.kv_tokens


def _told(found: list[tuple[float, float] | None]) -> tuple[int, int, float, float]:
    carried = [one for one in found if one is not None]
    ttft, tpot = np.median(carried, axis=0) if carried else (np.nan, np.nan)
    return len(found), len(carried), float(ttft), float(tpot)


if __name__ == "__main__":
    main()
