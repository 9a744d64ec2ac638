"""Random small instances with three types of GPUs: how many are proven in a few seconds, and is more choice dearer?

Run as ``python benchmarks/verification/small.py [--draws N] [--seed S] [--rule half_slo|queueing] [--time-limit T]
[--most-rps R] [--seconds S] [--results DIR]``. A draw has two to six workloads of resnet50 and vgg19, free to split, at
50 to R requests/s (800 by default), on A100s with MIG, V100s and cheap T4s. It is solved by ``auto``, and so is one
relative of it: with ``share_slices``, with at most two replicas of each workload, with two of its types, or with two
T4s at most. A plan must not cost more than that of the same draw with fewer choices. Time is that of the CPU, so that
other programs do not matter. With ``--results`` the run goes on where the result file ends. Exit 1 if some plan is
dearer.
"""

import argparse
import math
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import numpy as np
import results

import provision
from provision.draw.output import print_table
from provision.models.base import clock
from provision.models.plans.result import Result
from provision.models.problem.instance import Instance

TYPES = {"a100-80gb": (5.12, "parvagpu-a100"), "v100": (3.06, "igniter-v100"), "t4": (0.53, "igniter-t4-derived")}
"""By GPU type its price per hour and its performance data."""
COLUMNS = ("case", "draws", "proven", "within 3 %", "dearer")
CLOSE, MOST_RPS = 0.03, 800.0
ROUNDING = 1e-9


def drawn(seed: int, rule: str, most_rps: float = MOST_RPS) -> Instance:
    """The draw of a seed; no workload has more than ``most_rps`` requests/s."""
    rng = np.random.default_rng(seed)
    workloads = [{"name": f"w{at}", "model": str(rng.choice(["resnet50", "vgg19"])),
                  "slo_ms": float(round(rng.uniform(40, 150))), "rate_rps": float(round(rng.uniform(50, most_rps)))}
                 for at in range(int(rng.integers(2, 7)))]
    return Instance.model_validate({
        "version": 1, "name": f"draw-{seed}", "policy": {"latency_budget": rule},
        "fleet": [{"gpu": gpu, "price_per_hour": price} for gpu, (price, _) in TYPES.items()],
        "performance": [data for _, data in TYPES.values()], "workloads": workloads})


def relative(instance: Instance, seed: int) -> tuple[str, Instance, bool]:
    """A relative of a draw: what differs, the instance, and whether it has more choices than the draw."""
    left_out = seed // 4 % len(TYPES)
    two = tuple(one for at, one in enumerate(instance.fleet) if at != left_out)
    few = tuple(one.model_copy(update={"count": 2}) if one.gpu == "t4" else one for one in instance.fleet)
    limited = tuple(one.model_copy(update={"max_replicas": 2}) for one in instance.workloads)
    return (("share_slices", instance.with_policy(share_slices=True), True),
            ("replica limit lifted", instance.replace(workloads=limited), False),
            ("type added", instance.replace(fleet=two), False),
            ("count raised", instance.replace(fleet=few), False))[seed % 4]


def verdicts(found: Result) -> list[str]:
    """The columns in which a result counts."""
    gap = math.inf if found.objective is None or found.bound is None else 1 - found.bound / found.objective
    return ["draws", *["proven"] * (found.status in ("optimal", "infeasible")), *["within 3 %"] * (gap <= CLOSE)]


def dearer(looser: Result, tighter: Result) -> bool:
    """Whether a result with more choices costs more."""
    if tighter.objective is None:
        return False
    return looser.objective is None or looser.objective > tighter.objective * (1 + ROUNDING)


def main() -> int:
    """Solve all draws and their relatives, and print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rule", choices=("half_slo", "queueing"), default="half_slo")
    parser.add_argument("--time-limit", type=float, default=8.0)
    parser.add_argument("--most-rps", type=float, default=MOST_RPS)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no more draws are begun after these")
    results.add_results(parser)
    options = parser.parse_args()
    more = "" if options.most_rps == MOST_RPS else f"-{options.most_rps:g}"
    tally = results.Tally(options.results, f"small-{options.rule}{more}", COLUMNS)
    clock.perf_counter = time.process_time
    total, started = tally.rows.setdefault(options.rule, Counter()), time.monotonic()
    while total["draws"] < options.draws and time.monotonic() - started < options.seconds:
        seed = options.seed + total["draws"]
        instance = drawn(seed, options.rule, options.most_rps)
        name, other, more = relative(instance, seed)
        mine, its = (provision.solve(one, time_limit_s=options.time_limit, replay=False) for one in (instance, other))
        wrong = ["dearer"] * (dearer(its, mine) if more else dearer(mine, its))
        tally.add(options.rule, *verdicts(mine), *wrong)
        tally.add(name, *verdicts(its), *wrong)
        if wrong or mine.status != "optimal":
            print(f"draw {seed}: {mine.objective} (bound {mine.bound}), {name}: {its.objective} (bound {its.bound})",
                  *wrong, flush=True)
        tally.write(range(options.seed, options.seed + total["draws"]))
    print_table(COLUMNS, [[name, *(counts[one] for one in COLUMNS[1:])] for name, counts in tally.rows.items()])
    return 1 if total["dearer"] else 0


if __name__ == "__main__":
    sys.exit(main())
