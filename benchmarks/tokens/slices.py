"""Times of language models on MIG slices: published ones beside those composed of the operator times of whole GPUs.

    .venv/bin/python benchmarks/tokens/slices.py

PUBLISHED has what fergusfinn/mps-embedding-inference (9642cf2, February 2026) measured with vLLM 0.15.1 and
Qwen3-30B-A3B-FP8 on an H200: clients in a closed loop, prompts of about 30 tokens and answers of 512. Nothing is fitted
to it. Neighbours are Qwen3-Embedding-8B at full load; on a slice they changed nothing (0.3 %).

Beside it stands what is predicted for SMALL on slices of an H100, which nobody has measured: LOAD clients each.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
import results

from provision.draw.output import print_table
from provision.instances.importers.tokens.composed import Asked
from provision.models.fitting.operators.costs import fit_costs
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.operators.compose import PLAIN, Served
from provision.models.performance.operators.decoder import shipped_decoder
from provision.models.performance.operators.servers import server_software
from provision.models.performance.tokens.batching import replay
from provision.models.performance.tokens.records import Clients, Engine, request_table


class Load(NamedTuple):
    """Clients in a closed loop, and the tokens of their prompts and answers."""

    clients: int
    prompt: int
    output: int


MODEL, GPU, PRECISION, SERVER = "qwen3-30b-a3b", "h200-141gb", "fp8_block", "vllm"
PROMPT, OUTPUT, WAVES = 30, 512, 4
SMALL, SMALL_GPU = ("qwen3-0.6b", "qwen3-1.7b", "qwen3-4b"), "h100-80gb"
SMALL_SLICES = ("1g.10gb", "2g.20gb", "3g.40gb", WHOLE)
LOAD = Load(8, 1024, 256)
PUBLISHED = (
    (WHOLE, 512, "", 20.8), (WHOLE, 512, "time-sliced", 22.7), (WHOLE, 512, "under MPS", 23.8),
    ("4g.71gb", 64, "", 1000 / 90.2), ("4g.71gb", 256, "", 1000 / 46.3), ("4g.71gb", 512, "", 1000 / 29.3),
)
"""The profile, clients, how a neighbour shares the GPU, and the median time of a token, in ms."""
PREDICTED = ("model", "slice", "per_gpu", "kv_tokens", "token_ms", "tokens_per_s")
COLUMNS = ("slice", "clients", "neighbour", "measured_ms", "predicted_ms", "ratio")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_results(parser)
    options = parser.parse_args()
    rows = []
    for profile, clients, neighbour, measured_ms in PUBLISHED:
        predicted_ms = token_ms(_asked(MODEL, GPU, PRECISION).on(1, profile), Load(clients, PROMPT, OUTPUT))
        rows.append((profile, clients, neighbour or "none", measured_ms, predicted_ms, predicted_ms / measured_ms))
    small = [row for name in SMALL for profile in SMALL_SLICES if (row := _predicted(name, profile))]
    for name, columns, table in (("slices", COLUMNS, rows), ("slices-small", PREDICTED, small)):
        print_table(columns, [[f"{one:.2f}" if isinstance(one, float) else one for one in row] for row in table])
        results.write(options.results, name, columns, table)


def _asked(name: str, gpu: str, precision: str) -> Asked:
    """A shipped decoder under SERVER."""
    return Asked(name, shipped_decoder(name), gpu, server_software(SERVER, name, gpu), SERVER, precision)


def _predicted(name: str, profile: str) -> tuple[object, ...] | None:
    """A row of PREDICTED; None where the slice does not hold the requests."""
    served = _asked(name, SMALL_GPU, PLAIN).on(1, profile)
    if served.kv_tokens < LOAD.clients * (LOAD.prompt + LOAD.output):
        return None
    many = 1 if profile == WHOLE else gpu_type(SMALL_GPU).profiles[profile].max
    time_ms = token_ms(served, LOAD)
    return name, profile, many, served.kv_tokens, time_ms, 1000 * many * LOAD.clients / time_ms


def token_ms(served: Served, load: Load) -> float:
    """The median time of a token of requests alone on a slice, in ms: their whole time by the tokens of the answer."""
    software = server_software(SERVER, MODEL, GPU)
    costs = software.around(fit_costs(served).costs, served.decoder, 1)
    engine = Engine(8192, max(load.clients, 256), 16, served.kv_tokens // 16, scheduled_ahead=software.scheduled_ahead)
    count = load.clients * WAVES
    table = request_table(np.zeros(count), np.full(count, load.prompt), np.full(count, load.output), engine)
    replay(table, costs=costs, engine=engine, clients=Clients(load.clients), until_ms=np.inf)
    return float(np.median(table["end_ms"] - table["sent_ms"])) / load.output


if __name__ == "__main__":
    main()
