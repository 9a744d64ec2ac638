"""The verbs that look at what runs. ``provision/cluster/`` has the functions behind them.

``provision watch`` goes on: it watches the rates of a running plan, and tells, or does, what should change.
"""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from provision import InputError, Instance, Permissions, Plan, apply, layout, read_plan, recommend, write
from provision.answers.clusters import export_paths, layout_told, moves_told, recommendation_told, write_exports
from provision.cluster.calibrate import calibrate, corrected, observed_by, read_observed
from provision.cluster.defragment import Defragmentation, defragment
from provision.cluster.journal import KEPT_DAYS, KEPT_DECISIONS, Decision, Journal
from provision.cluster.metrics import WINDOW_S, measured, metrics_table
from provision.cluster.state import Observation, State, read_state
from provision.cluster.watch import Rules, Watcher, watch
from provision.commands.apply import Gpus
from provision.commands.verb import UNKNOWN, Answering, Given, Seconds, Writing, read_instance
from provision.draw.output import Rows
from provision.instances.files.files import check_writable, validate
from provision.models.base.arguments import local, operand, option, written
from provision.models.base.clock import Stop, stopping
from provision.models.base.errors import optional
from provision.models.base.fields import Count, Flag, Name, Positive, PositiveCount
from provision.replanning.prometheus import rates_now

STATE = operand("STATE", "what import kubernetes or import gpus wrote")
RUNS = "a shipped instance, a file, or without PLAN a state"
"""What the operand INSTANCE of verbs on a running plan is."""


def running(instance: str, plan: str | None) -> tuple[Instance, Plan, dict[str, Observation]]:
    """The instance and the plan that runs; without a file of the plan those of a state, with what was observed then."""
    if plan is None:
        state = read_state(instance)
        return state.instance, state.plan(), state.observations
    found = read_instance(instance)
    return found, read_plan(plan, found), {}


class Layout(Answering):
    gpu: str = operand("GPU", "a GPU type, such as a100-80gb")
    profiles: tuple[str, ...] = operand("PROFILE", "the instances to create, in this order", nargs="+")
    on: tuple[str, ...] = option((), "PROFILE@START", "instances that exist and stay", nargs="+")

    def run(self) -> int:
        answer = layout(self.gpu, self.profiles, self.on)
        return self.answer(answer.model_dump(mode="json"), layout_told(answer), 0 if answer.legal else 1)

    def job(self, given: Given) -> dict[str, Any]:
        return layout(self.gpu, self.profiles, self.on).model_dump(mode="json")


class Recommend(Writing):
    state: str = STATE
    max_moves: Count | None = option(None, "N", "at most so many slices destroyed and replicas started")
    keep: tuple[str, ...] = option((), "NAMESPACE", "GPUs of this namespace stay", action="append")
    time_limit_s: Seconds = option(60.0, "S", "seconds")
    markdown: Flag = local(False, None, "print Markdown, for a pull request")
    out: str | None = written("write the target plan here (.json, else YAML)")
    export: str | None = local(None, "DIR", "write the target for mig-parted, DRA and the device plugin")

    def run(self) -> int:
        state = read_state(self.state)
        for path in export_paths(self.export) if self.export else ():
            check_writable(path, self.force)
        found = recommend(state, self.max_moves, self.keep, self.time_limit_s)
        if self.out:
            write(found.plan, self.out, self.force)
        exports, whole = write_exports(found, self.export, self.force) if self.export else ([], True)
        content = found.model_dump(mode="json") | {"plan_file": self.out, "exports": exports}
        return self.answer(content, [*recommendation_told(found, self.markdown), *exports], 0 if whole else 1)

    def job(self, given: Given) -> dict[str, Any]:
        return recommend(given.state, self.max_moves, self.keep, self.time_limit_s).model_dump(mode="json")


