"""The core at size: plans and proven bounds for many distinct workloads, each case with the gap it should reach.

Run as ``python benchmarks/scale.py [CASE ...] [--seed N ...] [--cpu] [--results DIR]``. With ``--cpu``, time limits and
seconds are of CPU, so that other work on the machine does not count. With ``--results``, the other rows of the result
file stay. Cases:

isolated-1100, isolated-11000
    Workloads drawn around ParvaGPU's S5, rates times 0.2 to 3 and SLOs times 0.7 to 1.5, on MIG.
free-120, single-1000, free-1000, free-1000-long, single-10000, free-10000
    iGniter's generator on V100s; ``single`` allows one replica each, ``free`` any number; ``long`` has more time.
own-50, own-120, own-190
    The same, free to split, with SLOs 1 to 1.5 times as long, a factor for each workload. ``bound_s`` tells when there
    was a bound that one GPU does not give.
testbed-free
    iGniter's testbed of 12 workloads with any number of replicas.
queueing-testbed, queueing-s1 to queueing-s6
    The same testbed, and ParvaGPU's scenarios whose slices may be shared, under the rule ``queueing``.
yaml-9000
    9,000 workloads read from YAML, with a time limit of 20 s; reading and verifying count.
greedy-s5x100
    Greedy on a hundred copies of S5.

Kernels compile before the first case. Each row also tells when the first plan was known, and how much the best plan
known after EARLY_S seconds costs above the best one at the end.
"""

import argparse
import sys
import tempfile
from itertools import product
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent / "papers"))
import results

import provision
from provision.draw.convergence import Trace
from provision.draw.output import print_table
from provision.instances.read import generate
from provision.models.base import clock
from provision.models.problem.instance import Instance

HEAD = ("case", "seed", "method", "limit_s", "value", "bound", "gap_percent", "wanted_percent", "search_s", "whole_s",
        "status", "step", "first_plan_s", "early_percent", "bound_s")
EARLY_S = 3.0
"""A good plan should be known after this many seconds."""


class Case(NamedTuple):
    """A method's time limit on an instance and the gap to reach, in percent."""

    method: str
    limit_s: float
    wanted: float


CASES = {
    "isolated-1100": Case("auto", 30, 0.1),
    "isolated-11000": Case("auto", 120, 0.2),
    "free-120": Case("auto", 40, 0.0),
    "single-1000": Case("auto", 30, 0.0),
    "free-1000": Case("auto", 60, 1.0),
    "free-1000-long": Case("auto", 300, 0.5),
    "single-10000": Case("auto", 120, 0.3),
    "free-10000": Case("auto", 120, 1.0),
    "own-50": Case("auto", 30, 5.0),
    "own-120": Case("auto", 30, 5.0),
    "own-190": Case("auto", 30, 8.0),
    "testbed-free": Case("auto", 10, 0.0),
    "queueing-testbed": Case("auto", 30, 10.0),
    **{f"queueing-s{number}": Case("auto", 30, 0.0) for number in range(1, 7)},
    "yaml-9000": Case("auto", 20, 100.0),
    "greedy-s5x100": Case("greedy", 10, 1.0),
}


def around_s5(many: int, seed: int) -> Instance:
    """Workloads drawn around those of S5: rates times 0.2 to 3, SLOs times 0.7 to 1.5."""
    base, draw = provision.read("parvagpu-s5"), np.random.default_rng(seed)
    drawn = []
    for at in range(many):
        one = base.workloads[at % len(base.workloads)]
        rate_rps, slo_ms = one.rate_rps * draw.uniform(0.2, 3), one.slo_ms * draw.uniform(0.7, 1.5)
        drawn.append(one.model_copy(update={"name": f"{one.name}-{at}", "rate_rps": rate_rps, "slo_ms": slo_ms}))
    return base.replace(name=f"around-s5-{many}", workloads=tuple(drawn))


