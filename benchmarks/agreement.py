"""Every exact method and brute force against each other on random small instances, over all combinations of options.

Run as ``python benchmarks/agreement.py [--instances N] [--seed S] [--time-limit T] [--seconds S] [--results DIR]``
(with ``--workers N``, by default 2, or ``--dask ADDRESS``). Instances have one to three workloads on GPUs with MIG,
with MPS or both, of several types, prices and counts, for all objectives, under half_slo or queueing, with slices
shared or not, limits on replicas and on the share per GPU, and variants. Each is also planned with a limit less or an
option more, and with a fleet entry less. A contradiction is a plan that beats what is proven, an "infeasible" beside a
plan, a plan that the verifier rejects, or another error; then the exit code is 1. An instance that cannot be checked at
all counts as one, and the others are still checked. With ``--results`` the run goes on where the result file ends.
"""

import argparse
import math
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter

from provision.draw.output import print_table
from provision.models.problem.executor import executor_of
from provision.models.problem.objective import objective_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support/oracles"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "papers"))
import results
from combined import random_combination
from combined_checks import ROUNDING, Answer, faults_of

METHODS = ("auto", "master", "assignment-cpsat", "assignment-milp")


def check(seed: int, time_limit_s: float) -> tuple[list[str], list[tuple[str, str]]]:
    """What is wrong with the answers on one instance and on its neighbours, and what each method says about it."""
    try:
        return _checked(seed, time_limit_s)
    except Exception as error:  # whatever it is, one instance does not end the others
        return [f"combined-{seed}: {type(error).__name__}: {error}"], []


def _checked(seed: int, time_limit_s: float) -> tuple[list[str], list[tuple[str, str]]]:
    instance = random_combination(seed, every=True)
    faults, answers = faults_of(instance, METHODS, time_limit_s, loosenings=1, parts=1, first=seed)
    best = min((objective_of(instance).loss(one.value) for one in answers if one.value is not None), default=None)
    losses = [None if one.value is None else objective_of(instance).loss(one.value) for one in answers]
    return faults, [(one.method, _verdict(one, loss, best)) for one, loss in zip(answers, losses, strict=True)]


def _verdict(answer: Answer, loss: float | None, best: float | None) -> str:
    """How far one method got, beside the best plan of all of them (both as a loss)."""
    if answer.infeasible:
        return "infeasible"
    if loss is None or best is None:
        return "no plan"
    if loss > best + ROUNDING * abs(best):
        return "worse"
    bound = answer.bound
    return "proven" if bound is not None and abs(abs(loss) - bound) <= ROUNDING * abs(bound) else "best"


ALL = "all methods"
COLUMNS = ("method", "instances", "proven", "best", "worse", "no plan", "infeasible", "contradicted")
"""How many instances a method takes and what it answers; in the row of all methods also how many are contradicted."""
ROUND = 10
"""So many instances are checked before the result file is written."""


def counted(tally: results.Tally, lines: list[str], verdicts: list[tuple[str, str]]) -> None:
    """Add one instance."""
    tally.add(ALL, "instances", *["contradicted"] * bool(lines))
    for name, verdict in verdicts:
        tally.add(name, "instances", verdict)


def main() -> int:
    """Run all seeds, print a row per method and a line in all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=2.0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no more instances are begun after these")
    parser.add_argument("--workers", type=int, metavar="N", help="processes on this machine (default: 1)")
    parser.add_argument("--dask", metavar="ADDRESS", help="the scheduler of a Dask cluster, as tcp://host:8786")
    results.add_results(parser)
    options = parser.parse_args()
    tally, started = results.Tally(options.results, "agreement", COLUMNS), perf_counter()
    total = tally.rows.setdefault(ALL, Counter())
    workers = 2 if options.dask is None and options.workers is None else options.workers
    with executor_of(workers, options.dask) as executor:
        while (left := options.instances - total["instances"]) > 0 and perf_counter() - started < options.seconds:
            first = options.seed + total["instances"]
            tasks = [(seed, options.time_limit) for seed in range(first, first + min(left, ROUND))]
            for (seed, _), found in zip(tasks, executor.map(check, tasks), strict=True):
                lines, verdicts = found or ([f"combined-{seed}: its worker died twice"], [])
                counted(tally, lines, verdicts)
                for line in lines:
                    print(line, file=sys.stderr, flush=True)
            tally.write(range(options.seed, options.seed + total["instances"]))
    print_table(COLUMNS, [[name, *(counts[one] for one in COLUMNS[1:])] for name, counts in tally.rows.items()])
    print(f"from seed {options.seed}: {total['instances']} instances, {total['contradicted']} with contradictions, "
          f"{perf_counter() - started:.0f} s")
    return 1 if total["contradicted"] else 0


if __name__ == "__main__":
    sys.exit(main())
