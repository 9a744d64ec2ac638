"""Quality and speed on isolated segments: ParvaGPU's scenarios, repeated and scaled.

Run as ``python benchmarks/isolated.py [DIR]``; DIR is ParvaGPU's artefact (``prof_data`` and ``SLO``), whose measured
tables are then used; without it the shipped scenarios on the fitted model are.
"""

import argparse
import sys

import numpy as np

import provision
from provision.draw.output import print_table
from provision.instances.importers.parvagpu import import_scenario
from provision.instances.read import repeated
from provision.models.problem.instance import Instance

CASES = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (5, 10), (6, 10), (5, 100), (5, 1000)]
EXACT_UP_TO = 10
METHODS = ("parvagpu", "greedy", "master", "auto")


def main() -> None:
    """Print one row per scenario: GPUs, bound and seconds (build + solve) of every method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--vary-rates", action="store_true", help="rates times U(0.5, 1), so that no two are alike")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--first", type=int, metavar="N", help="only the first N cases")
    options = parser.parse_args()
    measured = [f"{name} {what}" for name in METHODS for what in ("GPUs", "s")]
    columns = ["scenario", "workloads", *measured, "bound", "gap"]
    rows = []
    for number, times in CASES[: options.first]:
        instance = repeated(scenario(options.folder, number), times)
        instance = varied(instance) if options.vary_rates else instance
        rows.append([f"S{number} x {times}", len(instance.workloads), *measure(instance, times, options.time_limit)])
        print(f"S{number} x {times} done", file=sys.stderr)
    print_table(columns, rows)


def scenario(folder, number) -> Instance:
    """One scenario, on measured tables where there are any."""
    return import_scenario(folder, number, 0.9) if folder else provision.read(f"parvagpu-s{number}")


def varied(instance) -> Instance:
    """An instance with rates times U(0.5, 1), drawn with seed 0."""
    draw = np.random.default_rng(0)
    return instance.replace(workloads=[
        one.model_copy(update={"rate_rps": one.rate_rps * draw.uniform(0.5, 1)}) for one in instance.workloads
    ])


def measure(instance, times, limit_s) -> list[object]:
    """GPUs and seconds of every method, then the best bound and gap."""
    cells, last = [], None
    for name in METHODS:
        if times > EXACT_UP_TO and name in ("master", "auto"):
            cells += [None, None]
            continue
        last = provision.solve(instance, name, limit_s)
        cells += [last.report.gpus, round(last.build_seconds + last.solve_seconds, 3)]
    return [*cells, last.bound, None if last.gap is None else f"{last.gap:.1%}"]


if __name__ == "__main__":
    main()
