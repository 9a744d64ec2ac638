"""InSS's workflow (section 5.5) beside an actor that decides at every step, on rates that drift.

Run as ``python benchmarks/papers/inss_workflow.py [--instances I ...] [--runs N] [--policy F]``. Rates begin anywhere
in the ranges for which actors are trained and move by a twentieth of a range at every step, 20 steps a run. The
workflow is `provision.replan` with method ``inss``: batches for the placement that runs (case 1), and where some
workload has none, the actor and batches anew (case 2). A row has the steps after the first at which processes moved,
the processes that shadows replace, the part of workloads that keep SLO and rate by the verifier, the same while shadows
start (the old processes serve until then), and the mean throughput.
"""

import argparse
from collections.abc import Iterator

import numpy as np
import results
from inss import throughput_rps, trained_on, whole_latency

import provision
from provision.draw.output import print_table
from provision.heuristics.inss.inss import SHIPPED, reconfigured
from provision.models.plans.disturbance import disturbance
from provision.models.problem.instance import Instance

STEPS, DRIFT = 20, 0.05
COLUMNS = ("instance", "decides", "steps", "placed anew", "shadows", "keep SLO and rate", "while shadows start",
           "requests/s")


def drifting(name, seed) -> Iterator[Instance]:
    """The instance at the rates of one run."""
    middle, spread = trained_on(name)
    middle = whole_latency(middle).with_policy(latency_budget="full_batches")
    random, low, high = np.random.default_rng(seed), 1 - spread, 1 + spread
    parts = random.uniform(low, high, len(middle.workloads))
    directions = random.choice([-1, 1], len(middle.workloads))
    for _ in range(STEPS):
        yield middle.replace(workloads=[one.model_copy(update={"rate_rps": float(part) * one.rate_rps})
                                        for one, part in zip(middle.workloads, parts, strict=True)])
        moved = parts + directions * DRIFT * (high - low)
        directions = np.where((moved < low) | (moved > high), -directions, directions)
        parts = np.clip(moved, low, high)


def row(name, decides, options) -> list[object]:
    """One line of the table."""
    steps, anew, shadows, keeps, meanwhile, rates = 0, 0, 0, [], [], []
    for seed in range(options.runs):
        standing = None
        for instance in drifting(name, seed):
            fresh = provision.solve(instance, "inss", policy=options.policy, replay=False).plan
            decided = reconfigured(instance, standing, options.policy) if standing and decides == "workflow" else fresh
            moved = disturbance(standing, decided).replicas_started if standing else 0
            report = provision.verify(instance, decided)
            steps, anew, shadows = steps + 1, anew + (moved > 0), shadows + moved
            keeps.append(kept(instance, report))
            meanwhile.append(kept(instance, provision.verify(instance, standing)) if moved else keeps[-1])
            rates.append(throughput_rps(report))
            standing = decided
    return [name, decides, steps, anew, shadows, *(float(np.mean(one)) for one in (keeps, meanwhile, rates))]


def kept(instance, report) -> float:
    """The part of the workloads of which a plan breaks neither SLO nor rate."""
    broken = {one.workload for one in report.violations if one.workload}
    return 1 - len(broken) / len(instance.workloads)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", nargs="*", default=["inss", "inss-six"])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--policy", default=SHIPPED)
    results.add_results(parser)
    options = parser.parse_args()
    rows = [row(name, decides, options) for name in options.instances for decides in ("actor always", "workflow")]
    print_table(COLUMNS, rows)
    results.write(options.results, "inss-workflow", COLUMNS, rows, range(options.runs))


if __name__ == "__main__":
    main()
