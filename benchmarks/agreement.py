"""Brute force against every exact method on random small instances, over combinations of what an instance may ask.

Run as ``python benchmarks/agreement.py [--instances N] [--seed S]``; prints per method how many answers agree, and ends
with exit 1 when one contradicts brute force: another optimum, a bound above it, or infeasible where there is a plan.
"""

import argparse
import itertools
import sys
from collections import Counter
from multiprocessing import Pool
from pathlib import Path
from time import perf_counter

import provision
from provision.commands.common import print_table
from provision.instances.synthetic import random_instance

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from oracle import best_value
from sharing_oracle import best_sharing, random_sharing, same

METHODS = ("partition-counts", "assignment-cpsat", "assignment-milp", "patterns")
FLAGS = (False, True)
MOST_GPUS = 4
"""GPUs that brute force goes up to on isolated segments; what needs more is only checked for contradiction."""
SEGMENTS = [
    (random_instance, dict(gpus=gpus, workloads=workloads, limited=limited, tolerant=tolerant, gpus_each=0.8))
    for gpus, workloads, limited, tolerant in itertools.product(
        (("a30",), ("t4",), ("a100-80gb",), ("a30", "t4")), (1, 2), FLAGS, FLAGS
    )
]
SHARING = [
    (random_sharing, dict(gpus=gpus, workloads=workloads, limited=limited, mps=mps, hot=hot))
    for gpus, workloads, limited, mps, hot in itertools.product(
        (("v100",), ("v100", "t4")), (3, 4), FLAGS, (True, False), FLAGS
    )
]
VERDICTS = ("agrees", "open", "refused", "CONTRADICTS")


def check(seed):
    """Verdict and seconds of every method on one instance, and the instance's kind."""
    kinds = SHARING if seed % 2 else SEGMENTS
    draw, kind = kinds[seed // 2 % len(kinds)]
    instance = draw(seed, **kind)
    best = best_value(instance, MOST_GPUS) if draw is random_instance else best_sharing(instance)
    verdicts = {}
    for name in METHODS:
        if name in provision.methods():
            started = perf_counter()
            verdicts[name] = judge(instance, name, best, draw is random_instance), perf_counter() - started
    return seed, kind, verdicts


def judge(instance, name, best, capped):
    """One method's answer against brute force, which with ``capped`` looked at MOST_GPUS GPUs at most."""
    try:
        result = provision.solve(instance, name, time_limit_s=20)
    except provision.UnsupportedError:
        return "refused"
    except provision.MethodError:
        return "CONTRADICTS"
    more = capped and result.plan is not None and len(result.plan.gpus) > MOST_GPUS
    if best is None:
        return "agrees" if result.plan is None else "open" if more else "CONTRADICTS"
    if result.status == "infeasible" or (result.bound or 0) > best * (1 + 1e-9):
        return "CONTRADICTS"
    if result.status == "optimal":
        return "agrees" if same(result.objective, best) or (more and result.objective < best) else "CONTRADICTS"
    below = result.plan is not None and not more and result.objective < best * (1 - 1e-9)
    return "CONTRADICTS" if below else "open"


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
