"""Anytime: is what a search knows at second t the same under different time limits?

Run as ``python benchmarks/verification/anytime.py [CASE ...] [--limits 8 30 120] [--seed N] [--cpu] [--pictures DIR]
[--results DIR]``. A case is a shipped instance, a case of ``scale.py`` such as ``free-120``, or ``draw-N``, the draw of
seed N of ``small.py``. Each is solved once per limit, from the same seed. A row tells when the first plan came, plan
and bound at some seconds, and by how many percent the plan at 3 s is worse than the best plan under all limits.
Seconds count from the beginning of the search, without what was compiled; with ``--cpu`` they are of CPU, so that other
programs do not matter.
"""

import argparse
import sys
from pathlib import Path
from time import perf_counter, process_time

sys.path += [str(Path(__file__).resolve().parents[at]) for at in (0, 1)]
sys.path.append(str(Path(__file__).resolve().parents[1] / "papers"))
import results
from scale import CASES as SIZES
from scale import instance_of
from small import drawn

import provision
from provision.draw.convergence import Moment, Trace
from provision.draw.figures import write_figure
from provision.draw.output import print_table
from provision.models.base import clock
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of

CASES = ("igniter-testbed-12", "inss", "draw-2", "parvagpu-s5-shared", "free-120", "free-1000")
AT_S = (1.0, 3.0, 8.0, 30.0)
EARLY_S = 3.0
"""The second at which a plan should be close to the best one."""
COLUMNS = ("case", "limit_s", "first_plan_s", *(f"{what}_{second:g}s" for second in AT_S for what in ("plan", "bound")),
           "plan", "bound", "from_best_percent")


def case(name: str, seed: int) -> Instance:
    """The instance of a case."""
    if name in SIZES:
        return instance_of(name, seed, Path())
    kind, _, draw = name.partition("-")
    return drawn(int(draw), "half_slo") if kind == "draw" else provision.read(name)


def main() -> None:
    """Print a row for every case and limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--limits", nargs="+", type=float, default=[8.0, 30.0, 120.0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cpu", action="store_true", help="count seconds of CPU")
    parser.add_argument("--pictures", metavar="DIR", help="draw every trace into this folder")
    results.add_results(parser)
    options = parser.parse_args()
    clock.perf_counter = process_time if options.cpu else perf_counter
    rows: list[list[object]] = []
    for name in options.cases:
        rows += rows_of(name, options.limits, options.seed, options.pictures)
        results.write(options.results, "anytime", COLUMNS, rows, [options.seed])
    print_table(COLUMNS, rows)


def rows_of(name: str, limits_s: list[float], seed: int, pictures: str | None) -> list[list[object]]:
    """A row for every limit."""
    instance, rows, early = case(name, seed), list[list[object]](), list[float | None]()
    best: float | None = None
    provision.solve(instance, time_limit_s=1.0, seed=seed, replay=False)  # compiles
    for limit_s in limits_s:
        trace = Trace()
        found = provision.solve(instance, time_limit_s=limit_s, seed=seed, report=trace, replay=False)
        if pictures:
            figure = trace.figure(instance, found)
            write_figure(figure, str(Path(pictures) / f"{name}-{limit_s:g}.png"), force=True)
        first_s = next((one.seconds for one in trace.moments if one.objective is not None), None)
        moments = trace.best(instance)
        early.append(at_second(moments, EARLY_S).objective)
        known = [cell for second in AT_S
                 for cell in (at_second(moments, second)[1:] if second <= limit_s else (None, None))]
        rows.append([name, limit_s, first_s, *known, found.objective, found.bound])
        print(*rows[-1], sep=" | ", flush=True)
        best = found.objective if objective_of(instance).better(found.objective, best) else best
    return [[*row, None if plan is None or best is None else round(100 * abs(plan / best - 1), 2)]
            for row, plan in zip(rows, early, strict=True)]


def at_second(moments: list[Moment], second: float) -> Moment:
    """What was known at a second."""
    before = [one for one in moments if one.seconds <= second]
    return before[-1] if before else Moment(second, None, None)


if __name__ == "__main__":
    main()