def freed(instance: Instance) -> Instance:
    """The same with any number of replicas."""
    workloads = tuple(one.model_copy(update={"max_replicas": None}) for one in instance.workloads)
    return instance.replace(workloads=workloads)


def as_yaml(instance: Instance, folder: Path) -> Path:
    """A file with the instance."""
    path = folder / "many.yaml"
    path.write_text(yaml.safe_dump(instance.model_dump(mode="json", exclude_none=True)))
    return path


def instance_of(case: str, seed: int, folder: Path) -> Instance | Path:
    """The instance of a case, or a file with it."""
    kind, many = case.split("-")[:2]
    if many in ("free", "testbed"):
        testbed = freed(provision.read("igniter-testbed-12"))
        return testbed.with_policy(latency_budget="queueing") if many == "testbed" else testbed
    if kind == "queueing":
        return provision.read(f"parvagpu-{many}-shared").with_policy(latency_budget="queueing")
    if case == "greedy-s5x100":
        return provision.read("parvagpu-s5-x100")
    if case == "yaml-9000":
        return as_yaml(around_s5(9000, seed), folder)
    if kind == "isolated":
        return around_s5(int(many), seed)
    single = generate(int(many), seed)
    if kind == "own":
        longer = np.random.default_rng(seed + 1).uniform(1, 1.5, int(many)).tolist()
        several = [one.model_copy(update={"slo_ms": one.slo_ms * factor})
                   for one, factor in zip(single.workloads, longer, strict=True)]
        return freed(single.replace(workloads=tuple(several)))
    return single if kind == "single" else freed(single)


def main() -> None:
    """Print a row per case and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], default=list(CASES))
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--cpu", action="store_true", help="count seconds of CPU")
    results.add_results(parser)
    options = parser.parse_args()
    clock.perf_counter = process_time if options.cpu else perf_counter
    known, rows = results.earlier(options.results, "scale"), []
    for name, seed in product(options.cases, options.seed):
        rows.append(row := solved(name, seed))
        print(*row, sep=" | ", flush=True)
        every = {(one["case"], one["seed"]): [one.get(column) for column in HEAD] for one in known.rows}
        every |= {(one[0], str(one[1])): one for one in rows}
        seeds = sorted({int(seed) for _, seed in every})
        results.write(options.results, "scale", HEAD, [every[key] for key in sorted(every)], seeds,
                      results.commits(known))
    print_table(HEAD, rows)


def solved(name: str, seed: int) -> list[object]:
    """The row of a case."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        instance = instance_of(name, seed, Path(folder))
        started = clock.now_s()
        trace = Trace()
        found = provision.solve(instance, case.method, case.limit_s, seed, trace, replay=False)
        whole_s = clock.now_s() - started
    seconds = found.build_seconds + found.solve_seconds
    gap = None if found.gap is None else round(100 * found.gap, 3)
    return [name, seed, case.method, case.limit_s, found.objective, found.bound, gap, case.wanted, round(seconds, 2),
            round(whole_s, 2), found.status, found.plan and found.plan.method, *early(trace, found.objective, whole_s),
            bounded(trace, whole_s)]


def bounded(trace: Trace, whole_s: float) -> float:
    """The seconds until there was a bound that one GPU does not give."""
    bounds = [(one.seconds, one.bound) for one in trace.moments if one.bound is not None]
    return round(next((seconds for seconds, bound in bounds if bound > bounds[0][1]), whole_s), 2)


def early(trace: Trace, best: float | None, whole_s: float) -> tuple[float | None, float | None]:
    """The seconds until the first plan, and how far the best plan after EARLY_S seconds is above ``best``, in percent;
    None without such a plan. A plan that is not reported is known at the end.
    """
    if best is None:
        return None, None
    plans = [(one.seconds, one.objective) for one in trace.moments if one.objective is not None] + [(whole_s, best)]
    soon = [cost for seconds, cost in plans if seconds <= EARLY_S]
    return round(plans[0][0], 2), round(100 * (min(soon) / best - 1), 2) if soon else None


if __name__ == "__main__":
    main()
