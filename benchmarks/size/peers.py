"""Peers: what other ways to plan find on the same instances with the same time limit.

Run as ``python benchmarks/size/peers.py [CASE ...] [--limit S] [--seed N] [--results DIR]``. Cases are those of
``anytime.py``: ``draw-N`` (draw N of ``small.py``), a case of ``scale.py``, or a shipped instance. The peers are the
plain programs over assignments, solved by CP-SAT and by HiGHS; greedy; and the algorithms of iGniter, which gives each
workload one replica, and of ParvaGPU. Seconds are of CPU; the limit is for each method. ``answer`` tells whether the
plan is proven, or that the method refuses the instance.
"""

import argparse
import sys
from pathlib import Path
from time import process_time

sys.path += [str(Path(__file__).resolve().parents[1] / folder) for folder in ("verification", "papers")]
import results
from anytime import case

import provision
from provision.draw.output import print_table
from provision.models.base import clock
from provision.models.base.errors import UnsupportedError

CASES = ("igniter-testbed-12", "igniter-120-seed0", "single-1000", "testbed-free", "free-120", "parvagpu-s6",
         "parvagpu-s3-shared", *(f"draw-{seed}" for seed in range(5)))
METHODS = ("auto", "assignment-cpsat", "assignment-milp", "greedy", "igniter", "parvagpu")
COLUMNS = ("case", "method", "limit_s", "plan", "bound", "answer", "cpu_s")


def main() -> None:
    """Print a row for every case and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--limit", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    results.add_results(parser)
    options = parser.parse_args()
    clock.perf_counter = process_time
    rows: list[list[object]] = []
    for name in options.cases:
        for method in METHODS:
            rows.append(row := answered(name, method, options.limit, options.seed))
            print(*row, sep=" | ", flush=True)
        results.write(options.results, "peers", COLUMNS, rows, [options.seed])
    print_table(COLUMNS, rows)


def answered(name: str, method: str, limit_s: float, seed: int) -> list[object]:
    """The row of a method; without numbers if the method refuses the instance."""
    instance = case(name, seed)
    try:
        provision.solve(instance.replace(workloads=instance.workloads[:2]), method, 1.0, replay=False)  # compiles
        begun_s = process_time()
        found = provision.solve(instance, method, limit_s, seed, replay=False)
    except UnsupportedError:
        return [name, method, limit_s, None, None, "refused", None]
    return [name, method, limit_s, found.objective, found.bound, found.status, round(process_time() - begun_s, 2)]


if __name__ == "__main__":
    main()
