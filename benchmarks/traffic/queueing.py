"""The SLO/2 rule against queueing: GPUs on ParvaGPU's scenarios, and what their plans do when replayed.

Run as ``python benchmarks/traffic/queueing.py [DIR]``; DIR is ParvaGPU's artefact (``prof_data`` and ``SLO``), whose
measured tables are then used; without it the shipped scenarios on the fitted model are. Replays are
``provision.simulate`` with Poisson arrivals.
"""

import argparse
import sys

import provision
from provision.commands.common import print_table
from provision.instances.importers.parvagpu import import_scenario
from provision.models.problem.workload import Policy

BUDGETS = ("half_slo", "queueing")
COLUMNS = ("GPUs", "worst P99/SLO", "late")


def main():
    """Print one row per scenario: under each rule GPUs, the worst P99 over its SLO, and workloads beyond it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--method", default="parvagpu")
    parser.add_argument("--safety", type=float, default=0.9)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    rows = []
    for number in range(1, 7):
        instance = scenario(options.folder, number)
        policies = [Policy(latency_budget=budget, safety=options.safety) for budget in BUDGETS]
        found = [measure(instance.replace(policy=policy), options) for policy in policies]
        rows.append([f"S{number}", len(instance.workloads), *found[0], *found[1]])
        print(f"S{number} done", file=sys.stderr)
    print_table(["scenario", "workloads", *(f"{budget} {what}" for budget in BUDGETS for what in COLUMNS)], rows)


def scenario(folder, number):
    """One scenario, on measured tables where there are any."""
    return import_scenario(folder, number, 0.9) if folder else provision.read(f"parvagpu-s{number}")


def measure(instance, options):
    """GPUs of the plan, worst replayed P99 over its SLO, and how many workloads are beyond their SLO."""
    plan = provision.solve(instance, options.method).plan
    replayed = provision.simulate(instance, plan, seconds=options.seconds).workloads
    worst = max(one.p99.mean_ms / one.slo_ms for one in replayed)
    return len(plan.gpus), round(worst, 3), sum(not one.ok for one in replayed)


if __name__ == "__main__":
    main()
