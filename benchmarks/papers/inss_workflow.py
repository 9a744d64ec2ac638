"""InSS's workflow beside an actor that decides at every step, on rates that drift.

Run as ``python benchmarks/papers/inss_workflow.py [--runs N] [--policy F]``. Rates begin anywhere between half and one
and a half times the instance's and move by a twentieth of that range at every step, 20 steps a run, as in training. A
row has the steps at which the actor placed anew, the processes replaced by shadows, the part of workloads that keep SLO
and rate as decided, the same while shadows start (the old processes serve until then), and the mean throughput.
"""

import argparse
from functools import partial

import numpy as np
import results
from inss_scheduler import Workflow

import provision
from provision.commands.common import print_table
from provision.heuristics.inss.inss import SHIPPED, policy_for
from provision.heuristics.inss.system import System

STEPS, LOWEST, HIGHEST, DRIFT = 20, 0.5, 1.5, 0.05


def drifting(system, seed) -> np.ndarray:
    """Rates of one run, (steps, workloads)."""
    random = np.random.default_rng(seed)
    parts = [random.uniform(LOWEST, HIGHEST, system.workloads)]
    directions = random.choice([-1, 1], system.workloads)
    for _ in range(STEPS - 1):
        moved = parts[-1] + directions * DRIFT * (HIGHEST - LOWEST)
        directions = np.where((moved < LOWEST) | (moved > HIGHEST), -directions, directions)
        parts.append(np.clip(moved, LOWEST, HIGHEST))
    return system.rates_rps * np.array(parts)


def row(name, system, policy, patient, runs) -> list[object]:
    """One line of the table."""
    steps = []
    for seed in range(runs):
        steps += map(partial(Workflow.step, Workflow(system, policy, patient)), drifting(system, seed))
    return [
        name, len(steps), sum(one.reallocated for one in steps), sum(one.shadows for one in steps),
        *(float(np.mean(part)) for part in ([one.keeps for one in steps], [one.meanwhile for one in steps],
                                            [one.throughput_rps.sum() for one in steps])),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--policy", default=SHIPPED)
    results.add_results(parser)
    options = parser.parse_args()
    system = System(provision.read("inss"))
    policy = policy_for(options.policy, system)
    columns = ("decides", "steps", "placed anew", "shadows", "keep SLO and rate", "while shadows start", "requests/s")
    rows = [row(name, system, policy, patient, options.runs)
            for name, patient in (("actor always", False), ("workflow", True))]
    print_table(columns, rows)
    results.write(options.results, "inss-workflow", columns, rows, range(options.runs))


if __name__ == "__main__":
    main()
