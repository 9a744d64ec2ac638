"""What to buy for 20 services over many weeks: the cost, the bound, and how many solves of single weeks it took.

Run as ``python benchmarks/clusters/buying.py [--cases KIND:WEEKS ...] [--time-limit S] [--seed N] [--cpu]``. Rates
grow by half each year, swing by 15 % over the year, and each service by 7 % at random each week, so that no two weeks
are alike. The kind ``a100`` has ParvaGPU's models on A100s with MIG, owned, on demand, and reserved for one or three
years; ``spot`` adds spot GPUs for 30 % of each service. ``mixed`` has MLPerf's models on A30s with MIG, L4s and H100s.
Prices are made up but for those on demand of the L4 and H100, which are list prices.
"""

import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "size"))
import results
from cases import options_of

import provision
from provision.draw.output import print_table

COLUMNS = ("case", "limit_s", "cost_per_month", "bound_per_month", "gap_percent", "solves", "plans", "wall_s", "cpu_s")
SLOS_MS = {"bert": 500, "densenet121": 100, "densenet169": 120, "densenet201": 140, "inceptionv3": 120,
           "mobilenetv2": 60, "resnet101": 120, "resnet152": 140, "resnet50": 100, "vgg16": 120, "vgg19": 140}
MLPERF = (("resnet50", 30, 1500, 12000), ("bert-99", 260, 100, 900), ("resnet50", 60, 1500, 12000),
          ("bert-99", 400, 100, 900))
SERVICES, START = 20, datetime(2026, 1, 5)
A100 = {
    "fleet": [{"gpu": "a100-80gb", "price_per_hour": 1.2, "count": 6, "committed": True},
              {"gpu": "a100-80gb", "price_per_hour": 3.43}],
    "performance": "parvagpu-a100",
    "reserve": [{"gpu": "a100-80gb", "years": 1, "upfront": 4000.0, "price_per_month": 1300.0},
                {"gpu": "a100-80gb", "years": 3, "upfront": 16000.0, "price_per_month": 600.0}],
}
MIXED = {
    "fleet": [{"gpu": "a30", "price_per_hour": 0.5, "count": 4, "committed": True},
              {"gpu": "a30", "price_per_hour": 1.1}, {"gpu": "l4", "price_per_hour": 0.8048},
              {"gpu": "h100-80gb", "price_per_hour": 6.88}],
    "performance": ["mlperf-a30", "mlperf-l4", "mlperf-h100-80gb"],
    "reserve": [{"gpu": "l4", "years": 1, "price_per_month": 400.0},
                {"gpu": "a30", "years": 1, "price_per_month": 560.0},
                {"gpu": "h100-80gb", "years": 1, "price_per_month": 3000.0},
                {"gpu": "h100-80gb", "years": 3, "upfront": 20000.0, "price_per_month": 1300.0}],
}
SPOT = {"share": 0.3, "offers": [{"gpu": "a100-80gb", "price_per_hour": 1.6, "interruption_per_month": 0.15}]}


def made(kind: str, weeks: int, seed: int) -> provision.Instance:
    """The instance of a case."""
    draw, offers = np.random.default_rng(seed), MIXED if kind == "mixed" else A100
    if kind == "mixed":
        four = [MLPERF[number % len(MLPERF)] for number in range(SERVICES)]
        kinds = [(name, slo_ms * (1 + number // len(MLPERF) / 10), low, high)
                 for number, (name, slo_ms, low, high) in enumerate(four)]
    else:
        names = [list(SLOS_MS)[number % len(SLOS_MS)] for number in range(SERVICES)]
        kinds = [(name, SLOS_MS[name] * (1 + number // len(SLOS_MS)), 200, 2500) for number, name in enumerate(names)]
    workloads = [{"name": f"{name}-{number}", "model": name, "slo_ms": float(slo_ms),
                  "rate_rps": float(draw.uniform(low, high))} for number, (name, slo_ms, low, high) in enumerate(kinds)]
    factor = [1.5 ** (week / 52) * (1 + 0.15 * np.sin(2 * np.pi * week / 52)) for week in range(weeks)]
    demand = [{"start": (START + timedelta(weeks=week)).isoformat(), "hours": 168.0,
               "rates": {one["name"]: float(one["rate_rps"] * factor[week] * draw.uniform(0.93, 1.07))
                         for one in workloads}} for week in range(weeks)]
    buying = {"zone": "UTC", "demand": demand, "reserve": offers["reserve"], "spot": SPOT if kind == "spot" else None}
    return provision.Instance(
        version=2, name=f"{kind}-{weeks}", policy={"latency_budget": "half_slo"}, fleet=offers["fleet"],
        performance=offers["performance"], workloads=workloads, buying=buying)


def measured(kind: str, weeks: int, limit_s: float, seed: int) -> list[object]:
    """The row of one case."""
    instance = made(kind, weeks, seed)
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    found = provision.buy(instance, limit_s, gap=0.005, growth=(), seed=seed)
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    cost = None if found.cost is None else round(found.per_month(found.cost), 2)
    gap = None if found.gap is None else round(100 * found.gap, 3)
    return [f"{kind}, {weeks} weeks", limit_s, cost, round(found.per_month(found.bound), 2), gap, found.solves,
            len(found.plans), round(wall_s, 1), round(cpu_s, 1)]


def main() -> None:
    """Print a row per case."""
    options = options_of(__doc__, "KIND:WEEKS", ["a100:104", "mixed:104", "spot:104"])
    rows = []
    for case in options.cases:
        kind, _, weeks = case.partition(":")
        rows.append(measured(kind, int(weeks), options.time_limit, options.seed))
        print(*rows[-1], sep=" | ", flush=True)
        results.write(options.results, "buying", COLUMNS, rows, [options.seed])
    print_table(COLUMNS, rows)


if __name__ == "__main__":
    main()
