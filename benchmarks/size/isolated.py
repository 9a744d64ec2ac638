"""A million isolated workloads, end to end: the commands that plan, verify and draw them, and what each took.

Run as ``python benchmarks/size/isolated.py [--cases KIND:WORKLOADS ...] [--time-limit S] [--seed N]``. Workloads are
those of ParvaGPU's S5 at a tenth of the rate: in the kind ``like`` times 0.25, 0.5, 1 or 2; in the kind ``distinct``
times 0.2 to 3, with SLOs times 0.7 to 1.5, so that no two are alike. They stand in a Parquet table, and so does the
plan. Every command (``solve``, ``verify``, ``show --html``) runs in a process of its own, whose largest memory is told.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import parquet

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
import results
from cases import options_of

import provision
from provision.draw.output import print_table

COLUMNS = ("case", "limit_s", "gpus", "objective", "bound", "gap_percent",
           *(f"{verb}_{what}" for verb in ("solve", "verify", "show") for what in ("wall_s", "cpu_s", "gib")),
           "workloads_mb", "plan_mb", "page_mb")
INSTANCE = """version: 2
name: {name}
policy: {{latency_budget: half_slo, safety: 0.9}}
fleet: [{{gpu: a100-80gb, price_per_hour: 5.12}}]
performance: parvagpu-a100
workloads: workloads.parquet
"""


class Took(NamedTuple):
    """What a command wrote on stdout, and its seconds and largest memory."""

    said: str
    wall_s: float
    cpu_s: float
    gib: float

    @property
    def cells(self) -> list[float]:
        return [round(self.wall_s, 1), round(self.cpu_s, 1), round(self.gib, 2)]


def write_instance(folder: Path, kind: str, workloads: int, seed: int) -> Path:
    """Write the files of a case; returns that of the instance."""
    base, draw = provision.read("parvagpu-s5").workloads, np.random.default_rng(seed)
    at = np.arange(workloads) % len(base)
    rate_rps, slo_ms = (np.array([getattr(one, name) for one in base])[at] for name in ("rate_rps", "slo_ms"))
    rate_rps = rate_rps / 10
    if kind == "like":
        rate_rps = rate_rps * draw.choice([0.25, 0.5, 1, 2], workloads)
    else:
        rate_rps, slo_ms = rate_rps * draw.uniform(0.2, 3, workloads), slo_ms * draw.uniform(0.7, 1.5, workloads)
    models = [base[index].model for index in at.tolist()]
    names = [f"{model}-{number}" for number, model in enumerate(models)]
    table = pa.table({"name": names, "model": models, "slo_ms": slo_ms, "rate_rps": rate_rps})
    parquet.write_table(table, folder / "workloads.parquet")
    path = folder / "instance.yaml"
    path.write_text(INSTANCE.format(name=f"{kind}-{workloads}"))
    return path


def ran(*command: str) -> Took:
    """Run a command of ``provision``; it must hold."""
    began_s = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", "provision", *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"provision {' '.join(command)} ended with {process.returncode}: {said}")
    return Took(said, time.perf_counter() - began_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20)


def measured(kind: str, workloads: int, limit_s: float, seed: int) -> list[object]:
    """The row of one case."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        instance, plan, page = write_instance(folder, kind, workloads, seed), folder / "plan.parquet", folder / "p.html"
        solve = ran("solve", str(instance), "--out", str(plan), "--time-limit", str(limit_s), "--json")
        verify = ran("verify", str(instance), str(plan))
        show = ran("show", str(instance), str(plan), "--html", str(page))
        sizes = [round(file.stat().st_size / 1e6, 2) for file in (folder / "workloads.parquet", plan, page)]
    found = json.loads(solve.said)
    gap = None if found["gap"] is None else round(100 * found["gap"], 4)
    return [f"{workloads:,} {kind}", limit_s, found["gpus"], found["objective"], found["bound"], gap,
            *solve.cells, *verify.cells, *show.cells, *sizes]


def main() -> None:
    """Print a row per case."""
    options = options_of(__doc__, "KIND:WORKLOADS", [
        "like:100000", "distinct:100000", "like:1000000", "distinct:1000000"])
    rows = []
    for case in options.cases:
        kind, _, workloads = case.partition(":")
        rows.append(measured(kind, int(workloads), options.time_limit, options.seed))
        print(*rows[-1], sep=" | ", flush=True)
        results.write(options.results, "isolated", COLUMNS, rows, [options.seed])
    print_table(COLUMNS, rows)


if __name__ == "__main__":
    main()
