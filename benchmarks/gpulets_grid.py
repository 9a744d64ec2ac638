"""gpu-lets' 1,023 scenarios on four GPUs, and the largest rates of its five scenarios, beside its paper.

Run as ``python benchmarks/gpulets_grid.py [--scalings S,S] [--every N] [--jobs N]``. Ends with exit 1 when the exact
method has no plan, or one with more GPUs, where another has one that holds.

Grid (ATC 2022, sections 3.1 and 6.2): every model at 0, 200, 400 or 600 requests/s. *Says* counts the scenarios for
which a method makes a plan for four GPUs, *holds* those whose plan meets all SLOs by the data, interference included.
Then the largest multiple of the rates of Table 5, and requests/s of the applications, when rates rise by 5 % until
a plan no longer holds; methods as parts of the best. The exact method does not list game's seven models: 0 there.

The paper says: onto halves of GPUs squishy bin packing schedules all scenarios; the ideal scheduler schedules 18
(1.8 %) more than gpulet+int, and reaches rates of which gpulet+int has 92.3 % on average (87.7 % on traffic);
gpulet+int has 102.6 % more throughput than squishy bin packing, gpulet 106.0 %. Its other counts are bars without
numbers. How long batches take on a part of a GPU is not public, so its numbers cannot be had again; the tables are
printed for several assumptions (``scaling`` of the performance model), the first that of the shipped data.
"""

import argparse
import sys
from collections import Counter
from functools import partial
from multiprocessing import Pool

import provision
from provision.commands.common import print_table
from provision.instances.importers.gpulets import SCENARIOS, TABLE_5, grid, scenario
from provision.models.performance.catalogue import load_performance

EXACT = "gpulets-patterns"
METHODS = ("nexus", "nexus-halves", "gslice", "gpulets-without-interference", "gpulets", "gpulets-ideal", EXACT)
SHIPPED = load_performance("gpulets-2080ti")
STEP = 1.05
LEAST_RPS = {"game": 20.0, "traffic": 20.0}
LEAST_FACTOR = 0.2


def main():
    """Print the tables of every assumption."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scalings", default=f"{SHIPPED.scaling:g},0.75,1", help="assumptions, with commas between")
    parser.add_argument("--every", type=int, default=1, help="take every so many-th scenario of the grid")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per method and scenario")
    options = parser.parse_args()
    good = True
    with Pool(options.jobs) as pool:
        for scaling in map(float, options.scalings.split(",")):
            data = SHIPPED.model_copy(update={"scaling": scaling})
            instances = list(grid(data))[:: options.every]
            print(f"\nscaling {scaling:g}: {len(instances)} scenarios on four GPUs")
            good &= report_grid(pool.map(partial(outcomes, limit_s=options.time_limit), instances, chunksize=4))
            report_rates(pool.map(partial(largest, data=data, limit_s=options.time_limit), SCENARIOS, chunksize=1))
    return 0 if good else 1


def outcomes(instance, limit_s):
    """Per method its status, whether there is a plan, and GPUs where the plan holds."""
    found = {}
    for name in METHODS:
        result = provision.solve(instance, name, limit_s)
        found[name] = result.status, result.plan is not None, result.report.gpus if result.verified else None
    return instance.name, found


def report_grid(found):
    """Print the counts; whether the exact method is nowhere worse than another."""
    says, holds, status = Counter(), Counter(), Counter()
    for _, results in found:
        status[results[EXACT][0]] += 1
        for name, (_, planned, gpus) in results.items():
            says[name] += planned
            holds[name] += gpus is not None
    print_table(("method", "says", "holds"), [[name, says[name], holds[name]] for name in METHODS])
    print(f"{EXACT}: {', '.join(f'{number} {name}' for name, number in sorted(status.items()))}")
    worse = [text for name, results in found if (text := _worse(name, results))]
    print("\n".join(worse) or f"{EXACT} is nowhere worse than another", file=sys.stderr)
    return not worse


def _worse(name, results):
    """Which methods beat the exact one on a scenario; empty when none does."""
    ours = results[EXACT][2]
    better = [other for other, (_, _, gpus) in results.items() if gpus is not None and (ours is None or gpus < ours)]
    return f"{name}: {EXACT} is worse than {', '.join(better)}" if better else ""


def largest(name, data, limit_s):
    """Per method the largest factor of a scenario whose plan holds, 0 if none; rates rise until one does not."""
    return name, {method: _largest(name, method, data, limit_s) for method in METHODS}


def _largest(name, method, data, limit_s):
    factor, held = LEAST_RPS.get(name, LEAST_FACTOR), 0.0
    while provision.solve(scenario(name, factor, data), method, limit_s).verified:
        factor, held = factor * STEP, factor
    return held


def report_rates(found):
    """Print the largest rates of any method as they are, those of every method as parts of them."""
    rows = []
    for name, factors in found:
        best = max(factors.values())
        unit = "x" if name in TABLE_5 else "requests/s"
        rows.append([name, f"{best:.4g} {unit}", *(f"{factors[method] / best:.1%}" for method in METHODS)])
    print_table(("scenario", "largest", *METHODS), rows)


if __name__ == "__main__":
    sys.exit(main())
