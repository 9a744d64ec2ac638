"""Rates over time, shaped like gpu-lets' experiment of 1,800 s (ATC 2022, figure 14): what is not served, what changes.

Run as ``python benchmarks/papers/two_waves.py [--seeds S ...] [--policies P ...] [--time-limit S]``. The rows are those
of ``provision simulate-trace parvagpu-s2 two-waves``; ``ewma`` plans as gpu-lets does, from its moving average every
20 s, in force 12.5 s later. A seed shifts the workloads' waves in time.
"""

import argparse

import results

import provision
from provision.commands.common import print_table
from provision.instances.files.demand import two_waves
from provision.replanning.trace import ReplanPolicy, compare_policies

INSTANCE = "parvagpu-s2"
EWMA = ReplanPolicy("ewma", "greedy", 1, "ewma", 0.0, 12.5, background=True)
POLICIES = {"replan": ReplanPolicy("replan", "replan"), "auto": ReplanPolicy("auto", "auto"),
            "static": ReplanPolicy("static", "static"), "ewma": EWMA}
COLUMNS = ("policy", "seed", "gpu_hours", "slices_destroyed", "slices_created", "not_served")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--policies", nargs="*", default=[*POLICIES], choices=(*POLICIES,))
    parser.add_argument("--time-limit", type=float, default=3.0, help="seconds per plan")
    results.add_results(parser)
    options = parser.parse_args()
    instance, rows = provision.read(INSTANCE), []
    for seed in options.seeds:
        found, _ = compare_policies(instance, two_waves(instance, seed), [POLICIES[one] for one in options.policies],
                                    time_limit_s=options.time_limit)
        rows += [[one["policy"], seed, *(one[name] for name in COLUMNS[2:])] for one in found]
    print_table(COLUMNS, rows)
    results.write(options.results, "two-waves", COLUMNS, rows, options.seeds)


if __name__ == "__main__":
    main()
