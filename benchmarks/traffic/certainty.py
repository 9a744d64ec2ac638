"""What certainty costs: every shipped instance planned by half of the SLO and by queueing, and replayed.

Run as ``python benchmarks/traffic/certainty.py [INSTANCE ...] [--parvagpu DIR]``: ``auto`` plans each instance (all
shipped ones by default), without limits on replicas; DIR, ParvaGPU's artefact, adds its scenarios on measured tables.
Plans are replayed for ``--seconds`` with Poisson arrivals at each of ``--seeds``, which no repair has seen. The table
has one row per instance:

- ``half_slo``: GPUs, and the part of the requests that is late;
- ``headroom``: the least headroom, in steps of 5 %, with which half_slo's plan keeps every SLO at all seeds, and its
  GPUs; nothing where up to 200 % does not do;
- ``queueing``: GPUs, their proven bound (in GPUs of the plan's mean price), the worst P99 over its SLO and the
  workloads over it, late requests; these again with round robin and with least-loaded routing of the same plan.

``--only half_slo`` and ``--only queueing`` leave the other rule's columns empty. Requests/s stand for GPUs where the
objective is most throughput. Exit 1 when somebody is late under queueing.
"""

import argparse
import sys
from typing import NamedTuple

import provision
from provision.draw.output import print_table
from provision.instances.importers.parvagpu import import_scenario
from provision.instances.read import shipped_instances
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import objective_of

STEP, STEPS = 0.05, 40
SAFETY = 0.9
"""Of ParvaGPU's scenarios, as in its public program."""
ROUTINGS = ("random", "round_robin", "least_loaded")
COLUMNS = ("instance", "half_slo, late", "headroom, GPUs", "queueing", "bound", "worst P99 / SLO, over it", "late",
           "late, round robin", "late, least loaded")


class Met(NamedTuple):
    """What replays of a plan met: the worst P99 over its SLO, workloads over it, and the part of late requests."""

    worst: float
    over: int
    late: float


def main() -> int:
    """Print a row per instance; 1 when somebody is late under queueing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instances", nargs="*", default=shipped_instances())
    parser.add_argument("--parvagpu", metavar="DIR")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for a plan by queueing")
    parser.add_argument("--half-limit", type=float, default=5.0, help="seconds for a plan by half_slo")
    parser.add_argument("--only", choices=("half_slo", "queueing"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[201, 202, 203])
    options = parser.parse_args()
    rows, kept = [], True
    instances = [provision.read(name) for name in options.instances]
    if options.parvagpu:
        instances += [import_scenario(options.parvagpu, number, SAFETY) for number in range(1, 7)]
    for instance in instances:
        row, over = certainty(free(instance), options)
        rows.append(row)
        kept &= not over
        print(*row, sep=" | ", file=sys.stderr)
    print_table(COLUMNS, rows)
    return int(not kept)


def free(instance: Instance) -> Instance:
    """An instance without limits on replicas, which some workloads of papers cannot keep under queueing."""
    if instance.objective == THROUGHPUT:
        return instance
    return instance.replace(workloads=[one.model_copy(update={"max_replicas": None}) for one in instance.workloads])


def certainty(instance: Instance, options: argparse.Namespace) -> tuple[list[object], int]:
    """A row, and how many workloads are late under queueing."""
    row: list[object] = [instance.name, *(("", "") if options.only == "queueing" else halved(instance, options))]
    if options.only == "half_slo":
        return [*row, *[""] * (len(COLUMNS) - len(row))], 0
    queueing = instance.with_policy(latency_budget="queueing")
    found = provision.solve(queueing, time_limit_s=options.time_limit)
    if found.plan is None:
        return [*row, found.status, found.bound or "", "", "", "", ""], 0
    mets = [met(queueing, found.plan, options, routing) for routing in ROUTINGS]
    bound = "proven" if found.status == "optimal" else least(found)
    worst = f"{mets[0].worst:.3f}, {mets[0].over}"
    return [*row, size(queueing, found.plan), bound, worst, *(f"{one.late:.2%}" for one in mets)], mets[0].over


def least(found: provision.Result) -> str:
    """The bound of a plan: requests/s, or GPUs of the plan's mean price."""
    if found.objective is None or found.bound is None or found.plan is None:
        return ""
    each = found.objective / len(found.plan.gpus)
    return f"{found.bound:.0f}/s" if found.bound > found.objective else f"{found.bound / each:.4g}"


def halved(instance: Instance, options: argparse.Namespace) -> tuple[str, str]:
    """The two columns of plans by half of the SLO."""
    half = instance.with_policy(latency_budget="half_slo")
    plain = provision.solve(half, time_limit_s=options.half_limit, replay=False).plan
    return f"{size(half, plain)}, {met(half, plain, options).late:.2%}", held(half, options)


def size(instance: Instance, plan: provision.Plan) -> str:
    """GPUs of a plan, or its requests/s where those count."""
    return f"{objective_of(instance).value(plan):.0f}/s" if instance.objective == THROUGHPUT else str(len(plan.gpus))


def held(half: Instance, options: argparse.Namespace) -> str:
    """The least headroom with which a plan by half of the SLO keeps every SLO, and the plan's size, as text."""
    low, high, best = -1, STEPS + 1, ""
    while high - low > 1:
        middle = (low + high) // 2
        more = half.with_policy(headroom=STEP * middle)
        plan = provision.solve(more, time_limit_s=options.half_limit, replay=False).plan
        if plan is not None and not met(half, plan, options).over:
            high, best = middle, f"{STEP * middle:.0%}, {size(half, plan)}"
        else:
            low = middle
    return best


def met(instance: Instance, plan: provision.Plan, options: argparse.Namespace, routing: str = "random") -> Met:
    """A plan replayed at the stated rates."""
    reports = [provision.simulate(instance, plan, options.seconds, seed, routing=routing, arrival_cv=1.0)
               for seed in options.seeds]
    late = dict.fromkeys(name for report in reports for name in report.late)
    return Met(max(report.worst.over_slo for report in reports), len(late),
               sum(report.violation_rate for report in reports) / len(reports))


if __name__ == "__main__":
    sys.exit(main())
