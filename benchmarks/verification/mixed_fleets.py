"""Random mixed fleets against parts of themselves: may more choice of GPUs ever give a dearer plan?

Run as ``python benchmarks/verification/mixed_fleets.py [--fleets N] [--seed S] [--time-limit T]``. A fleet has A100s
with MIG, V100s and T4s with MPS, at random prices and sometimes few of them, for two to five workloads. It is planned
as a whole and with each of its types alone, by ``auto`` with the same time. Prints a row per fleet and ends with exit 1
when a whole one is dearer than a part.
"""

import argparse
import sys
from time import perf_counter

import numpy as np

import provision
from provision.draw.output import print_table
from provision.models.problem.instance import Instance

DATA = {"a100-80gb": ("parvagpu-a100", 4.0), "v100": ("igniter-v100", 2.5), "t4": ("igniter-t4-derived", 0.6)}
"""By GPU type its performance data, and a price per hour around which prices are drawn."""
MODELS = ("resnet50", "vgg19")
"""What all of the data describes."""
HEAD = ("fleet", "prices", "workloads", "whole", "bound", "s", *DATA, "dearer")


def random_fleet(seed: int) -> Instance:
    """A fleet of all types, for workloads that each of them can serve."""
    rng = np.random.default_rng(seed)
    fleet = [{"gpu": gpu, "price_per_hour": round(price * rng.uniform(0.5, 2), 2),
              "count": int(rng.integers(1, 4)) if rng.random() < 0.3 else None} for gpu, (_, price) in DATA.items()]
    workloads = [{"name": f"w{at}", "model": str(rng.choice(MODELS)), "slo_ms": round(rng.uniform(60, 250), 1),
                  "rate_rps": round(rng.uniform(30, 500), 1)} for at in range(int(rng.integers(2, 6)))]
    return Instance.model_validate({
        "version": 1, "name": f"fleet-{seed}", "policy": {"latency_budget": "half_slo", "safety": 0.9},
        "fleet": fleet, "performance": [data for data, _ in DATA.values()], "workloads": workloads,
    })


def row_of(seed: int, time_limit_s: float) -> tuple[list[object], bool]:
    """The row of one fleet, and whether it is dearer than one of its types alone."""
    whole = random_fleet(seed)
    started = perf_counter()
    found = provision.solve(whole, time_limit_s=time_limit_s)
    spent_s = perf_counter() - started
    parts = [provision.solve(whole.replace(fleet=(entry,)), time_limit_s=time_limit_s).objective
             for entry in whole.fleet]
    known = [value for value in parts if value is not None]
    dearer = bool(known) and (found.objective is None or found.objective > min(known) * (1 + 1e-9))
    prices = " ".join(f"{entry.price_per_hour}{f' x{entry.count}' * (entry.count is not None)}"
                      for entry in whole.fleet)
    return [seed, prices, len(whole.workloads), found.objective, found.bound, round(spent_s, 1), *parts,
            "yes" if dearer else "no"], dearer


def main() -> int:
    """Print all rows and how many fleets are dearer than a part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=5.0)
    options = parser.parse_args()
    rows, wrong = [], 0
    for seed in range(options.seed, options.seed + options.fleets):
        row, dearer = row_of(seed, options.time_limit)
        rows.append(row)
        wrong += dearer
        print(*row, sep=" | ", file=sys.stderr, flush=True)
    print_table(HEAD, rows)
    print(f"fleets {len(rows)}, dearer than a part {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
