"""Large instances under interference: the plan and the bound of ``auto`` within a time limit, and what it took.

Run as ``python benchmarks/size/large.py [--cases FLEET:WORKLOADS ...] [--time-limit S] [--seed N] [--results DIR]``.
Workloads are those of iGniter's generator, free to split: on the fleet ``v100`` as they are; on the fleet ``v100-t4``,
which has T4s too, with an SLO of their own each, 1 to 1.5 times as long. Every case runs in a process of its own, whose
largest memory is told; limits are of its CPU seconds. With ``--results``, the other rows of the result file stay.
"""

import multiprocessing
import resource
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
import results
from cases import options_of

import provision
from provision.draw.output import print_table
from provision.instances.read import generate
from provision.models.base import clock
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry

COLUMNS = ("case", "limit_s", "gpus", "objective", "bound", "gap_percent", "wall_s", "cpu_s", "memory_gib")
V100 = FleetEntry(gpu="v100", price_per_hour=3.06)
T4 = FleetEntry(gpu="t4", price_per_hour=0.53)


def instance_of(workloads: int, fleet: str, seed: int) -> Instance:
    """The instance of a case, free to split."""
    base = generate(workloads, seed)
    longer = np.random.default_rng(seed + 1).uniform(1, 1.5, workloads) if fleet == "v100-t4" else np.ones(workloads)
    several = [one.model_copy(update={"max_replicas": None, "slo_ms": one.slo_ms * factor})
               for one, factor in zip(base.workloads, longer.tolist(), strict=True)]
    if fleet == "v100":
        return base.replace(workloads=several, fleet=(V100,))
    return base.replace(workloads=several, fleet=(V100, T4), performance=["igniter-v100", "igniter-t4-derived"])


def measured(workloads: int, fleet: str, limit_s: float, seed: int) -> list[object]:
    """The row of one case. Kernels compile before."""
    clock.perf_counter = time.process_time
    provision.solve(instance_of(20, fleet, seed), time_limit_s=2, replay=False)
    instance = instance_of(workloads, fleet, seed)
    began_s, cpu_s = time.perf_counter(), time.process_time()
    found = provision.solve(instance, "auto", limit_s, seed, replay=False)
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    gap = None if found.gap is None else round(100 * found.gap, 2)
    gpus = None if found.plan is None else found.plan.gpu_count
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return [f"{workloads:,} on {fleet}", limit_s, gpus, found.objective, found.bound, gap, round(took_s, 1),
            round(cpu_s, 1), round(peak_gib, 2)]


def main() -> None:
    """Print a row per case."""
    options = options_of(__doc__, "FLEET:WORKLOADS", ["v100:100000", "v100-t4:100000"])
    known = results.earlier(options.results, "large")
    rows = {one["case"]: list[object](one.values()) for one in known.rows}
    for case in options.cases:
        fleet, _, workloads = case.partition(":")
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            row = pool.apply(measured, (int(workloads), fleet, options.time_limit, options.seed))
        rows[str(row[0])] = row
        print(*row, sep=" | ", flush=True)
        results.write(options.results, "large", COLUMNS, rows.values(), [options.seed], results.commits(known))
    print_table(COLUMNS, list(rows.values()))


if __name__ == "__main__":
    main()
