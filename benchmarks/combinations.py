"""Every combination of ways of sharing, latency rule, shared slices, objective and replica limits: is it answered?

Run as ``python benchmarks/combinations.py [--time-limit S] [--method NAME] [--only TEXT ...] [--workloads N] [--cpu]
[--results DIR]``. Two small workloads are planned on A100s with MIG, on V100s with MPS, and on a fleet of both, in each
of 144 combinations. With more of them, every one has its rate times 0.5 to 1 and its SLO times 1 to 1.5. A row tells
the value of the verified plan, the proven bound, the seconds taken, and when there was a first plan and a first bound
beyond the price of one GPU; the last line counts the answers without a plan or without a bound. With ``--cpu``,
seconds and the time limit are of CPU. With ``--results``, the other rows of the result file stay.
"""

import argparse
import sys
from collections.abc import Iterator
from itertools import cycle, product
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "papers"))
import numpy as np
import results

import provision
from provision.draw.convergence import Trace
from provision.draw.output import print_table
from provision.models.base import clock
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of

WORKLOADS = [{"name": "faces", "model": "resnet50", "slo_ms": 100, "rate_rps": 400},
             {"name": "scenes", "model": "vgg19", "slo_ms": 100, "rate_rps": 200}]
A100 = {"gpu": "a100-80gb", "price_per_hour": 5.12}
V100 = {"gpu": "v100", "price_per_hour": 3.06}
FLEETS = {"MIG": [A100], "MPS": [V100], "both": [A100, V100]}
RULES = ("half_slo", "queueing")
OBJECTIVES = ("min_gpus", "min_cost", "max_throughput")
LIMITS = {"free": {}, "min 2": {"min_replicas": 2}, "max 1": {"max_replicas": 1},
          "share 0.6": {"max_share_per_gpu": 0.6}}
HEAD = ("combination", "status", "value", "bound", "gap_percent", "s", "reason", "plan_s", "bound_s")


def several(many: int) -> list[dict[str, Any]]:
    """Workloads in turn like the two; those drawn if there are more."""
    draw = np.random.default_rng(0)
    longer, part = (draw.uniform(*ends, many).round(4).tolist() if many > len(WORKLOADS) else [1] * many
                    for ends in ((1, 1.5), (0.5, 1)))
    return [{**one, "name": f"{one['name']}{at // 2 or ''}", "slo_ms": one["slo_ms"] * longer[at],
             "rate_rps": one["rate_rps"] * part[at]}
            for at, one in zip(range(many), cycle(WORKLOADS), strict=False)]


def combinations(many: int = 2) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and instances, as files have them, of all combinations."""
    workloads = several(many)
    for fleet, rule, shared, objective, limit in product(FLEETS, RULES, (False, True), OBJECTIVES, LIMITS):
        few = {"count": many} if objective == "max_throughput" else {}
        yield ", ".join((fleet, rule, "shared" if shared else "own", objective, limit)), {
            "version": 1,
            "name": "combination",
            "objective": objective,
            "policy": {"latency_budget": rule, "safety": 0.9, "share_slices": shared},
            "fleet": [{**entry, **few} for entry in FLEETS[fleet]],
            "performance": ["parvagpu-a100", "igniter-v100"],
            "workloads": [{**one, **LIMITS[limit]} for one in workloads],
        }


def main() -> None:
    """Print a row per combination and what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--only", nargs="+", default=[""], help="combinations whose name has all of these texts")
    parser.add_argument("--workloads", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="count seconds of CPU")
    results.add_results(parser)
    options = parser.parse_args()
    clock.perf_counter = process_time if options.cpu else perf_counter
    rows, unplanned, unbounded = [], 0, 0
    for name, content in combinations(options.workloads):
        if all(text in name for text in options.only):
            started, trace = clock.now_s(), Trace()
            try:
                instance = Instance.model_validate(content)
                started, trace = clock.now_s(), Trace()
                found = provision.solve(instance, options.method, options.time_limit, 0, trace, replay=False)
            except ValueError as error:  # whatever is refused, in the file or by the method
                unplanned, unbounded = unplanned + 1, unbounded + 1
                rows.append([name, "refused", *[None] * 4, str(error).splitlines()[0], None, None])
            else:
                unplanned += not found.verified and found.status != "infeasible"
                unbounded += found.bound is None and found.status != "infeasible"
                gap = None if found.gap is None else round(100 * found.gap, 3)
                trace.add(found.objective, found.bound)
                rows.append([name, found.status, found.objective, found.bound, gap, round(clock.now_s() - started, 2),
                             found.reason, *firsts(instance, trace)])
            print(*rows[-1], sep=" | ", flush=True)
    print_table(HEAD, rows)
    file = "combinations" if options.workloads == len(WORKLOADS) else f"combinations-{options.workloads}"
    known = results.earlier(options.results, file)
    every = {row["combination"]: [row.get(column) for column in HEAD] for row in known.rows}
    every |= {row[0]: row for row in rows}
    results.write(options.results, file, HEAD, every.values(), [0], results.commits(known))
    print(f"combinations {len(rows)} without a plan {unplanned} without a bound {unbounded}")


def firsts(instance: Instance, trace: Trace) -> list[float | None]:
    """The seconds until the first plan, and until the first bound beyond the price of one GPU; None without one."""
    one_gpu = min(map(objective_of(instance).weight, instance.fleet))
    trivial = 0.0 if instance.objective == "max_throughput" else one_gpu
    plans = [one.seconds for one in trace.moments if one.objective is not None]
    bounds = [one.seconds for one in trace.moments if one.bound is not None and one.bound > trivial]
    return [round(several[0], 2) if several else None for several in (plans, bounds)]


if __name__ == "__main__":
    main()
