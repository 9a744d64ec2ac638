"""The models with explicit GPUs, MIG slots and resource units, in CP-SAT and as a MILP, on the shipped instances.

Run as ``python benchmarks/papers/assignment.py [--time-limit S] [--instances NAME ...] [--methods M ...]``. A row has
what a program found within the limit, the bound that it proved, and seconds of the wall and of the processor, those of
the fast method that it begins with included; ``refused`` stands where an instance cannot be stated. With --results it
goes on where its result file ends, with --seconds after so many.
"""

import argparse
import math
import os
import sys
from itertools import product
from time import perf_counter

import results

import provision
from provision.draw.output import print_table

METHODS = ("assignment-cpsat", "assignment-milp")
INSTANCES = (
    *(f"parvagpu-s{number}" for number in range(1, 7)), *(f"parvagpu-s{number}-shared" for number in range(1, 7)),
    "igniter-motivation", "igniter-testbed-12", "igniter-variants-12", "inss", "inss-six",
    *(f"gpulets-{name}" for name in ("equal", "long-only", "short-skew", "game", "traffic")),
    *(f"mlperf-llama-3.1-8b-{name}" for name in ("server", "interactive")),
)
COLUMNS = ("instance", "method", "status", "objective", "bound", "wall_s", "cpu_s")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", nargs="*", default=INSTANCES)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--time-limit", type=float, default=45.0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no row after so many")
    results.add_results(parser)
    options, started = parser.parse_args(), perf_counter()
    known = results.earlier(options.results, "assignment")
    rows = {(one["instance"], one["method"]): list(one.values()) for one in known.rows}
    for one in product(options.instances, options.methods):
        if one not in rows and perf_counter() - started < options.seconds:
            rows[one] = row(*one, options.time_limit)
            print(*rows[one], file=sys.stderr, flush=True)
            results.write(options.results, "assignment", COLUMNS, rows.values(), [0], results.commits(known))
    print_table(COLUMNS, list(rows.values()))


def row(name, method, limit_s) -> list[object]:
    """One line."""
    wall, cpu = perf_counter(), cpu_s()
    try:
        found = provision.solve(name, method, limit_s, replay=False)
    except provision.UnsupportedError:
        return [name, method, "refused", *[None] * 4]
    return [name, method, found.status, found.objective, found.bound, perf_counter() - wall, cpu_s() - cpu]


def cpu_s() -> float:
    """Seconds of the processor so far, those of solvers that have ended included."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    main()
