"""Own measurements: a table of three batches becomes performance data, and a plan.

Run as ``python examples/own_measurements.py FOLDER``; the files that it makes go into FOLDER.
"""

import sys
from pathlib import Path

import provision
from provision.instances.importers.csv_table import import_csv, parse_columns

folder = Path(sys.argv[1])
(folder / "mine.csv").write_text("batch,ms\n1,4.1\n8,11.8\n32,39.0\n")
data = import_csv(folder / "mine.csv", "l4", "mine", parse_columns("latency_ms=ms"))
print(f"between batches: mean error {data.between_batches.mean:.1%}, planned {data.between_batches.margin:.1%} longer")

instance = provision.Instance(
    version=1,
    name="own",
    fleet=[{"gpu": "l4", "price": "aws"}],
    performance=[data],
    workloads=[{"name": "search", "model": "mine", "slo_ms": 150.0, "rate_rps": 1500.0}],
)
result = provision.solve(instance, time_limit_s=10)
print(result)
print(f"{len(result.plan.gpus)} GPUs at {instance.fleet[0].price_per_hour} per hour ({instance.fleet[0].tier})")
