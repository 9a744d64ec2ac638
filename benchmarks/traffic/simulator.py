"""The simulator: its speed, how the best plans of all shipped instances fare, and iGniter's standby processes.

Run as ``python benchmarks/traffic/simulator.py [--requests N] [--time-limit S] [--seconds S]``. Speed is CPU time on
one core, from arrivals to statistics at 80 % of the throughput, compiling left out: queues of batches, and iGniter's
three workloads that slow each other down. Plans are those of ``auto``, replayed at their stated rates under Poisson and
constant arrivals. Last comes iGniter's section 5.3: a model too optimistic by some factor, with and without standby
processes.
"""

import argparse
import sys
import time
from collections.abc import Iterator

import provision
from provision.draw.output import print_table
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

LOAD = 0.8
FACTORS = (1.0, 1.02, 1.04, 1.06, 1.08, 1.1)
TABLE = {
    "version": 1, "name": "bench", "gpu": "t4", "kind": "measured-segments",
    "models": {"dnn": {"points": [("whole", batch, 1, 100.0 * batch, 10.0) for batch in (1, 2, 4, 8)]}},
}


def main() -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=float, default=1e7)
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--instances", nargs="+", default=provision.shipped_instances(), metavar="NAME")
    options = parser.parse_args()
    print_table(["what", "requests", "CPU s", "requests/s"], [speed(*case, options.requests) for case in cases()])
    rows = []
    for name in options.instances:
        instance = provision.read(name)
        plan = provision.solve(instance, time_limit_s=options.time_limit).plan
        rows += [[name, len(plan.gpus), *fate(instance, plan, cv, options.seconds)] for cv in (1.0, 0.0)]
        print(f"{name} done", file=sys.stderr)
    columns = ["instance", "GPUs", "arrivals", "requests", "s", "worst P99 / SLO", "over", "workloads", "most late"]
    print_table(columns, rows)
    print_table(["model error", "over SLO", "over SLO with standby", "switched"], list(standby(options.seconds)))


def cases() -> Iterator[tuple[str, Instance, Plan]]:
    """What to time: (name, instance, plan)."""
    for batch in (1, 8):
        workload = provision.Workload(name="w", model="dnn", slo_ms=1000.0, rate_rps=LOAD * 100 * batch)
        instance = provision.Instance.model_validate(
            {"version": 1, "name": "queue", "fleet": [{"gpu": "t4"}], "performance": [TABLE], "workloads": [workload]}
        )
        replica = provision.Replica(workload="w", batch=batch, rate_rps=1.0)
        gpu = provision.PlannedGpu(gpu="t4", mig=False, slices=(provision.Slice(profile="whole", replicas=(replica,)),))
        yield f"one queue, batch {batch}", instance, provision.Plan(version=1, instance="queue", gpus=(gpu,))
    instance = provision.read("igniter-motivation")
    lighter = [one.model_copy(update={"rate_rps": LOAD * one.rate_rps}) for one in instance.workloads]
    yield "three that interfere", instance.replace(workloads=tuple(lighter)), provision.solve(instance, "igniter").plan


def speed(name, instance, plan, requests) -> list[object]:
    """CPU seconds that so many requests take, after everything is compiled."""
    provision.simulate(instance, plan, 1.0)
    seconds = requests / sum(one.rate_rps for one in instance.workloads)
    start = time.process_time()
    report = provision.simulate(instance, plan, seconds)
    taken = time.process_time() - start
    arrived = report.summary()["arrived"]
    return [name, arrived, round(taken, 2), round(arrived / taken)]


def fate(instance, plan, arrival_cv, seconds) -> list[object]:
    """How the workloads of a plan fare."""
    start = time.perf_counter()
    report = provision.simulate(instance, plan, seconds, arrival_cv=arrival_cv)
    taken = time.perf_counter() - start
    worst = max(one.p99.mean_ms / one.slo_ms for one in report.workloads)
    late = max(one.violation_rate for one in report.workloads)
    arrivals = {1.0: "Poisson", 0.0: "constant"}[arrival_cv]
    over = sum(not one.ok for one in report.workloads)
    count = report.summary()["arrived"]
    return [arrivals, count, round(taken, 2), round(worst, 2), over, len(report.workloads), f"{late:.1%}"]


def standby(seconds) -> Iterator[list[object]]:
    """Workloads of iGniter's testbed over their SLO, on iGniter's plan and constant arrivals."""
    instance = provision.read("igniter-testbed-12")
    plan = provision.solve(instance, "igniter").plan
    for factor in FACTORS:
        settings = {"arrival_cv": 0.0, "service_factor": factor}
        alone, ready = (provision.simulate(instance, plan, seconds, shadow=on, **settings) for on in (False, True))
        over = [sum(not one.ok for one in report.workloads) for report in (alone, ready)]
        yield [f"{factor - 1:.0%}", *over, len(ready.switches)]


if __name__ == "__main__":
    main()
