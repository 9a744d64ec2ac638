"""Every shipped instance's best plan replayed, and what the queueing rule makes of it.

Run as ``python benchmarks/traffic/replays.py [DIR]``: ``auto`` plans each shipped instance; the plan is replayed for a
minute at the stated rates, with constant and with Poisson arrivals. But for gpu-lets' turns and throughput the queueing
rule plans it too, without limits on replicas, and that plan is replayed with Poisson arrivals at each of ``--seeds``.
With ``--no-replay`` ``auto`` repairs nothing. With DIR, ParvaGPU's artefact, its six scenarios on its
measured tables come after, slices shared. Cells are GPUs, the worst P99 over its SLO and the workloads over it.
"""

import argparse
import sys

import provision
from provision.commands.common import print_table
from provision.instances.files.shipped import shipped_instances
from provision.instances.importers.parvagpu import import_scenario, sharing
from provision.models.problem.instance import THROUGHPUT

COLUMNS = ("instance", "status", "half_slo", "constant", "Poisson", "queueing", "Poisson, queueing")


def main():
    """Print one row per instance; exit 1 when one is late with constant arrivals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103])
    parser.add_argument("--no-replay", action="store_true")
    options = parser.parse_args()
    instances = [provision.read(name) for name in shipped_instances()]
    if options.folder:
        instances += [sharing(import_scenario(options.folder, row, 0.9)) for row in range(1, 7)]
    rows = []
    for instance in instances:
        rows.append(measured(instance, options))
        print(*rows[-1], file=sys.stderr)
    print_table(COLUMNS, rows)
    return int(any(not row[3].endswith(" 0") for row in rows))


def measured(instance, options):
    """One row."""
    result = provision.solve(instance, time_limit_s=options.time_limit)
    row = [instance.name, result.status, len(result.plan.gpus)]
    row += [replayed(instance, result.plan, cv, 0, options) for cv in (0, 1)]
    if not queues(instance):
        return [*row, "", ""]
    instance = instance.replace(
        policy=instance.policy.model_copy(update={"latency_budget": "queueing"}),
        workloads=tuple(one.model_copy(update={"max_replicas": None}) for one in instance.workloads),
    )
    result = provision.solve(instance, time_limit_s=options.time_limit, replay=not options.no_replay)
    met = (replayed(instance, result.plan, 1, seed, options) for seed in options.seeds)
    return [*row, len(result.plan.gpus), "; ".join(met)]


def queues(instance):
    """Whether the queueing rule is for this instance."""
    return all(data.kind != "gpulets" for data in instance.performance) and instance.objective != THROUGHPUT


def replayed(instance, plan, cv, seed, options):
    """The worst P99 over its SLO, and how many workloads and workflows are late."""
    report = provision.simulate(instance, plan, seconds=options.seconds, seed=seed, arrival_cv=cv)
    worst = max(one.p99.mean_ms / one.slo_ms for one in report.workloads if one.offered_rps)
    return f"{worst:.2f}, {len(report.late)}"


if __name__ == "__main__":
    sys.exit(main())
