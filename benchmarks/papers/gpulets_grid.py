"""gpu-lets' 1,023 scenarios on four GPUs, and its rates beside the ideal scheduler's, beside its paper.

Run as ``python benchmarks/papers/gpulets_grid.py [--scalings S,S] [--methods M,M] [--every N] [--jobs N] [--ideal]``.
Ends with exit 1 when the exact method, if it runs, has no plan, or one with more GPUs, where another's plan holds.

Grid (sections 3.1 and 6.2): every model at 0, 200, 400 or 600 requests/s. *Says* counts the scenarios for which a
method makes a plan for four GPUs, *holds* those whose plan meets all SLOs by the data, interference included. All of
gpu-lets' methods plan with the latency ratio 1.1 of its public program; the exact method has no such reserve. First of
all the interference of section 3.2's pairs.

With ``--ideal`` instead: the largest multiple of the rates of Table 5, and requests/s of the applications, at which a
plan holds; every rate of a ladder in steps of 10 % is tried until LOOKS on end do not hold, since neither scheduler is
monotone. And on every N-th scenario of the grid, for how many only the ideal scheduler has a plan.

The paper says: 90 % of the pairs under 18 %; onto halves of GPUs squishy bin packing schedules all scenarios; the ideal
scheduler schedules 18 (1.8 %) more than gpulet+int, and reaches rates of which gpulet+int has 92.3 % on average (87.7 %
on traffic). Its other counts are bars without numbers. How long batches take on a part of a GPU is not public: the
tables are printed for several exponents (``scaling`` of the performance model), and what follows is a range. 0.5, that
of the shipped data, is the largest of 0, 0.25, 0.5, 0.75 and 1 with which halves schedule all scenarios.
"""

import argparse
import sys
from collections import Counter
from functools import partial
from itertools import combinations, product
from multiprocessing import Pool

import numpy as np
import results
from gpulets_scenarios import SCENARIOS, grid, scenario

import provision
from provision.draw.output import print_table
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.catalogue import load_performance
from provision.models.performance.operating_points import Member

EXACT = "master"
METHODS = ("nexus", "nexus-halves", "gslice", "gpulets-without-interference", "gpulets", "gpulets-published",
           "gpulets-ideal", EXACT)
PAIR_BATCHES, PAIR_SHARES = (2, 4, 8, 16, 32), (0.2, 0.4, 0.5, 0.6, 0.8)
"""Section 3.2."""
SHIPPED = load_performance("gpulets-2080ti")
RATIO = 1.1
"""The latency ratio with which gpu-lets' public program plans."""
STEP, LOOKS = 1.1, 5
LEAST_RPS = {"game": 100.0, "traffic": 20.0}
LEAST_FACTOR = 1.0
PAIR = ("gpulets", "gpulets-ideal")
COLUMNS = ("scaling", "what", "method", "value")


