"""Every method on random small instances with every combination of features: do all plans hold, and all bounds?

Run as ``python benchmarks/fuzz.py [--instances N] [--seed S]``; heuristics and auto run on every instance, one exact
method beside them in turn. Ends with ``cases N plans P failures M`` and exit 1 if M > 0.
"""

import argparse
import sys
from functools import partial
from multiprocessing import Pool
from pathlib import Path

import provision

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support/oracles"))
from every_feature import COMBINATIONS, KINDS, faults_of, instance_of


def check(seed, time_limit_s) -> tuple[list[str], int]:
    """Faults of the methods on one instance, each with the seed, and the number of plans."""
    methods = provision.methods()
    exact = [name for name, one in methods.items() if one.exact and name != "auto"]
    names = ["auto", *(name for name, one in methods.items() if not one.exact)]
    faults, plans = faults_of(instance_of(seed), [*names, exact[seed // len(KINDS) % len(exact)]], time_limit_s)
    return [f"seed {seed}: {fault}" for fault in faults], plans


def main() -> int:
    """Run all seeds on two processes and print the faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=2 * COMBINATIONS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=2.0, help="seconds per method")
    options = parser.parse_args()
    failures, plans = 0, 0
    with Pool(options.workers) as pool:
        seeds = range(options.seed, options.seed + options.instances)
        for faults, held in pool.imap_unordered(partial(check, time_limit_s=options.time_limit), seeds, chunksize=8):
            plans, failures = plans + held, failures + len(faults)
            print(*faults, sep="\n", end="\n" * bool(faults), flush=True)
    print(f"cases {options.instances} plans {plans} failures {failures}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
