"""Planning again after demand moved: a Planner beside a solve from nothing, and when each reaches a gap.

Run as ``python benchmarks/size/again.py [KIND-WORKLOADS ...] [--seeds N] [--limit S] [--results DIR]``. Kinds are those
of ``scale.py``: ``single`` and ``free`` (iGniter's generator on V100s), and ``isolated`` (around ParvaGPU's S5). With
``--results``, the other cases of the result file stay.

A Planner solves each instance once. Then, for every seed, 5 % of the rates move by up to 20 % either way. The Planner,
which begins with its last plan, and a solve from nothing both run until they prove their plan, or to the limit. For
every gap it is told when each first had a plan and a bound that close. Times and limits are CPU seconds of the whole
call, so that other programs do not matter; kernels compile before.
"""

import argparse
import copy
import math
import sys
from pathlib import Path
from time import process_time

import numpy as np

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "papers")]
import results
from scale import around_s5, freed

import provision
from provision.draw.output import print_table
from provision.instances.read import generate
from provision.models.base import clock
from provision.models.problem.instance import Instance
from provision.models.problem.search import Incumbent

COLUMNS = ("case", "seed", "gap_percent", "anew_s", "again_s", "part")
KINDS = {"single": generate, "free": lambda many, seed: freed(generate(many, seed)), "isolated": around_s5}
MOVED, BY = 0.05, 0.2
GAPS = (0.03, 0.02, 0.01, 0.0)
"""The gaps whose times are told."""


def moved(instance: Instance, seed: int) -> dict[str, float]:
    """New rates of 5 % of the workloads."""
    draw = np.random.default_rng(seed)
    chosen = draw.choice(len(instance.workloads), round(MOVED * len(instance.workloads)), replace=False)
    return {instance.workloads[at].name: instance.workloads[at].rate_rps * draw.uniform(1 - BY, 1 + BY)
            for at in chosen.tolist()}


class Reached:
    """When which gap was reached."""

    def __init__(self) -> None:
        self.started, self.steps = process_time(), []

    def __call__(self, news: Incumbent) -> None:
        if news.objective is not None and news.bound is not None:
            self.steps.append((1 - news.bound / news.objective, process_time() - self.started))

    def seconds_to(self, gap: float) -> float:
        """CPU seconds until a gap was first reached; infinite if it was not."""
        return next((seconds for reached, seconds in self.steps if reached <= gap + 1e-9), math.inf)


def main() -> None:
    """Print a row per case and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="KIND-WORKLOADS", default=["single-1000", "isolated-1000"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0)
    results.add_results(parser)
    options = parser.parse_args()
    clock.perf_counter = process_time
    before = results.earlier(options.results, "again")
    rows = [list[object](one.values()) for one in before.rows if one["case"] not in options.cases]
    for case in options.cases:
        kind, many = case.split("-")
        instance = KINDS[kind](int(many), 0)
        small = instance.replace(workloads=instance.workloads[:20])
        provision.solve(small, time_limit_s=5, replay=False)
        planner = provision.Planner(instance)
        planner.solve(options.limit, replay=False)
        for seed in range(1, options.seeds + 1):
            again = copy.deepcopy(planner)
            changed, known = again.update(moved(instance, seed)), Reached()
            again.solve(options.limit, replay=False, report=known)
            anew = Reached()
            provision.solve(changed, time_limit_s=options.limit, replay=False, report=anew)
            for gap in GAPS:
                anew_s, again_s = anew.seconds_to(gap), known.seconds_to(gap)
                part = again_s / anew_s if math.isfinite(anew_s) else math.nan
                rows.append([case, seed, 100 * gap, round(anew_s, 2), round(again_s, 2), round(part, 3)])
                print(*rows[-1], sep=" | ", flush=True)
    print_table(COLUMNS, rows)
    results.write(options.results, "again", COLUMNS, rows, range(options.seeds + 1), results.commits(before))


if __name__ == "__main__":
    main()
