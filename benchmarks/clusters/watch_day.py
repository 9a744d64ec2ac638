"""A day of ServeGen's demand under ``provision watch``: GPU-hours beside those of a clairvoyant optimum.

The watch looks once a minute at the mean rate of the minute before, as Prometheus would tell it, and its changes are in
force half a minute after its decision. The optimum knows every window before it begins and changes at once; each of its
plans is solved for proven least cost, and its bound is counted too. A window is late if, once the watch could have seen
its rates and acted, what stands does not carry them; what is not carried before that is counted in requests.

Run as ``python benchmarks/clusters/watch_day.py RATES.csv [--clients N] [--first N] [--windows N] [--forecast]
[--results DIR]``; with ``--forecast`` also at intervals of a window, without and with forecasts from the days before,
which needs statsforecast and as many windows before the first. Ends with exit status 1 if a window is late or a watch
takes over 2 % more GPU-hours than the optimum.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import results

import provision
from provision.cluster.journal import Journal
from provision.cluster.watch import Rules, Watcher
from provision.draw.output import print_table
from provision.instances.importers.servegen import import_servegen
from provision.models.base.clock import Stopwatch
from provision.models.base.tolerances import TOLERANCE

LOOK_S, ACT_S = 60.0, 30.0
ALLOWED = 1.02


def optimum(instance, demand, limit_s):
    """The GPUs of the best plan for every window, and the least that is proven."""
    gpus, bounds = [], []
    for rates in demand.rates_rps:
        found = provision.solve(demand.instance(instance, rates), time_limit_s=limit_s, replay=False)
        gpus.append(found.plan.gpu_count)
        bounds.append(found.bound / instance.fleet[0].price_per_hour)
    return gpus, bounds


def replayed(instance, demand, first, rules, history, folder):
    """The row of a watch over the day."""
    now = [0.0]
    name = f"watch, every {rules.interval_s / 60:g} min" + (", with forecasts" if rules.forecast else "")
    journal = Journal(folder / f"{name}.db", instance.name)
    for row in history:
        journal.add_rates(row)
    began = demand.instance(instance, demand.rates_rps[0])
    watcher = Watcher(instance, first, rules, journal, lambda wanted, plan: "applied", clock=lambda: now[0])
    watcher.rates = {one.name: one.rate_rps for one in began.workloads}
    stands, pending, watch = (first, watcher.carries), [], Stopwatch()
    total = {"hours": 0.0, "asked": 0.0, "missed": 0.0}
    late, decisions, steps = set(), [], round(demand.window_s / LOOK_S)
    for step in range(len(demand.rates_rps) * steps):
        now[0] = step * LOOK_S
        seen = dict(zip(demand.workloads, demand.rates_rps[max(0, step - 1) // steps].tolist(), strict=True))
        decision = watcher.look(seen)
        if decision is not None and decision.plan is not None:
            decisions.append(decision)
            pending.append((watcher.plan, watcher.carries))
        row = step // steps
        for part, length in enumerate((ACT_S, LOOK_S - ACT_S)):
            if part and pending:
                stands = pending.pop()
            total["hours"] += stands[0].gpu_count * length / 3600
            for one, rate in zip(demand.workloads, demand.rates_rps[row].tolist(), strict=True):
                missing = max(0.0, rate - stands[1][one] * (1 + TOLERANCE))
                total["asked"] += rate * length
                total["missed"] += missing * length
                if missing and (step % steps > 1 or (step % steps == 1 and part)):
                    late.add(row)
    moves = {what: sum(one.changes.get(what, 0) for one in decisions) for what in ("slices_destroyed",
                                                                                   "replicas_started")}
    return {"policy": name, "gpu_hours": round(total["hours"], 3),
            "late": len(late), "not_carried": total["missed"] / total["asked"], "decisions": len(decisions)} | moves | {
            "longest_s": round(max((one.seconds for one in decisions), default=0.0), 3),
            "seconds": round(watch.elapsed_s, 1)}


def highest(rates, names, windows):
    """Rates of the past as the watch would have kept them."""
    return [dict(zip(names, row, strict=True)) for row in rates[-windows:].tolist()] if windows else []


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rates")
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--windows", type=int, default=144)
    parser.add_argument("--history", type=int, default=144 * 3, help="windows before the first, for forecasts")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds for each optimum")
    parser.add_argument("--forecast", action="store_true")
    results.add_results(parser)
    options = parser.parse_args()
    before = options.history if options.forecast else 0
    instance, whole = import_servegen(options.rates, options.clients, options.first - before, options.windows + before)
    demand = type(whole)(whole.times_s[before:], whole.workloads, whole.rates_rps[before:])
    watch = Stopwatch()
    gpus, bounds = optimum(instance, demand, options.limit)
    hours = demand.window_s / 3600
    best = sum(gpus) * hours
    rows = [{"policy": "clairvoyant optimum", "gpu_hours": round(best, 3), "bound": round(sum(bounds) * hours, 3),
             "over": 0.0, "late": 0, "seconds": round(watch.elapsed_s, 1)}]
    first = provision.solve(demand.instance(instance, demand.rates_rps[0]), time_limit_s=options.limit).plan
    with tempfile.TemporaryDirectory() as folder:
        further = ((demand.window_s, False), (demand.window_s, True)) if options.forecast else ()
        for interval_s, forecast in ((120.0, False), *further):
            rules = Rules(LOOK_S, interval_s, 10.0, 0.0, forecast)
            history = highest(whole.rates_rps[:before], demand.workloads, before)
            row = replayed(instance, demand, first, rules, history, Path(folder))
            rows.append(row | {"over": row["gpu_hours"] / best - 1})
    columns = ("policy", "gpu_hours", "bound", "over", "late", "not_carried", "decisions", "slices_destroyed",
               "replicas_started", "longest_s", "seconds")
    found = [[row.get(name) for name in columns] for row in rows]
    print_table(columns, found)
    results.write(options.results, "watch-day", columns, found)
    return int(any(row["late"] or row["gpu_hours"] > ALLOWED * best for row in rows[1:]))


if __name__ == "__main__":
    sys.exit(main())
