"""``provision watch``: watch the rates of a running plan, and tell, or do, what should change."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from provision.applier.execute import Permissions
from provision.applier.verified import apply
from provision.cluster.journal import Decision, Journal
from provision.cluster.watch import Rules, Watcher, watch
from provision.commands.common import add_json, seconds
from provision.commands.gpus.given import gpus
from provision.commands.reading import read_instance
from provision.instances.read import read_plan
from provision.models.base.errors import InputError
from provision.models.base.extras import optional
from provision.replanning.prometheus import rates_now

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from provision.models.plans.plan import Plan
    from provision.models.problem.instance import Instance


def add_watch(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    rules = Rules()
    parser.add_argument("instance", metavar="INSTANCE", help="a shipped instance or a file")
    parser.add_argument("plan", metavar="PLAN", help="the plan that runs")
    parser.add_argument("--prometheus", metavar="URL", required=True, help="the server that measures the rates")
    parser.add_argument("--query", metavar="Q", help="PromQL of requests/s by workload (default: Triton's counters)")
    parser.add_argument("--label", default="model", metavar="L", help="its label with the workload (default: model)")
    parser.add_argument("--journal", metavar="F", default="watch.db", help="the journal (default: watch.db here)")
    parser.add_argument("--look", type=seconds, default=rules.look_s, metavar="S",
                        help=f"seconds from one look at the rates to the next (default: {rules.look_s:g})")
    parser.add_argument("--interval", type=seconds, default=rules.interval_s, metavar="S",
                        help=f"seconds between decisions while every rate is within its band ({rules.interval_s:g})")
    parser.add_argument("--decide", type=seconds, default=rules.decide_s, metavar="S",
                        help=f"the most seconds for a decision (default: {rules.decide_s:g})")
    parser.add_argument("--headroom", type=float, default=0.0, metavar="H", help="planned beyond the rates (0)")
    parser.add_argument("--no-forecast", action="store_true", help="go by the rates alone, statsforecast or not")
    parser.add_argument("--metrics-port", type=int, metavar="N", help="answer /metrics on this port of this machine")
    parser.add_argument("--looks", type=int, metavar="N", help="end after so many looks (default: go on)")
    parser.add_argument("--apply", action="store_true", help="carry decisions out on this machine's GPUs")
    parser.add_argument("--state", metavar="DIR", help="with --apply: the applier's state directory")
    parser.add_argument("--gpus", metavar="LIST", help="with --apply: indices or UUIDs of the GPUs that may be used")
    parser.add_argument("--server", metavar="CMD", help="with --apply: the command that serves a replica")
    parser.add_argument("--evict", action="store_true", help="with --apply: end processes on slices that have to go")
    add_json(parser)
    parser.set_defaults(run=_watch)


def _watch(options: Namespace) -> int:
    for name in ("state", "gpus", "server", "evict"):
        if getattr(options, name) and not options.apply:
            raise InputError(f"--{name}: is for --apply; add that or leave it out")
    instance = read_instance(options.instance)
    plan = read_plan(options.plan, instance)
    forecast = not options.no_forecast and find_spec("statsforecast") is not None
    rules = Rules(options.look, options.interval, options.decide, options.headroom, forecast)
    seen = _metrics(options.metrics_port) if options.metrics_port is not None else lambda watcher, spent: None
    journal = Journal(options.journal, instance.name)
    with journal.held():
        watcher = Watcher(instance, plan, rules, journal, _applying(options) if options.apply else None)
        print(f"watching {instance.name}: {watcher.plan.gpu_count} GPUs; decisions go to {options.journal}"
              + ("" if options.apply else "; nothing is applied"), file=sys.stderr)
        if watcher.standing is not None and watcher.plan != plan:
            print(f"{options.plan}: is not what stands: decision {watcher.standing.number} of {options.journal} was "
                  f"{watcher.standing.outcome}, and its plan counts; another --journal goes on from {options.plan}",
                  file=sys.stderr)
        watch(watcher, lambda: rates_now(options.prometheus, instance, options.query, options.label),
              lambda decision: _tell(decision, options.json), options.looks, seen)
    return 0


def _applying(options: Namespace) -> Callable[[Instance, Plan], str]:
    """The function that carries a plan out on this machine; returns what became of it."""
    names, permissions = gpus(options), Permissions(evict=options.evict)

    def act(wanted: Instance, plan: Plan) -> str:
        found = apply(wanted, plan, options.state, names, options.server, permissions)
        why = found.failure or "; ".join(found.quarantined)
        return f"{found.outcome}: {why}" if why else found.outcome

    return act


def _tell(decision: Decision, as_json: bool) -> None:
    """Print a decision on one line."""
    if as_json:
        print(decision.model_dump_json(exclude_none=True), flush=True)
        return
    then = f"{decision.gpus} to {decision.gpus_then} GPUs, {decision.outcome}: " if decision.action == "change" else ""
    print(f"{decision.at} {decision.action} {then}{decision.why}", flush=True)


def _metrics(port: int) -> Callable[[Watcher, float], None]:
    """Answer /metrics on a port of this machine; returns what is called after every look."""
    with optional():
        from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
    to = CollectorRegistry()
    gpu_count = Gauge("provision_watch_gpus", "GPUs of the plan that stands, or is advised", registry=to)
    sees = Gauge("provision_watch_sees_rates", "1 while rates can be read", registry=to)
    spent_s = Gauge("provision_watch_look_seconds", "Seconds of the last look, decision included", registry=to)
    looks = Counter("provision_watch_looks", "Looks at the rates", registry=to)
    decisions = Gauge("provision_watch_decisions", "Decisions in the journal", registry=to)
    rate = Gauge("provision_watch_rate_rps", "The last known rate", ["workload"], registry=to)
    carries = Gauge("provision_watch_carries_rps", "What the plan carries within its SLO", ["workload"], registry=to)
    try:
        start_http_server(port, "127.0.0.1", registry=to)
    except (OSError, OverflowError) as error:
        raise InputError(f"--metrics-port {port}: cannot be used: {error}; name another") from None

    def seen(watcher: Watcher, spent: float) -> None:
        looks.inc()
        spent_s.set(spent)
        sees.set(watcher.sees)
        gpu_count.set(watcher.plan.gpu_count)
        decisions.set(next((one.number for one in watcher.journal.decisions(1, plans=False)), 0))
        for name, value in watcher.rates.items():
            rate.labels(name).set(value)
            carries.labels(name).set(watcher.carries[name])

    return seen
