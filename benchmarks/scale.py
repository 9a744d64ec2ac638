"""The core at size: plans and proven bounds for many distinct workloads, each case with the gap it should reach.

Run as ``python benchmarks/scale.py [CASE ...] [--seed N]``. Cases:

isolated-1100, isolated-11000
    Workloads drawn around ParvaGPU's S5, rates times 0.2 to 3 and SLOs times 0.7 to 1.5, on MIG.
single-1000, free-1000, free-1000-long, single-10000, free-10000
    iGniter's generator on V100s; ``single`` allows one replica each, ``free`` any number; ``long`` has more time.
testbed-free
    iGniter's testbed of 12 workloads with any number of replicas.
yaml-9000
    9,000 workloads read from YAML, with a time limit of 20 s; reading and verifying count.
greedy-s5x100
    Greedy on a hundred copies of S5.

Kernels compile before the first case.
"""

import argparse
import tempfile
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
import yaml

import provision
from provision.commands.common import print_table
from provision.instances.generators.igniter import generate
from provision.models.problem.instance import Instance

HEAD = ("case", "method", "limit s", "value", "bound", "gap %", "wanted %", "s", "status", "step")


class Case(NamedTuple):
    """A method's time limit on an instance and the gap to reach, in percent."""

    method: str
    limit_s: float
    wanted: float


CASES = {
    "isolated-1100": Case("auto", 30, 0.1),
    "isolated-11000": Case("auto", 120, 0.2),
    "single-1000": Case("auto", 30, 0.0),
    "free-1000": Case("auto", 60, 2.5),
    "free-1000-long": Case("auto", 300, 1.0),
    "single-10000": Case("auto", 120, 0.5),
    "free-10000": Case("auto", 120, 2.5),
    "testbed-free": Case("auto", 10, 0.0),
    "yaml-9000": Case("auto", 20, 100.0),
    "greedy-s5x100": Case("greedy", 10, 1.0),
}


def around_s5(many: int, seed: int) -> Instance:
    """Workloads drawn around those of S5: rates times 0.2 to 3, SLOs times 0.7 to 1.5."""
    base, draw = provision.read("parvagpu-s5"), np.random.default_rng(seed)
    drawn = []
    for at in range(many):
        one = base.workloads[at % len(base.workloads)]
        rate_rps, slo_ms = one.rate_rps * draw.uniform(0.2, 3), one.slo_ms * draw.uniform(0.7, 1.5)
        drawn.append(one.model_copy(update={"name": f"{one.name}-{at}", "rate_rps": rate_rps, "slo_ms": slo_ms}))
    return base.replace(name=f"around-s5-{many}", workloads=tuple(drawn))


def freed(instance: Instance) -> Instance:
    """The same with any number of replicas."""
    workloads = tuple(one.model_copy(update={"max_replicas": None}) for one in instance.workloads)
    return instance.replace(workloads=workloads)


def as_yaml(instance: Instance, folder: Path) -> Path:
    """A file with the instance."""
    path = folder / "many.yaml"
    path.write_text(yaml.safe_dump(instance.model_dump(mode="json", exclude_none=True)))
    return path


def instance_of(case: str, seed: int, folder: Path) -> Instance | Path:
    """The instance of a case, or a file with it."""
    kind, many = case.split("-")[:2]
    if case == "testbed-free":
        return freed(provision.read("igniter-testbed-12"))
    if case == "greedy-s5x100":
        return provision.read("parvagpu-s5-x100")
    if case == "yaml-9000":
        return as_yaml(around_s5(9000, seed), folder)
    if kind == "isolated":
        return around_s5(int(many), seed)
    single = generate(int(many), seed)
    return single if kind == "single" else freed(single)


def main() -> None:
    """Print a row per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], default=list(CASES))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = []
    for name in options.cases:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            instance = instance_of(name, options.seed, Path(folder))
            started = perf_counter()
            found = provision.solve(instance, case.method, case.limit_s, options.seed, replay=False)
            whole_s = perf_counter() - started
        seconds = found.build_seconds + found.solve_seconds
        gap = None if found.gap is None else round(100 * found.gap, 3)
        rows.append([name, case.method, case.limit_s, found.objective, found.bound, gap, case.wanted,
                     round(seconds, 2), found.status, found.plan and found.plan.method])
        print(*rows[-1], f"{whole_s:.1f} s in all", sep=" | ", flush=True)
    print_table(HEAD, rows)


if __name__ == "__main__":
    main()
