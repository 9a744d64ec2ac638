"""Who goes without on too few GPUs: what is served, what is proven, and how long it takes.

Run as ``python benchmarks/size/rationing.py [--first N] [--results DIR]``. Each instance is planned at least cost
first; then it has the given part of the GPUs of that plan. Priorities 0 to 2, weights 1 to 3 and floors 0.5 and 1
are drawn with seed 0. Seconds are of CPU, the limit is not.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from time import process_time

import numpy as np

import provision
from provision.draw.output import print_table
from provision.formulations.master.rationing import Rationing
from provision.instances.read import repeated
from provision.models.base.clock import Deadline

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
import results

CASES = [(name, times, part) for name, times in (
    ("parvagpu-s2", 1), ("parvagpu-s5", 1), ("parvagpu-s6", 1), ("parvagpu-s6", 5), ("igniter-testbed-12", 1))
    for part in (0.5, 0.8)]
COLUMNS = ("instance", "part", "workloads", "gpus", "served_percent", "proven_levels", "levels", "gap_percent", "cut",
           "left_out", "cpu_s", "planned")


def main() -> None:
    """Print one row per instance and part of its GPUs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, metavar="N", help="only the first N cases")
    parser.add_argument("--time-limit", type=float, default=60.0, help="of the program, in seconds")
    results.add_results(parser)
    options = parser.parse_args()
    rows = [row(*case, options.time_limit) for case in CASES[: options.first]]
    print_table(COLUMNS, rows)
    results.write(options.results, "rationing", COLUMNS, rows, [0])


def row(name: str, times: int, part: float, limit_s: float) -> list[object]:
    """What the program serves of an instance on a part of the GPUs that it needs."""
    plain = repeated(provision.read(name), times) if times > 1 else provision.read(name)
    plain = plain.replace(workloads=[one.model_copy(update={"max_replicas": None}) for one in plain.workloads])
    needed = Counter(gpu.gpu for gpu in provision.solve(plain, time_limit_s=20, replay=False).plan.gpus)
    draw = np.random.default_rng(0)
    fleet = {one.gpu: one.model_copy(update={"count": max(1, int(needed[one.gpu] * part))}) for one in plain.fleet}
    short = plain.replace(objective="max_throughput", fleet=list(fleet.values()), workloads=[
        one.model_copy(update={"priority": int(draw.integers(3)), "weight": float(draw.integers(1, 4)),
                               "floor": float(draw.choice([0.5, 1.0]))}) for one in plain.workloads])
    before_s = process_time()
    found = Rationing(short).levels(Deadline(limit_s))
    seconds = process_time() - before_s
    asked, got = sum(one.asked for one in found.levels), sum(one.served for one in found.levels)
    bounds = [one.asked if one.bound is None else one.bound for one in found.levels]
    gaps = [(bound - one.served) / one.asked for one, bound in zip(found.levels, bounds, strict=True) if one.asked]
    return [f"{name} x {times}", part, len(short.workloads), sum(one.count or 0 for one in short.fleet),
            round(100 * got / asked, 1), sum(gap < 1e-5 for gap in gaps), len(gaps), round(100 * max(gaps), 2),
            int(((found.shares > 0) & (found.shares < 1)).sum()), int((found.shares == 0).sum()), round(seconds, 2),
            int(found.plan is not None)]


if __name__ == "__main__":
    main()
