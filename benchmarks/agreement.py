"""Brute force against every exact method on random small instances, over combinations of what an instance may ask.

Isolated segments, interference (iGniter's model) and slices shared by different workloads in turn. Run as
``python benchmarks/agreement.py [--instances N] [--seed S]``; prints per method how many answers agree, and ends with
exit 1 when one contradicts brute force: another optimum, a bound above it, or infeasible where there is a plan. On
shared slices brute force splits rates into whole units, so that a plan may be a little better than its best.
"""

import argparse
import itertools
import math
import sys
from collections import Counter
from multiprocessing import Pool
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import provision
from provision.commands.common import print_table
from provision.instances.generators.synthetic import random_instance
from provision.instances.generators.synthetic_networks import random_mixed

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support/oracles"))
from mixed_oracle import best_mixed
from oracle import best_value
from sharing_oracle import best_sharing, random_sharing, same

METHODS = ("auto", "partition-counts", "mixed-slices", "assignment-cpsat", "assignment-milp", "master")
FLAGS = (False, True)
SEGMENTS = [
    dict(gpus=gpus, workloads=workloads, limited=limited, tolerant=tolerant, gpus_each=0.8)
    for gpus, workloads, limited, tolerant in itertools.product(
        (("a30",), ("t4",), ("a100-80gb",), ("a30", "t4")), (1, 2), FLAGS, FLAGS
    )
]
SHARING = [
    dict(gpus=gpus, workloads=workloads, limited=limited, mps=mps, hot=hot)
    for gpus, workloads, limited, mps, hot in itertools.product(
        (("v100",), ("v100", "t4")), (3, 4), FLAGS, (True, False), FLAGS
    )
]
MIXED = [
    dict(fleet=fleet, workloads=workloads, limited=limited, measured=measured, mps=mps)
    for fleet, limited, measured, (workloads, mps) in itertools.product(
        ((("a30", True),), (("a30", False),), (("a30", True), ("a30", False)), (("a30", True), ("t4", False))),
        FLAGS, FLAGS, ((2, True), (2, False), (3, True)),
    )
]


class Family(NamedTuple):
    """Instances that are drawn alike and the brute force for them, which goes up to a number of GPUs."""

    draw: object
    kinds: list
    best: object
    most_gpus: float = math.inf
    exact: bool = True


FAMILIES = (
    Family(random_instance, SEGMENTS, lambda instance: best_value(instance, 4), 4),
    Family(random_sharing, SHARING, best_sharing),
    Family(random_mixed, MIXED, lambda instance: best_mixed(instance, 3), 3, exact=False),
)
VERDICTS = ("agrees", "better", "open", "refused", "CONTRADICTS")


def check(seed):
    """Verdict and seconds of every method on one instance, and the instance's kind."""
    family = FAMILIES[seed % len(FAMILIES)]
    kind = family.kinds[seed // len(FAMILIES) % len(family.kinds)]
    instance = family.draw(seed, **kind)
    best, verdicts = family.best(instance), {}
    for name in METHODS:
        started = perf_counter()
        verdicts[name] = judge(instance, name, best, family), perf_counter() - started
    return seed, kind, verdicts


def judge(instance, name, best, family):
    """One method's answer against brute force; what takes more GPUs than that looked at is only not to contradict."""
    try:
        result = provision.solve(instance, name, time_limit_s=20)
    except provision.UnsupportedError:
        return "refused"
    except provision.MethodError:
        return "CONTRADICTS"
    if best is not None and (result.status == "infeasible" or (result.bound or 0) > best * (1 + 1e-9)):
        return "CONTRADICTS"
    if result.plan is None:
        return "agrees" if best is None else "open"
    if len(result.plan.gpus) > family.most_gpus:
        return "open"
    if best is None or result.objective < best * (1 - 1e-9):
        return "CONTRADICTS" if family.exact else "better"
    return "agrees" if result.status == "optimal" and same(result.objective, best) else "open"


def main():
    """Run all seeds on two processes and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    counts, seconds = Counter(), Counter()
    with Pool(options.workers) as pool:
        for seed, kind, verdicts in pool.imap_unordered(check, range(options.seed, options.seed + options.instances)):
            for name, (verdict, spent) in verdicts.items():
                counts[name, verdict] += 1
                seconds[name] += spent
                if verdict == "CONTRADICTS":
                    print(f"seed {seed} {name}: {kind}", file=sys.stderr)
    rows = [[name, *(counts[name, verdict] for verdict in VERDICTS), f"{seconds[name]:.1f}"] for name in seconds]
    print_table(["method", *VERDICTS, "seconds"], rows)
    return 1 if any(counts[name, "CONTRADICTS"] for name in seconds) else 0


if __name__ == "__main__":
    sys.exit(main())
