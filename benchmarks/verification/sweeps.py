"""Bounds along sweeps: may a plan of one point refute the bound of another?

Run as ``python benchmarks/verification/sweeps.py [--instances N] [--seed S] [--time-limit T] [--results DIR]``. Each
instance has two GPU types with price tiers. Rates differ by 10^-7 to 2, and one point lies at the highest rates that
the verifier accepts for a plan (``tests/support/oracles/sweeps.py``). Every contradiction is printed; exit 1 if there
is any.
"""

import argparse
import sys
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support/oracles"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import results
from sweeps import contradictions

from provision.draw.output import print_table

COLUMNS = ("instances", "points", "contradictions", "cpu_s")


def main() -> int:
    """Check all instances and print what was compared."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=1.0)
    results.add_results(parser)
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.instances)
    points = wrong = 0
    for seed in seeds:
        many, lines = contradictions(seed, options.time_limit)
        points, wrong = points + many, wrong + len(lines)
        for line in lines:
            print(line, flush=True)
    rows = [(len(seeds), points, wrong, round(process_time()))]
    print_table(COLUMNS, rows)
    results.write(options.results, "sweep-bounds", COLUMNS, rows, seeds)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