class Calibrate(Writing):
    instance: str = operand("INSTANCE", RUNS)
    plan: str | None = operand("PLAN", "the plan that runs; after a state, leave it out", None, nargs="?")
    prometheus: str | None = local(None, "URL", "the server that has the latency histograms")
    metrics: str | None = local(None, "FILE", "rows for the table of metric names")
    window_s: Seconds = local(float(WINDOW_S), "S", "seconds over which latencies are taken")
    observed: str | dict[Name, Observation] | None = option(
        None, "FILE", "or a table: workload,requests,p50_ms,p99_ms", remote=dict[Name, Observation])
    out: str | None = local(None, "F", "write corrected performance data here, if anything is outside")

    def run(self) -> int:
        instance, plan, observed = running(self.instance, self.plan)
        if (self.prometheus and self.observed) or not (self.prometheus or self.observed or observed):
            raise InputError("calibrate: give --prometheus URL or --observed FILE, and not both; or a state that was "
                             "imported with --prometheus")
        for path in {self.out, *_corrected_paths(self.out, len(instance.performance))} if self.out else ():
            check_writable(path, self.force)
        if self.prometheus:
            observed = observed_by(measured(self.prometheus, metrics_table(self.metrics), self.window_s), instance)
        elif self.observed:
            observed = read_observed(str(self.observed))
        found = calibrate(instance, plan, observed)
        lines = list(found.notes)
        if self.out and found.factors:
            files, further = corrected(instance, found.factors)
            lines += further
            for data, path in zip(files, _corrected_paths(self.out, len(files)), strict=True):
                write(data, path, self.force)
                lines.append(f"{data.source}: written to {path}")
        table = Rows(("workload", "percentile", "observed ms", "predicted ms", "band ms", "inside", "requests"), [
            (one.workload, one.label, one.observed_ms, one.predicted_ms,
             None if one.band_ms is None else f"{one.band_ms[0]:.4g} to {one.band_ms[1] or float('inf'):.4g}",
             {True: "yes", False: "NO", None: "-"}[one.inside], round(one.requests)) for one in found.rows])
        text = [table, *lines, "everything is inside its band" if found.ok else "the prediction does not hold"]
        return self.answer(found.model_dump(mode="json") | {"lines": lines}, text, 0 if found.ok else 1)

    def job(self, given: Given) -> dict[str, Any]:
        found = calibrate(given.instance, given.plan, validate(dict[Name, Observation], self.observed, "observed"))
        files, lines = corrected(given.instance, found.factors)
        return found.model_dump(mode="json") | {
            "lines": [*found.notes, *lines], "performance": [one.model_dump(mode="json") for one in files]}


def _corrected_paths(out: str, files: int) -> list[str]:
    """The paths of so many files of corrected data."""
    return [out] if files == 1 else [f"{out}.{number}.yaml" for number in range(files)]


class Defragment(Answering):
    state: str = STATE
    free: PositiveCount | None = option(None, "N", "let so many GPUs stand empty")
    free_node: str | None = option(None, "NODE", "let this machine stand empty")
    admit: str | None = option(None, "PROFILE", "make room for a slice: PROFILE, or GPUTYPE:PROFILE")
    max_moves: Count | None = option(None, "N", "at most so many slices move")
    keep: tuple[str, ...] = option((), "NAMESPACE", "slices of it stay", action="append")
    budget: dict[Name, Count] = option({}, "WORKLOAD=N", "at most N slices of a workload move")
    time_limit_s: Seconds = option(60.0, "S", "seconds")

    def run(self) -> int:
        found = self._found(read_state(self.state))
        code = UNKNOWN if found.status == "unknown" else int(found.status == "impossible")
        return self.answer(found.model_dump(mode="json"), moves_told(found), code)

    def job(self, given: Given) -> dict[str, Any]:
        return self._found(given.state).model_dump(mode="json")

    def _found(self, state: State) -> Defragmentation:
        for name in self.budget:
            if name not in state.instance.workload:
                raise InputError(f"--budget {name}: write WORKLOAD=N with a workload of the state: "
                                 f"{', '.join(list(state.instance.workload)[:10])}")
        return defragment(state, self.free, self.free_node, self.admit, self.max_moves, self.keep, self.budget,
                          self.time_limit_s)


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
