"""Quality and speed under interference: instances of iGniter's kind at several sizes, all methods side by side.

Run as ``python benchmarks/interference.py [--sizes 12 120 1000 10000] [--time-limit S] [--seed N]``; size 12 is the
paper's testbed, the others are generated. Compile first (any run does), or the first row pays for it.
"""

import argparse
import resource
import sys
from time import process_time

import provision
from provision.commands.common import print_table
from provision.instances.igniter import generate

TESTBED = 12
METHODS = ("igniter", "greedy", "lns", "patterns", "auto")
IGNITER_UP_TO = 1000
LNS_SECONDS = 5.0


def main():
    """Print one row per size and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[12, 120, 1000, 10_000])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = []
    for size in options.sizes:
        instance = provision.read("igniter-testbed-12") if size == TESTBED else generate(size, options.seed)
        for name in options.methods:
            if name != "igniter" or size <= IGNITER_UP_TO:
                rows.append([size, name, *measure(instance, name, options)])
                print(*rows[-1], file=sys.stderr)
    print_table(["workloads", "method", "GPUs", "bound", "gap", "s", "CPU s", "most GiB so far", "status"], rows)


def measure(instance, name, options):
    """GPUs, bound in GPUs, gap, seconds (build + solve), those of the processor, memory and status of one method."""
    before_s, limit_s = process_time(), LNS_SECONDS if name == "lns" else options.time_limit
    found = provision.solve(instance, name, limit_s, options.seed)
    bound = None if found.bound is None else round(found.bound / instance.weight(instance.fleet[0]))
    gap = None if found.gap is None else f"{found.gap:.1%}"
    seconds = [found.build_seconds + found.solve_seconds, process_time() - before_s]
    memory_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return [found.report.gpus, bound, gap, *(round(number, 2) for number in (*seconds, memory_gib)), found.status]


if __name__ == "__main__":
    main()
