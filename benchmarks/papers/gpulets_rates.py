"""gpu-lets' largest rates by its paper's own criterion (section 6.2, figure 12), and by the verifier's.

Run as ``python benchmarks/papers/gpulets_rates.py [--settings E:R ...] [--seeds S ...] [--seconds S] [--first N]``.
With --results it goes on where its result file ends.

The criterion is the paper's: at most 1 % of the requests are late in a replay with Poisson arrivals, by the median of
the seeds' violation rates, as of three runs there. Feasibility is not monotone in the rate: a plan for a higher rate
may use one GPU more, or larger batches, and hold where that for a lower rate does not. So every rate of a ladder in
steps of 10 % is planned and replayed with every seed, until LOOKS rates on end have no schedule. ``rate`` is the
largest rate that holds, ``below`` the number of rates on the ladder below it, and ``fail`` how many of these do not.
``low`` and ``high`` are the least and the most of what single seeds give for ``rate``. ``verified`` is the largest rate
at which the verifier takes the plan, the criterion of ``gpulets_grid.py``, and ``scheduled`` the largest with a
schedule. Factors are of Table 5's rates, of ``game`` and ``traffic`` requests/s of the application, and of ``scen1`` to
``scen5``, the scenarios of the public program with its nine families, requests/s of each model.

A setting E:R is the exponent of the performance model (how long batches take on a part of a GPU is not public), and the
latency ratio, the reserve with which all methods plan: 1.1 in every configuration of the public program. The second
table sets five published numbers beside ours for each setting: what gpulet+int and gpulet have over squishy bin packing
(``nexus``) and gpulet+int over guided self-tuning, means over the five scenarios, and ``game`` with squishy bin packing
and gpulet+int. ``distance`` is the mean of how far they are apart, as logarithms of rates and of ratios of rates.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from itertools import islice, product
from math import exp, log
from statistics import mean, median

import results
from gpulets_scenarios import DATA, DATA_2022, SCENARIOS, SCENARIOS_2022, scenario

import provision
from provision.draw.output import print_table
from provision.models.performance.catalogue import load_performance

METHODS = ("nexus", "gslice", "gpulets-without-interference", "gpulets")
LATE = 0.01
STEP = 1.1
START = dict.fromkeys(("game", "traffic", *SCENARIOS_2022), 20.0)
LEAST_FACTOR = 0.2
LOOKS = 5
"""A ladder ends after so many rates on end without a schedule: 60 % above the last rate that had one."""
LEAST = 1e-3
"""Stands for a ratio of 0 in logarithms."""
KEYS = ("scaling", "ratio", "scenario", "method")
FOUND = ("rate", "low", "high", "below", "fail", "verified", "scheduled")
COLUMNS = (*KEYS, *FOUND)
CRITERIA = ("rate", "verified")
SHIPPED = dict.fromkeys(SCENARIOS, load_performance(DATA)) | dict.fromkeys(SCENARIOS_2022, load_performance(DATA_2022))
PAPER = {
    "gpulets over nexus": 1.026, "gpulets-without-interference over nexus": 1.060, "gpulets over gslice": 0.748,
    "game, nexus": 720.0, "game, gpulets": 1502.0,
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="*", default=["0.5:1.1", "0.25:1.1", "0:1.1", "0.5:1"], metavar="E:R",
                        help="exponents and latency ratios")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=15.0, help="of arrivals in a replay")
    parser.add_argument("--first", type=int, metavar="N", help="only the first N scenarios and methods")
    results.add_results(parser)
    options = parser.parse_args()
    known = results.earlier(options.results, "gpulets-rates")
    found = {tuple(row[key] for key in KEYS): [float(row[name]) for name in FOUND] for row in known.rows}
    for setting, name, method in islice(product(options.settings, SHIPPED, METHODS), options.first):
        key = (*setting.split(":"), name, method)
        if key not in found:
            found[key] = largest(ladder(key, options))
            print(*key, *found[key], file=sys.stderr, flush=True)
            results.write(options.results, "gpulets-rates", COLUMNS, [[*at, *row] for at, row in found.items()],
                          options.seeds, results.commits(known))
    print_table(COLUMNS, [[*key, *row] for key, row in found.items()])
    if not options.first:
        report(options, {key: dict(zip(FOUND, row, strict=True)) for key, row in found.items()})


def ladder(key, options) -> Iterator[tuple[float, list[float], bool]]:
    """The rates with a schedule, in ascending order: rate, late part by seed, and whether the verifier takes it."""
    scaling, ratio, name, method = key
    data = SHIPPED[name].model_copy(update={"scaling": float(scaling)})
    rate, without = START.get(name, LEAST_FACTOR), 0
    while without < LOOKS:
        instance = scenario(name, rate, data)
        planned = provision.solve(instance, method, replay=False, latency_ratio=float(ratio))
        without = 0 if planned.plan else without + 1
        if planned.plan:
            late = [provision.simulate(instance, planned.plan, options.seconds, seed).violation_rate
                    for seed in options.seeds]
            yield rate, late, planned.verified
        rate *= STEP


def largest(rates: Iterable[tuple[float, list[float], bool]]) -> list[float]:
    """The largest rate by each of FOUND; 0 where there is none."""
    steps = list(rates)
    most = max((rate for rate, late, _ in steps if median(late) <= LATE), default=0.0)
    below = [median(late) > LATE for rate, late, _ in steps if rate < most]
    single = [max((rate for rate, late, _ in steps if late[seed] <= LATE), default=0.0)
              for seed in range(len(steps[0][1]) if steps else 0)]
    verified = max((rate for rate, _, taken in steps if taken), default=0.0)
    scheduled = max((rate for rate, *_ in steps), default=0.0)
    return [most, min(single, default=0.0), max(single, default=0.0), len(below), sum(below), verified, scheduled]


def report(options, found) -> None:
    """The published numbers beside ours, by setting and criterion."""
    rows = []
    for setting, criterion in product(options.settings, CRITERIA):
        scaling, ratio = setting.split(":")
        rates = {(name, method): found[scaling, ratio, name, method][criterion]
                 for name in SCENARIOS for method in METHODS}
        ours = {label: compared(rates, *label.split(" over ")) for label in PAPER if " over " in label}
        ours |= {f"game, {method}": rates["game", method] for method in ("nexus", "gpulets")}
        apart = [abs(log(_scale(label, ours[label]) / _scale(label, number))) for label, number in PAPER.items()]
        rows.append([scaling, ratio, criterion, *(ours[label] for label in PAPER), exp(mean(apart)) - 1])
    columns = ["scaling", "ratio", "criterion", *PAPER, "distance"]
    print_table(columns, [*rows, ["paper", "", "", *PAPER.values(), None]])
    results.write(options.results, "gpulets-published", columns, rows, options.seeds)


def compared(rates, method, base) -> float:
    """What a method's rates are above another's, on average over the scenarios where the other has any."""
    return mean([rates[name, method] / rates[name, base] - 1 for name in SCENARIOS if rates[name, base]] or [0.0])


def _scale(label, number) -> float:
    """A rate, or a ratio of rates."""
    return max(number + 1 if " over " in label else number, LEAST)


if __name__ == "__main__":
    main()