def main() -> int:
    """Print the tables of every assumption."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scalings", default="0.5,0.25,0", help="exponents, with commas between")
    parser.add_argument("--methods", default=",".join(METHODS), help="methods, with commas between")
    parser.add_argument("--every", type=int, default=1, help="take every so many-th scenario of the grid")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per method and scenario")
    parser.add_argument("--ideal", action="store_true", help="compare gpulet+int with the ideal scheduler")
    results.add_results(parser)
    options = parser.parse_args()
    good, methods = True, [*PAIR] if options.ideal else options.methods.split(",")
    run = {"methods": methods, "limit_s": options.time_limit}
    rows = [] if options.ideal else [["any", "interference of pairs, 90 % below", "", report_interference()]]
    with Pool(options.jobs) as pool:
        for scaling in map(float, options.scalings.split(",")):
            data = SHIPPED.model_copy(update={"scaling": scaling})
            instances = list(grid(data))[:: options.every]
            print(f"\nscaling {scaling:g}: {len(instances)} scenarios on four GPUs", flush=True)
            found = pool.map(partial(outcomes, **run), instances, chunksize=4)
            good &= report_grid(found, methods)
            rows += [[f"{scaling:g}", what, method, count] for what, counts in zip(("says", "holds"), counted(found),
                     strict=True) for method, count in counts.items()]
            rows.append([f"{scaling:g}", "scenarios", "", len(instances)])
            if options.ideal:
                rates = pool.map(partial(largest, data=data, **run), SCENARIOS, chunksize=1)
                print_table(("scenario", *PAIR), [[name, *factors.values()] for name, factors in rates])
                rows += [[f"{scaling:g}", f"largest of {name}", method, factor] for name, factors in rates
                         for method, factor in factors.items()]
    results.write(options.results, "gpulets-ideal" if options.ideal else "gpulets-grid", COLUMNS, rows)
    return 0 if good else 1


def report_interference() -> float:
    """Print, and return, how much longer batches take in 90 % of the pairs of section 3.2; no exponent matters."""
    slowdowns = []
    for (one, other), batches, share in product(
        combinations(sorted(SHIPPED.models), 2), product(PAIR_BATCHES, repeat=2), PAIR_SHARES
    ):
        shares = share, round(1 - share, 9)
        pair = [Member(*of, 1, part) for *of, part in zip((one, other), batches, shares, strict=True)]
        alone = [SHIPPED.predict(WHOLE, [member])[0].latency_ms for member in pair]
        beside = [found.latency_ms for found in SHIPPED.predict(WHOLE, pair)]
        slowdowns += [long / short - 1 for long, short in zip(beside, alone, strict=True)]
    found = float(np.percentile(slowdowns, 90))
    print(f"interference of {len(slowdowns)} members of pairs: 90 % below {found:.1%}")
    return found


def outcomes(instance, methods, limit_s) -> tuple[str, dict[str, tuple[str, bool, int | None]]]:
    """Per method its status, whether there is a plan, and GPUs where the plan holds."""
    found = {}
    for name in methods:
        result = solved(instance, name, limit_s)
        found[name] = result.status, result.plan is not None, result.report.gpus if result.verified else None
    return instance.name, found


def solved(instance, name, limit_s) -> provision.Result:
    """A method's result, with the reserve of gpu-lets' program."""
    reserve = {} if name == EXACT else {"latency_ratio": RATIO}
    return provision.solve(instance, name, limit_s, replay=False, **reserve)


def counted(found) -> tuple[Counter[str], Counter[str]]:
    """By method the scenarios for which there is a plan, and those of which it holds."""
    says, holds = Counter(), Counter()
    for _, answers in found:
        for name, (_, planned, gpus) in answers.items():
            says[name] += planned
            holds[name] += gpus is not None
    return says, holds


def report_grid(found, methods) -> bool:
    """Print the counts; whether the exact method is nowhere worse than another."""
    says, holds = counted(found)
    status = Counter(answers[EXACT][0] for _, answers in found if EXACT in answers)
    print_table(("method", "says", "holds"), [[name, says[name], holds[name]] for name in methods])
    if EXACT not in methods:
        return True
    print(f"{EXACT}: {', '.join(f'{number} {name}' for name, number in sorted(status.items()))}")
    worse = [text for name, answers in found if (text := _worse(name, answers))]
    print("\n".join(worse) or f"{EXACT} is nowhere worse than another", file=sys.stderr)
    return not worse


def _worse(name, answers) -> str:
    """Which methods beat the exact one on a scenario; empty when none does."""
    ours = answers[EXACT][2]
    better = [other for other, (_, _, gpus) in answers.items() if gpus is not None and (ours is None or gpus < ours)]
    return f"{name}: {EXACT} is worse than {', '.join(better)}" if better else ""


def largest(name, data, methods, limit_s) -> tuple[str, dict[str, float]]:
    """Per method the largest factor of a scenario whose plan holds, 0 if none."""
    return name, {method: _largest(name, method, data, limit_s) for method in methods}


def _largest(name, method, data, limit_s) -> float:
    factor, held, failed = LEAST_RPS.get(name, LEAST_FACTOR), 0.0, 0
    while failed < LOOKS:
        holds = solved(scenario(name, factor, data), method, limit_s).verified
        held, failed = (factor, 0) if holds else (held, failed + 1)
        factor *= STEP
    return held


if __name__ == "__main__":
    sys.exit(main())
