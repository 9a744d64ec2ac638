"""Quality and speed under interference: instances of iGniter's kind at several sizes, all methods side by side.

Run as ``python benchmarks/interference.py [--sizes 12 120 1000 10000] [--time-limit S] [--seed N] [--t4]``; size 12 is
the paper's testbed, the others are generated; ``--t4`` offers T4s beside the V100s, at the paper's price. Compile first
(any run does), or the first row pays for it.
"""

import argparse
import resource
import sys
from time import process_time

import provision
from provision.draw.output import print_table
from provision.instances.read import generate

HEAD = ("workloads", "method", "GPUs", "per hour", "bound", "gap", "s", "CPU s", "most GiB so far", "status")
TESTBED = 12
METHODS = ("igniter", "greedy", "lns", "master", "auto")
T4 = provision.FleetEntry(gpu="t4", price_per_hour=0.526)
IGNITER_UP_TO = 1000
LNS_SECONDS = 5.0


def main() -> None:
    """Print one row per size and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[12, 120, 1000, 10_000])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--t4", action="store_true")
    options = parser.parse_args()
    rows = []
    for size in options.sizes:
        instance = provision.read("igniter-testbed-12") if size == TESTBED else generate(size, options.seed)
        if options.t4:
            instance = instance.replace(fleet=(*instance.fleet, T4), performance=["igniter-v100", "igniter-t4-derived"])
        for name in options.methods:
            if name != "igniter" or (size <= IGNITER_UP_TO and not options.t4):
                rows.append([size, name, *measure(instance, name, options)])
                print(*rows[-1], file=sys.stderr)
    print_table(HEAD, rows)


def measure(instance, name, options) -> list[object]:
    """One method's GPUs, price and bound per hour, gap, seconds, CPU seconds, peak GiB of this process, status."""
    before_s, limit_s = process_time(), LNS_SECONDS if name == "lns" else options.time_limit
    found = provision.solve(instance, name, limit_s, options.seed)
    bound = None if found.bound is None else round(found.bound, 3)
    gap = None if found.gap is None else f"{found.gap:.1%}"
    seconds = [found.build_seconds + found.solve_seconds, process_time() - before_s]
    memory_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    numbers = (*(round(number, 2) for number in (*seconds, memory_gib)), found.status)
    return [found.report.gpus, round(found.objective, 3), bound, gap, *numbers]


if __name__ == "__main__":
    main()
