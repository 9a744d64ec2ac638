"""``provision replan`` and ``simulate-trace``: plan for new demand with little disturbance, once or over hours."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from provision import draw
from provision.answers.difference import difference, per_hour
from provision.commands.common import add_force, add_json, counting, print_json, print_table, seconds, verdict
from provision.commands.reading import read_instance
from provision.draw.figures import check_picture, write_figure
from provision.draw.verdict import money
from provision.draw.words import plural
from provision.formulations.replanning.counts import ALLOWED
from provision.instances.files.demand import COLUMNS, TWO_WAVES, at_rates, read_demand, two_waves
from provision.instances.files.files import check_writable, write_text
from provision.instances.read import read_plan, write
from provision.models.base.errors import InputError
from provision.models.base.known import known
from provision.models.base.spelling import did_you_mean
from provision.models.problem.policy import MOST_HEADROOM
from provision.replanning.forecast import FORECASTS
from provision.replanning.loss import after_loss, replan_lost
from provision.replanning.prometheus import rates_now
from provision.replanning.replan import CHANGE_COST, METHODS, curve, replan
from provision.replanning.trace import ReplanPolicy, compare_policies
from provision.solving.methods import methods
from provision.sweeps.parameters import changed
from provision.sweeps.table import as_csv

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.instances.files.demand import Demand
    from provision.models.plans.plan import Plan
    from provision.models.problem.instance import Instance
    from provision.replanning.replan import Replan
    from provision.sweeps.table import TableRow

NAMED = ("replan", "static", "ewma")
POLICIES = f"{', '.join(NAMED)}, or a method that solves each window from scratch"
DEFAULT = "replan,auto,static"
EWMA_PERIOD_S, EWMA_DELAY_S = 20, 12.5
"""The policy of gpu-lets: the seconds between plans for averaged rates, and the seconds after which a new plan,
prepared in the background, takes effect (the paper says 10 to 15 s).
"""


def add_replan(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("instance", metavar="INSTANCE", help="a shipped instance or a file, with the new demand")
    parser.add_argument("plan", metavar="PLAN", help="the plan that runs")
    parser.add_argument("--rate", type=float, metavar="F", help="new rates: those of the instance times this")
    parser.add_argument("--lost", type=int, metavar="GPU", help="this GPU of the plan, counted from 0, has failed")
    parser.add_argument("--prometheus", metavar="URL", help="new rates: those that this server measures now")
    parser.add_argument("--query", metavar="Q", help="PromQL of requests/s by workload (default: Triton's counters)")
    parser.add_argument("--label", default="model", metavar="L", help="its label with the workload (default: model)")
    _add_common(parser)
    parser.add_argument(
        "--allow", choices=ALLOWED, default="slices",
        help="what may change: batch sizes and rate shares only, replicas and new slices too, everything (default)",
    )
    parser.add_argument("--method", choices=METHODS, default=METHODS[0],
                        help="auto weighs cost against changes (default); parvagpu places changed workloads anew")
    parser.add_argument("--curve", action="store_true", help="the trade-off between cost and changes, as a table")
    parser.add_argument("--time-limit", type=seconds, default=60.0, metavar="S", help="seconds per plan (default: 60)")
    parser.add_argument("--out", metavar="F", help="write the plan here (.json, else YAML)")
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_replan)


def add_simulate_trace(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("instance", metavar="INSTANCE", help="a shipped instance or a file")
    parser.add_argument("demand", metavar="DEMAND", help=f"CSV with the columns {','.join(COLUMNS)}, or {TWO_WAVES}")
    parser.add_argument(
        "--policies", default=DEFAULT, metavar="P,P", help=f"any of {POLICIES} (default: {DEFAULT})"
    )
    parser.add_argument("--forecast", choices=FORECASTS, default="known", help="what is expected (default: known)")
    parser.add_argument("--headroom", type=float, default=0.0, metavar="H", help="planned beyond what is expected")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="windows from one plan to the next")
    parser.add_argument("--delay", type=float, default=0.0, metavar="S", help="seconds that a change takes")
    _add_common(parser)
    parser.add_argument("--time-limit", type=seconds, default=5.0, metavar="S", help="seconds per plan (default: 5)")
    parser.add_argument("--out", metavar="F", help="write every window of every policy here (.csv)")
    parser.add_argument("--png", metavar="F", help="draw GPUs and changes over time here (.png or .svg)")
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_trace)


def _add_common(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--change-cost", type=float, metavar="C",
        help=f"what a destroyed slice or started replica counts, in units of the objective (default: {CHANGE_COST:g} "
        "of the cheapest GPU)",
    )


def _replan(options: Namespace) -> int:
    if options.method != METHODS[0] and (options.lost is not None or options.curve or options.allow != "slices"):
        raise InputError(f"--method {options.method}: knows no --lost, --curve and --allow; leave them out")
    instance, plan = _with_new_rates(read_instance(options.instance), options), read_plan(options.plan)
    if options.out:
        check_writable(options.out, options.force)
    if options.curve:
        if options.out or options.change_cost is not None:
            raise InputError("--curve: plans for many change costs and writes none; leave out --out and --change-cost")
        if options.lost is not None:
            instance, plan = after_loss(instance, plan, options.lost)
        traded = curve(instance, plan, options.allow, options.time_limit)
        return _print_curve([{"weight": weight} | one.summary() for weight, one in traded], options)
    asked = options.change_cost, options.allow, options.time_limit
    lost = options.lost
    running = (instance, plan) if lost is None else after_loss(instance, plan, lost)
    if lost is None:
        found = replan(instance, plan, *asked, method=options.method)
    else:
        found = replan_lost(instance, plan, lost, *asked)
    if options.out and found.plan is not None:
        write(found.plan, options.out, options.force)
    if options.json:
        head = {"instance": instance.name, "digest": instance.digest, "allow": options.allow}
        costs = {"cost_per_hour_before": per_hour(*running),
                 "cost_per_hour": found.plan and per_hour(running[0], found.plan)}
        print_json(head | found.summary() | costs | {"plan_file": options.out if found.plan else None})
    else:
        _print_replan(*running, found, options)
    return verdict(found.plan is not None, found.status)


def _with_new_rates(instance: Instance, options: Namespace) -> Instance:
    """The instance with the rates that the options ask for."""
    if options.rate is not None and options.prometheus:
        raise InputError("--rate and --prometheus: use one of them")
    if options.rate is not None:
        return changed(instance, {"rate": options.rate})
    if options.prometheus:
        return at_rates(instance, rates_now(options.prometheus, instance, options.query, options.label))
    if options.query:
        raise InputError("--query: asks a Prometheus server; add --prometheus URL")
    return instance


def _print_curve(rows: Sequence[TableRow], options: Namespace) -> int:
    if options.json:
        print_json({"curve": rows})
    else:
        columns = [name for name in rows[0] if name not in ("staying", "weighted", "bound", "bound_of")]
        print_table(columns, [[row[name] for name in columns] for row in rows])
    return 0 if any(row["objective"] is not None for row in rows) else 1


def _print_replan(instance: Instance, plan: Plan, found: Replan, options: Namespace) -> None:
    if found.plan is None:
        none = f"nothing fits with --allow {options.allow}"
        print(f"{found.status}: {'a longer --time-limit may help' if found.status == 'unknown' else none}")
        return
    cost_per_hour = known(found.report).cost_per_hour
    cost = f", {money(cost_per_hour)}" if cost_per_hour is not None else ""
    proven = "proven best" if found.status == "optimal" else found.status
    print(f"{plural(found.plan.gpu_count, 'GPU')}{cost}: {proven} for cost and changes together, verified.")
    if options.lost is not None:
        print(f"Compared with what the loss of GPU {options.lost} leaves running, {plural(plan.gpu_count, 'GPU')}:")
    print("\n".join(difference(instance, plan, found.plan)))
    print(f"Replicas that go on carry at least {found.staying:.0%} of every workload's rate while the rest changes.")
    if options.out:
        print(f"Plan written to {options.out}")


def _trace(options: Namespace) -> int:
    instance = read_instance(options.instance)
    demand = _demand(options.demand, instance)
    if options.out:
        check_writable(options.out, options.force)
    if options.png:
        check_picture(options.png, options.force)
    policies = [_policy(name.strip(), options, demand) for name in options.policies.split(",")]
    with counting(f"replaying {len(demand.times_s)} windows", len(demand.times_s) * len(policies)) as advance:
        rows, windows = compare_policies(
            instance, demand, policies, options.change_cost, options.time_limit, lambda name, done: advance(1)
        )
    lines = [{"policy": name} | vars(window) for name, found in windows.items() for window in found]
    if options.out:
        write_text(options.out, as_csv(lines), options.force)
    if options.png:
        write_figure(draw.trace.trace_figure(demand, windows), options.png, options.force)
    if options.json:
        print_json({"policies": rows, "windows": lines, "window_s": demand.window_s})
    else:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
        for path in filter(None, (options.out, options.png)):
            print(f"written to {path}", file=sys.stderr)
    return 0


def _demand(given: str, instance: Instance) -> Demand:
    """The demand in a file, or the built-in demand of this name."""
    if given == TWO_WAVES:
        return two_waves(instance)
    if not os.path.exists(given) and (meant := did_you_mean(given, [TWO_WAVES])):
        raise InputError(f"{given}: no such file{meant}")
    return read_demand(given)


def _policy(name: str, options: Namespace, demand: Demand) -> ReplanPolicy:
    """The ReplanPolicy that a name on the command line and the options describe."""
    if options.every < 1 or not 0 <= options.delay < math.inf or not 0 <= options.headroom <= MOST_HEADROOM:
        raise InputError(f"--every should be at least 1, --delay 0 or more, --headroom between 0 and {MOST_HEADROOM}")
    rest = {"every": options.every, "headroom": options.headroom, "delay_s": options.delay}
    if name == "static":
        return ReplanPolicy(name, "static")
    if name == "ewma":
        return ReplanPolicy(name, "greedy", max(1, round(EWMA_PERIOD_S / demand.window_s)), "ewma", options.headroom,
                      EWMA_DELAY_S, background=True)
    if name != "replan" and name not in methods():
        meant = did_you_mean(name, [*NAMED, *methods()])
        raise InputError(f"--policies: unknown policy {name!r}; use any of {POLICIES}{meant}")
    return ReplanPolicy(name, name, forecast=options.forecast, **rest)
