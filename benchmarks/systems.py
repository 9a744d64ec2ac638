"""All systems for isolated slices on the same instances: GPUs, cost, violations, seconds, beside ParvaGPU's paper.

Run as ``python benchmarks/systems.py [DIR] [--families F,F] [--time-limit S]``; DIR is ParvaGPU's artefact
(``prof_data`` and ``SLO``), whose measured tables are then used; without it the shipped scenarios on the fitted model
are. Ends with exit 1 when a plan is violated or ``auto`` is worse than another method.

The last table compares how many GPUs ParvaGPU saves against a system, 1 - (its GPUs) / (the system's), averaged over
the scenarios as in its paper (SC 2024, section IV-B and D); differences are in points. Some are to be expected for
MIG-serving, which is known here from descriptions only (`provision.heuristics.mig_serving` says what is guessed). The
paper gives no numbers for MIG-serving's slow algorithm and for PARIS.
"""

import argparse
import sys
from functools import partial
from statistics import mean
from typing import NamedTuple

from isolated import scenario

import provision
from provision.commands.common import print_table
from provision.instances.families import repeated

FAST = ("parvagpu", "parvagpu-single", "mig-serving-fast", "paris", "greedy", "auto")
REFERENCE = "parvagpu"
COLUMNS = ("scenario", "method", "GPUs", f"GPUs / {REFERENCE}'s", "cost per hour", "violations", "s")


class Family(NamedTuple):
    """Scenarios by name, each as a function of DIR; the methods to run; what the paper says ParvaGPU saves."""

    cases: dict
    methods: tuple
    paper: dict


def _repeated(times, folder):
    return repeated(scenario(folder, 5), times)


FAMILIES = {
    "parvagpu": Family(
        {f"S{row}": partial(scenario, number=row) for row in range(1, 7)},
        (*FAST[:-2], "mig-serving-slow", *FAST[-2:]),
        {"mig-serving-fast": 0.41, "parvagpu-single": mean([0, 0, 0, 0.125, 0.071, 0.111])},
    ),
    "parvagpu-s5-repeated": Family(
        {f"S5 x {times}": partial(_repeated, times) for times in range(1, 11)},
        FAST,
        {"mig-serving-fast": 0.30, "parvagpu-single": 0.074},
    ),
}


def main():
    """Print both tables of every family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--families", default="parvagpu", help=f"with commas between: {', '.join(FAMILIES)}")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds per method and scenario")
    options = parser.parse_args()
    good = [report(FAMILIES[name], options.folder, options.time_limit) for name in options.families.split(",")]
    return 0 if all(good) else 1


def report(family, folder, limit_s):
    """Run a family and print its tables; whether every plan holds and no method is better than auto."""
    warm_up(family, folder)
    rows, savings, good = [], {name: [] for name in family.methods if name != REFERENCE}, True
    for case, read in family.cases.items():
        results = {name: provision.solve(read(folder), name, limit_s) for name in family.methods}
        print(f"{case} done", file=sys.stderr)
        reference = results[REFERENCE].report.gpus
        rows += [row(case, result, reference) for result in results.values()]
        for name, shares in savings.items():
            shares.append(1 - reference / results[name].report.gpus)
        good &= judged(case, results)
    print_table(COLUMNS, rows)
    print_table(
        (f"{REFERENCE} against", "GPUs saved here", "in its paper", "difference"),
        [[name, *compared(mean(shares), family.paper.get(name))] for name, shares in savings.items()],
    )
    return good


def warm_up(family, folder):
    """Let every method import and compile what it needs."""
    read = next(iter(family.cases.values()))
    for name in family.methods:
        provision.solve(read(folder), name, 1.0)


def row(case, result, reference):
    """One line of the first table."""
    found = result.report
    seconds = round(result.build_seconds + result.solve_seconds, 4)
    share = round(found.gpus / reference, 2)
    return [case, result.method, found.gpus, share, found.cost_per_hour, len(found.violations), seconds]


def judged(case, results):
    """Whether the plans of one scenario hold and none is better than auto's; what is not so goes to stderr."""
    best = min(result.objective for result in results.values())
    faults = [f"{name} violates" for name, result in results.items() if result.report.violations]
    if results["auto"].objective > best * (1 + 1e-9):
        faults.append("auto is not the best")
    for fault in faults:
        print(f"{case}: {fault}", file=sys.stderr)
    return not faults


def compared(here, paper):
    """Shares saved here and in the paper, and by how many points they differ, as text; None where it gives none."""
    found = f"{here:.1%}"
    return (found, None, None) if paper is None else (found, f"{paper:.1%}", f"{100 * (here - paper):+.1f}")


if __name__ == "__main__":
    sys.exit(main())
