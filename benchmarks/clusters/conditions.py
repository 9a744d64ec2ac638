"""What further conditions of an instance cost: places for its GPUs, power, and a change that is reviewed.

Run as ``python benchmarks/clusters/conditions.py [--parts PART ...] [--first N] [--time-limit S] [--results DIR]``.

``places``: ParvaGPU's S6 once, five and twenty times, on nodes of eight A100s in four zones, without nodes and by
rules: every workload in two zones, the loss of any node or zone. ``power``: MLPerf's models on A30s, L4s and H100s,
with prices of energy and limits on power. ``review``: changes of ParvaGPU's S5 and S6. Seconds are of CPU, limits are
not.
"""

import argparse
import sys
from pathlib import Path
from time import process_time

import provision
from provision.draw.output import print_table
from provision.instances.read import repeated
from provision.models.problem.objective import cost_per_hour, draw_of, energy_per_hour

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
import results

GPU, ZONES, PER_NODE = "a100-80gb", 4, 8
RULES = "none", "nodes", "spread", "survive node", "survive zone"
PLACES = [(times, nodes, rule) for times, nodes in ((1, 8), (5, 20), (20, 80)) for rule in RULES]
POWER = [(per_kwh, limit_w) for limit_w in (None, 2500.0, 2000.0) for per_kwh in (None, 0.3, 1.0)]
REVIEW = [(name, change) for name in ("parvagpu-s5", "parvagpu-s6")
          for change in ("rate +20%", "SLO -20%", "all rates +10%", "prices +10%")]
OF_PLACES = ("workloads", "nodes", "rule", "gpus", "per_hour", "bound", "gap_percent", "cpu_s")
OF_POWER = ("per_kwh", "limit_w", "fleet", "gpus_per_hour", "energy_per_hour", "bound", "gap_percent", "mean_w",
            "full_w", "cpu_s")
OF_REVIEW = ("instance", "change", "gpus_before", "gpus", "increase_percent", "moved", "status",
             "least_headroom_percent", "cpu_s")
MODELS = ("resnet50", 60.0, 36000.0), ("bert-99", 260.0, 2800.0)


def placed(limit_s: float, times: int, nodes: int, rule: str) -> list[object]:
    """The row of an instance on nodes."""
    plain = repeated(provision.read("parvagpu-s6"), times) if times > 1 else provision.read("parvagpu-s6")
    rules = {"spread": {"spread": [{"workload": one.name, "over": "zone", "at_least": 2} for one in plain.workloads]},
             "survive node": {"survive": {"node": 1}}, "survive zone": {"survive": {"zone": 1}}}.get(rule, {})
    zones = [{"name": f"zone-{at}", "gpu": GPU, "gpus": PER_NODE, "count": nodes // ZONES, "zone": f"zone-{at}"}
             for at in range(ZONES)]
    instance = plain if rule == "none" else plain.replace(places={"nodes": zones} | rules)
    found, cpu_s = timed(lambda: provision.solve(instance, time_limit_s=limit_s, replay=False))
    return [len(plain.workloads), nodes, rule, found.plan and len(found.plan.gpus), found.objective, found.bound,
            percent(found.gap), cpu_s]


def powered(limit_s: float, per_kwh: float | None, limit_w: float | None) -> list[object]:
    """The row of a price of energy and a limit on power."""
    power = {"price_per_kwh": per_kwh, "overhead": 1.3, "limit_w": limit_w}
    instance = provision.Instance(
        version=2, name="power", policy={"latency_budget": "half_slo"}, power=power,
        fleet=[{"gpu": "a30", "price_per_hour": 0.5}, {"gpu": "l4", "price_per_hour": 0.8048},
               {"gpu": "h100-80gb", "price_per_hour": 6.88}],
        performance=["mlperf-a30", "mlperf-l4", "mlperf-h100-80gb"],
        workloads=[{"name": f"{model}-{at}", "model": model, "slo_ms": slo_ms, "rate_rps": rate_rps * (1 + at / 4)}
                   for at in range(3) for model, slo_ms, rate_rps in MODELS])
    found, cpu_s = timed(lambda: provision.solve(instance, time_limit_s=limit_s, replay=False))
    if found.plan is None:
        return [per_kwh, limit_w, found.status, *[None] * 6, cpu_s]
    many = {one.gpu: sum(gpu.gpu == one.gpu for gpu in found.plan.gpus) for one in instance.fleet}
    energy, draw = energy_per_hour(instance, found.plan), draw_of(instance, found.plan)
    cost = cost_per_hour(instance, found.plan)
    fleet = " + ".join(f"{count} {gpu}" for gpu, count in many.items() if count)
    return [per_kwh, limit_w, fleet, cost - energy, energy, found.bound, percent(max(0.0, 1 - found.bound / cost)),
            round(draw.mean_w), round(draw.full_w), cpu_s]


def reviewed(limit_s: float, name: str, change: str) -> list[object]:
    """The row of a change."""
    base = provision.read(name)
    first, rest = base.workloads[0], base.workloads[1:]
    changed = base.replace(**{
        "rate +20%": {"workloads": [first.model_copy(update={"rate_rps": first.rate_rps * 1.2}), *rest]},
        "SLO -20%": {"workloads": [first.model_copy(update={"slo_ms": first.slo_ms * 0.8}), *rest]},
        "all rates +10%": {"workloads": [
            one.model_copy(update={"rate_rps": one.rate_rps * 1.1}) for one in base.workloads]},
        "prices +10%": {"fleet": [
            one.model_copy(update={"price_per_hour": one.price_per_hour * 1.1}) for one in base.fleet]}}[change])
    plan = provision.solve(base, time_limit_s=limit_s, replay=False).plan
    found, cpu_s = timed(lambda: provision.review(base, changed, plan, time_limit_s=limit_s))
    told = found.summary()
    least = min((one["headroom"] for one in told["slos"] if one["headroom"] is not None), default=None)
    return [name, change, plan.gpu_count, found.after and found.after.plan.gpu_count, percent(told["cost_increase"]),
            found.changes and found.changes.moved, found.status, percent(least), cpu_s]


def timed(what):
    """What a call returns, and its seconds of CPU."""
    before_s = process_time()
    found = what()
    return found, round(process_time() - before_s, 1)


def percent(part: float | None) -> float | None:
    """A part in percent."""
    return None if part is None else round(100 * part, 2)


PARTS = {"places": (PLACES, OF_PLACES, placed), "power": (POWER, OF_POWER, powered),
         "review": (REVIEW, OF_REVIEW, reviewed)}


def main() -> None:
    """Print a table per part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--first", type=int, metavar="N", help="only the first N cases of each part")
    parser.add_argument("--time-limit", type=float, default=60.0)
    results.add_results(parser)
    options = parser.parse_args()
    for part in options.parts:
        cases, columns, row = PARTS[part]
        rows = []
        for case in cases[: options.first]:
            rows.append(row(options.time_limit, *case))
            print(*rows[-1], sep=" | ", flush=True)
            results.write(options.results, part, columns, rows)
        print_table(columns, rows)


if __name__ == "__main__":
    main()
