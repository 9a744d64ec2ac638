"""Every method on many random small instances: do all plans hold, does no heuristic beat a proven bound?

Run as ``python benchmarks/fuzz.py [--instances N] [--seed S]``; ends with ``cases N failures M`` and exit 1 if M > 0.
"""

import argparse
import sys
from multiprocessing import Pool

import provision
from provision.instances.synthetic import random_instance

FLEETS = [("a100-80gb",), ("a30",), ("h100-80gb", "a30"), ("a100-80gb", "t4"), ("v100",)]
HEURISTICS = ("greedy", "parvagpu", "parvagpu-single", "parvagpu-unoptimized")
EXACT_EVERY = 5


def check(seed):
    """What is wrong with the methods' answers on one instance: a list of lines, and the number of plans."""
    instance = random_instance(
        seed,
        workloads=1 + seed % 6,
        gpus=FLEETS[seed % len(FLEETS)],
        limited=seed % 7 == 0,
        tolerant=seed % 3 == 0,
        gpus_each=(0.3, 1.0, 3.0)[seed % 4 % 3],
    )
    names = [*HEURISTICS, *(("partition-counts", "auto") if seed % EXACT_EVERY == 0 else ())]
    results, faults = [], []
    for name in names:
        try:
            results.append(provision.solve(instance, name, time_limit_s=5))
        except provision.UnsupportedError:
            continue
        except provision.MethodError as error:
            faults.append(f"seed {seed}: {error}")
    values = [result.objective for result in results if result.plan is not None]
    bounds = [result.bound for result in results if result.bound is not None]
    if values and bounds and min(values) < max(bounds) * (1 - 1e-9):
        faults.append(f"seed {seed}: objective {min(values)} below the proven bound {max(bounds)}")
    if values and any(result.status == "infeasible" for result in results):
        faults.append(f"seed {seed}: infeasible by one method, planned by another")
    return faults, len(values)


def main():
    """Run all seeds on two processes and print the faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    faults, plans = [], 0
    with Pool(options.workers) as pool:
        seeds = range(options.seed, options.seed + options.instances)
        for found, held in pool.imap_unordered(check, seeds, chunksize=50):
            faults += found
            plans += held
    print(*faults, sep="\n" if faults else "")
    print(f"plans {plans}")
    print(f"cases {options.instances} failures {len(faults)}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
