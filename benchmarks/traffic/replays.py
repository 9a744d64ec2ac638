"""Every shipped instance's best plan by its own latency rule, replayed with constant and with Poisson arrivals.

Run as ``python benchmarks/traffic/replays.py [DIR]``: ``auto`` plans each shipped instance; the plan is replayed for a
minute at the stated rates. With DIR, ParvaGPU's artefact, its six scenarios on its measured tables come after, slices
shared. Cells are GPUs, the worst P99 over its SLO and the workloads over it. `certainty` has plans by queueing.
"""

import argparse
import sys

import provision
from provision.draw.output import print_table
from provision.instances.importers.parvagpu import import_scenario, sharing
from provision.instances.read import shipped_instances

COLUMNS = ("instance", "status", "GPUs", "constant", "Poisson")


def main() -> int:
    """Print one row per instance; exit 1 when one is late with constant arrivals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--instances", nargs="+", default=shipped_instances(), metavar="NAME")
    options = parser.parse_args()
    instances = [provision.read(name) for name in options.instances]
    if options.folder:
        instances += [sharing(import_scenario(options.folder, row, 0.9)) for row in range(1, 7)]
    rows = []
    for instance in instances:
        rows.append(measured(instance, options))
        print(*rows[-1], file=sys.stderr)
    print_table(COLUMNS, rows)
    return int(any(not row[3].endswith(" 0") for row in rows))


def measured(instance, options) -> list[object]:
    """One row."""
    result = provision.solve(instance, time_limit_s=options.time_limit)
    replays = (replayed(instance, result.plan, cv, options) for cv in (0, 1))
    return [instance.name, result.status, len(result.plan.gpus), *replays]


def replayed(instance, plan, cv, options) -> str:
    """The worst P99 over its SLO, and how many workloads and workflows are late."""
    report = provision.simulate(instance, plan, seconds=options.seconds, arrival_cv=cv)
    worst = max(one.p99.mean_ms / one.slo_ms for one in report.workloads if one.offered_rps)
    return f"{worst:.2f}, {len(report.late)}"


if __name__ == "__main__":
    sys.exit(main())
