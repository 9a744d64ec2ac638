"""``provision watch``: watch the rates of a running plan, and tell, or do, what should change."""

import sys
from collections.abc import Callable
from importlib.util import find_spec

from provision import Instance, Permissions, Plan, apply
from provision.cluster.journal import KEPT_DAYS, KEPT_DECISIONS, Decision, Journal
from provision.cluster.watch import Rules, Watcher, watch
from provision.commands.apply import Gpus
from provision.commands.cluster import RUNS, running
from provision.commands.verb import Answering, Seconds
from provision.models.base.arguments import local, operand
from provision.models.base.clock import Stop, stopping
from provision.models.base.errors import InputError, optional
from provision.models.base.fields import Count, Flag, Positive
from provision.replanning.prometheus import rates_now

RULES = Rules()


class Watch(Answering):
    instance: str = operand("INSTANCE", RUNS)
    plan: str | None = operand("PLAN", "the plan that runs; after a state, leave it out", None, nargs="?")
    prometheus: str = local(..., "URL", "the server that measures the rates")
    query: str | None = local(None, "Q", "PromQL of requests/s by workload (default: Triton's counters)")
    label: str = local("model", "L", "its label with the workload")
    journal: str = local("watch.db", "F", "the journal (default: watch.db here)")
    keep_days: Positive = local(KEPT_DAYS, "N", f"drop decisions older than this, but the newest {KEPT_DECISIONS}")
    look_s: Seconds = local(RULES.look_s, "S", "seconds from one look at the rates to the next")
    interval_s: Seconds = local(RULES.interval_s, "S",
                                "seconds between decisions while every rate is within its band")
    decide_s: Seconds = local(RULES.decide_s, "S", "the most seconds for a decision")
    headroom: float = local(0.0, "H", "planned beyond the rates")
    no_forecast: Flag = local(False, None, "go by the rates alone, statsforecast or not")
    metrics_port: int | None = local(None, "N", "answer /metrics on this port of this machine")
    looks: Count | None = local(None, "N", "end after so many looks (default: go on)")
    apply: Flag = local(False, None, "carry decisions out on this machine's GPUs")
    state: str | None = local(None, "DIR", "with --apply: the applier's state directory")
    gpus: Gpus = local(None, "LIST", "with --apply: indices or UUIDs of the GPUs that may be used")
    server: str | None = local(None, "CMD", "with --apply: the command that serves a replica")
    evict: Flag = local(False, None, "with --apply: end processes on slices that have to go")
    adopt: bool | None = local(
        None, None, "with --apply: take over slices of the plan's that something else made, and what a run that was "
        "cut off may have made (--no-adopt: it did not make that)")

    def run(self) -> int:
        for name in ("state", "gpus", "server", "evict", "adopt"):
            if name in self.model_fields_set and not self.apply:
                raise InputError(f"--{name}: is for --apply; add that or leave it out")
        instance, plan, _ = running(self.instance, self.plan)
        forecast = not self.no_forecast and find_spec("statsforecast") is not None
        rules = Rules(self.look_s, self.interval_s, self.decide_s, self.headroom, forecast)
        seen = _metrics(self.metrics_port) if self.metrics_port is not None else lambda watcher, spent: None
        journal = Journal(self.journal, instance.name, self.keep_days)
        with journal.held():
            watcher = Watcher(instance, plan, rules, journal, _applying(self) if self.apply else None)
            print(f"watching {instance.name}: {watcher.plan.gpu_count} GPUs; decisions go to {self.journal}"
                  + ("" if self.apply else "; nothing is applied"), file=sys.stderr)
            if watcher.standing is not None and watcher.plan != plan:
                given = self.plan or self.instance
                print(f"{given}: is not what stands: decision {watcher.standing.number} of {self.journal} was "
                      f"{watcher.standing.outcome}, and its plan counts; another --journal goes on from {given}",
                      file=sys.stderr)
            watch(watcher, lambda: rates_now(self.prometheus, instance, self.query, self.label),
                  self._tell, self.looks, seen)
        return 0

    def _tell(self, decision: Decision) -> None:
        """Print a decision on one line."""
        then = f"{decision.gpus} to {decision.gpus_then} GPUs, {decision.outcome}: " \
            if decision.action == "change" else ""
        print(decision.model_dump_json(exclude_none=True) if self.as_json else
              f"{decision.at} {decision.action} {then}{decision.why}", flush=True)


def _applying(options: Watch) -> Callable[[Instance, Plan], str]:
    """The function that carries a plan out on this machine; returns what became of it."""
    names = None if options.gpus is None else list(options.gpus)
    permissions = Permissions(evict=options.evict, adopt=options.adopt)

    def act(wanted: Instance, plan: Plan) -> str:
        with stopping(Stop()):  # a change that has begun is finished
            found = apply(wanted, plan, options.state, names, options.server, permissions)
        why = found.failure or "; ".join(found.quarantined)
        return f"{found.outcome}: {why}" if why else found.outcome

    return act


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
