"""gpu-lets' largest rates by its paper's own criterion (ATC 2022, section 6.2, figure 12), and by the verifier's.

Run as ``python benchmarks/papers/gpulets_rates.py [--scalings S,S] [--seeds S ...] [--seconds S] [--first N]``.

The criterion is the paper's: rates rise, here by 10 %, until the scheduler finds no schedule; of these the largest
counts with which at most 1 % of the requests are late in a replay with Poisson arrivals, by the median of the seeds'
violation rates, as of three runs there. Rates that do not hold with the first seed are not replayed with others.
``low`` and ``high`` are the least and the most that a single seed gives. ``verified`` is the largest rate at which the
verifier takes the plan, the criterion of ``gpulets_grid.py``, and ``scheduled`` the largest with a schedule at all.
Factors are of Table 5's rates, of ``game`` and ``traffic`` requests/s of the application.

How long batches take on a part of a GPU is not public. ``scaling`` is the exponent of the performance model; the
second table sets five published numbers beside ours for each: what gpulet+int and gpulet have over squishy bin packing
(``nexus``) and gpulet+int over guided self-tuning, means over the five scenarios, and ``game`` with squishy bin packing
and gpulet+int. ``distance`` is the mean of how far they are apart, as logarithms of rates and of ratios of rates.
"""

import argparse
import sys
from collections.abc import Iterator
from itertools import islice, product
from math import exp, log
from statistics import mean, median

import results

import provision
from provision.commands.common import print_table
from provision.instances.importers.gpulets import SCENARIOS, scenario
from provision.models.performance.catalogue import load_performance

METHODS = ("nexus", "gslice", "gpulets-without-interference", "gpulets")
LATE = 0.01
STEP = 1.1
START = {"game": 20.0, "traffic": 20.0}
LEAST_FACTOR = 0.2
LEAST = 1e-3
"""Stands for a ratio of 0 in logarithms."""
COLUMNS = ("scaling", "scenario", "method", "rate", "low", "high", "verified", "scheduled")
SHIPPED = load_performance("gpulets-2080ti")
PAPER = {
    "gpulets over nexus": 1.026, "gpulets-without-interference over nexus": 1.060, "gpulets over gslice": 0.748,
    "game, nexus": 720.0, "game, gpulets": 1502.0,
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scalings", default="0.75,0.5,0.25,0.1,0", help="exponents, with commas between")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=15.0, help="of arrivals in a replay")
    parser.add_argument("--first", type=int, metavar="N", help="only the first N scenarios and methods")
    results.add_results(parser)
    options = parser.parse_args()
    scalings, found = options.scalings.split(","), {}
    for scaling, name, method in islice(product(scalings, SCENARIOS, METHODS), options.first):
        data = SHIPPED.model_copy(update={"scaling": float(scaling)})
        found[scaling, name, method] = largest(name, method, data, options)
        print(scaling, name, method, found[scaling, name, method], file=sys.stderr, flush=True)
    rows = [[*key, *row] for key, row in found.items()]
    print_table(COLUMNS, rows)
    results.write(options.results, "gpulets-rates", COLUMNS, rows, options.seeds)
    if not options.first:
        report(scalings, found, options)


def largest(name, method, data, options) -> tuple[float, float, float, float, float]:
    """Largest rate by the paper's criterion, least and most by single seeds, by the verifier's, and what ended it."""
    plans = list(schedules(name, method, data))
    verified = next((rate for rate, result in reversed(plans) if result.verified), 0.0)

    def late(at, seed) -> float:
        rate, result = plans[at]
        return provision.simulate(scenario(name, rate, data), result.plan, options.seconds, seed).violation_rate

    seeds = options.seeds
    kept = next((at for at in range(len(plans) - 1, -1, -1) if late(at, seeds[0]) <= LATE), 0)
    found = {}
    for at in range(min(kept, len(plans) - 1), -1, -1):
        found[plans[at][0]] = [late(at, seed) for seed in seeds]
        if all(any(parts[which] <= LATE for parts in found.values()) for which in range(len(seeds))):
            break
    held = max((rate for rate, parts in found.items() if median(parts) <= LATE), default=0.0)
    each = [max((rate for rate, parts in found.items() if parts[which] <= LATE), default=0.0)
            for which in range(len(seeds))]
    return held, min(each), max(each), verified, plans[-1][0] if plans else 0.0


def schedules(name, method, data) -> Iterator[tuple[float, provision.Result]]:
    """Rates and what the method finds, up to the first rate without a schedule."""
    rate = START.get(name, LEAST_FACTOR)
    while (result := provision.solve(scenario(name, rate, data), method)).plan is not None:
        yield rate, result
        rate *= STEP


def report(scalings, found, options) -> None:
    """The published numbers beside ours, by exponent and criterion."""
    rows = []
    for scaling, (at, criterion) in product(scalings, ((0, "late"), (3, "verified"))):
        rates = {(name, method): found[scaling, name, method][at] for name in SCENARIOS for method in METHODS}
        ours = {label: compared(rates, *label.split(" over ")) for label in PAPER if " over " in label}
        ours |= {f"game, {method}": rates["game", method] for method in ("nexus", "gpulets")}
        apart = [abs(log(_scale(label, ours[label]) / _scale(label, number))) for label, number in PAPER.items()]
        rows.append([scaling, criterion, *(ours[label] for label in PAPER), exp(mean(apart)) - 1])
    columns = ["scaling", "criterion", *PAPER, "distance"]
    print_table(columns, [*rows, ["paper", "late", *PAPER.values(), None]])
    results.write(options.results, "gpulets-published", columns, rows, options.seeds)


def compared(rates, method, base) -> float:
    """What a method's rates are above another's, on average over the scenarios where the other has any."""
    return mean(rates[name, method] / rates[name, base] - 1 for name in SCENARIOS if rates[name, base])


def _scale(label, number) -> float:
    """A rate, or a ratio of rates."""
    return max(number + 1 if " over " in label else number, LEAST)


if __name__ == "__main__":
    main()
