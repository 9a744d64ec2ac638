"""Every combination of ways of sharing, latency rule, shared slices, objective and replica limits: is it answered?

Run as ``python benchmarks/combinations.py [--time-limit S] [--method NAME] [--only TEXT] [--cpu] [--results DIR]``. Two
small workloads are planned on A100s with MIG, on V100s with MPS, and on a fleet of both, in each of 144 combinations. A
row tells the value of the verified plan, the proven bound and the seconds taken; the last line counts the answers
without a plan or without a bound. With ``--cpu``, seconds and the time limit are of CPU. With ``--results``, the other
rows of the result file stay.
"""

import argparse
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "papers"))
import results

import provision
from provision.draw.output import print_table
from provision.models.base import clock
from provision.models.problem.instance import Instance

WORKLOADS = [{"name": "faces", "model": "resnet50", "slo_ms": 100, "rate_rps": 400},
             {"name": "scenes", "model": "vgg19", "slo_ms": 100, "rate_rps": 200}]
A100 = {"gpu": "a100-80gb", "price_per_hour": 5.12}
V100 = {"gpu": "v100", "price_per_hour": 3.06}
FLEETS = {"MIG": [A100], "MPS": [V100], "both": [A100, V100]}
RULES = ("half_slo", "queueing")
OBJECTIVES = ("min_gpus", "min_cost", "max_throughput")
LIMITS = {"free": {}, "min 2": {"min_replicas": 2}, "max 1": {"max_replicas": 1},
          "share 0.6": {"max_share_per_gpu": 0.6}}
HEAD = ("combination", "status", "value", "bound", "gap_percent", "s", "reason")


def combinations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and instances, as files have them, of all combinations."""
    for fleet, rule, shared, objective, limit in product(FLEETS, RULES, (False, True), OBJECTIVES, LIMITS):
        few = {"count": 2} if objective == "max_throughput" else {}
        yield ", ".join((fleet, rule, "shared" if shared else "own", objective, limit)), {
            "version": 1,
            "name": "combination",
            "objective": objective,
            "policy": {"latency_budget": rule, "safety": 0.9, "share_slices": shared},
            "fleet": [{**entry, **few} for entry in FLEETS[fleet]],
            "performance": ["parvagpu-a100", "igniter-v100"],
            "workloads": [{**one, **LIMITS[limit]} for one in WORKLOADS],
        }


def main() -> None:
    """Print a row per combination and what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--only", default="", help="combinations whose name has this text")
    parser.add_argument("--cpu", action="store_true", help="count seconds of CPU")
    results.add_results(parser)
    options = parser.parse_args()
    clock.perf_counter = process_time if options.cpu else perf_counter
    rows, unplanned, unbounded = [], 0, 0
    for name, content in combinations():
        if options.only in name:
            started = clock.now_s()
            try:
                instance = Instance.model_validate(content)
                found = provision.solve(instance, options.method, options.time_limit, replay=False)
            except ValueError as error:  # whatever is refused, in the file or by the method
                unplanned, unbounded = unplanned + 1, unbounded + 1
                rows.append([name, "refused", None, None, None, None, str(error).splitlines()[0]])
            else:
                unplanned += not found.verified and found.status != "infeasible"
                unbounded += found.bound is None and found.status != "infeasible"
                gap = None if found.gap is None else round(100 * found.gap, 3)
                rows.append([name, found.status, found.objective, found.bound, gap, round(clock.now_s() - started, 2),
                             found.reason])
            print(*rows[-1], sep=" | ", flush=True)
    print_table(HEAD, rows)
    known = results.earlier(options.results, "combinations")
    every = {row["combination"]: list(row.values()) for row in known.rows} | {row[0]: row for row in rows}
    results.write(options.results, "combinations", HEAD, every.values(), [0], results.commits(known))
    print(f"combinations {len(rows)} without a plan {unplanned} without a bound {unbounded}")


if __name__ == "__main__":
    main()
