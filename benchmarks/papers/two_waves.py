"""Rates over time, shaped like gpu-lets' experiment of 1,800 s (figure 14): what is not served, what changes.

Run as ``python benchmarks/papers/two_waves.py [--seeds S ...] [--factors F ...]``: Table 5's ``equal`` at a multiple of
its rates, planned by gpu-lets' scheduler with its models and the latency ratio of its program, from its moving average
every 20 s, in force 12.5 s later. A seed shifts the workloads' waves in time.
"""

import argparse

import results
from gpulets_scenarios import scenario

from provision.draw.output import print_table
from provision.instances.files.demand import two_waves
from provision.replanning.trace import ReplanPolicy, compare_policies

EWMA = ReplanPolicy("ewma", "gpulets", 1, "ewma", 0.0, 12.5, background=True, parameters=(("latency_ratio", 1.1),))
COLUMNS = ("factor", "seed", "gpu_hours", "replicas_started", "not_served")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--factors", type=float, nargs="*", default=[1.0, 4.0])
    results.add_results(parser)
    options = parser.parse_args()
    rows = []
    for factor in options.factors:
        instance = scenario("equal", factor)
        for seed in options.seeds:
            [found], _ = compare_policies(instance, two_waves(instance, seed), [EWMA])
            rows.append([f"{factor:g}", seed, *(found[name] for name in COLUMNS[2:])])
    print_table(COLUMNS, rows)
    results.write(options.results, "two-waves", COLUMNS, rows, options.seeds)


if __name__ == "__main__":
    main()
