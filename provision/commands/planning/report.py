"""``provision report``: write one self-contained page with everything about an instance and a plan for it."""

from collections.abc import Callable, Sequence

from provision import InputError, Instance, Plan, Result, SimulationReport, replan, simulate, solve
from provision.answers.margins import how_sure, margins_of
from provision.commands.planning.compare import cell
from provision.commands.verb import Seconds, Writing, read_instance, verdict
from provision.comparing.compare import COLUMNS, Comparison
from provision.draw.convergence import Trace
from provision.draw.drawing import Drawing
from provision.draw.html import document, figure, lines, section, table
from provision.draw.latencies import latencies_figure, strain
from provision.draw.output import plural
from provision.draw.page import plan_parts
from provision.draw.progress import progress
from provision.draw.sweep import sweep_figure
from provision.draw.verdict import standing_of
from provision.instances.files.files import write_text
from provision.models.base.arguments import operand, option, written
from provision.models.base.fields import Count, Name, Positive, Text
from provision.models.base.objects import known
from provision.models.problem.objective import objective_of
from provision.solving.methods import method as find_method
from provision.sweeps import words
from provision.sweeps.parameters import changed, made, points_of, values_of
from provision.sweeps.run import NOT_APPLICABLE, row, run
from provision.sweeps.table import aligned

METHODS = ("greedy", "parvagpu", "mig-serving-fast", "paris", "igniter", "gpulets")
FARED = {
    "workload": "workload", "SLO ms": "slo_ms", "P50 ms": "p50_ms", "P95 ms": "p95_ms", "P99 ms": "p99_ms",
    "P99.9 ms": "p999_ms", "served/s": "throughput_rps", "violated": "violation_rate", "dropped": "dropped",
}
"""The columns of the table of a replay, each with its key in a summary."""
REPLAYED_S, REPLAYED = 30.0, 10_000_000
"""The seconds of arrivals that are replayed by default, and the most requests that then come."""
MOST_REPLAYED = 300
"""The most workloads in the table of a replay."""
SWEPT = ("status", "objective", "bound", "gap", "plan_gpus")


class Report(Writing):
    instance: str = operand("INSTANCE", "a shipped instance or a file")
    out: str = written("the page to write (.html)", default=...)
    method: Name = option("auto", "M", "that plans")
    methods: tuple[Name, ...] = option(METHODS, "M,M", "compared with it; empty parts are left out",
                                      type=lambda text: tuple(filter(None, map(str.strip, text.split(",")))))
    vary: dict[Name, Text] = option({"rate": "0.8:1.4:0.2"}, "NAME=VALUES", "what if (default: rate=0.8:1.4:0.2)")
    rate: Positive = option(1.2, "F", "traffic to replan for")
    seconds: Seconds | None = option(
        None, "S", f"arrivals to replay (default: {REPLAYED_S:g}; fewer if over {REPLAYED:,} requests come)")
    time_limit_s: Seconds = option(20.0, "S", "seconds per plan")
    seed: Count = option(0, "N", "for methods that draw numbers")

    def run(self) -> int:
        instance = read_instance(self.instance)
        for name in self.methods:
            find_method(name)
        sweep = made(self.vary)
        points_of(sweep)
        with progress(f"{self.method} on {instance.name}") as report:
            trace = Trace(show=report)
            result = solve(instance, self.method, self.time_limit_s, self.seed, trace, replay=False)
        if result.plan is None:
            return self.answer(
                result.summary() | {"out": None},
                f"{instance.name}: {result.status}: {result.reason}; there is nothing to report",
                verdict(False, result.status))
        plan = result.plan
        margins = margins_of(instance, plan) if result.verified else []
        replay, refused = self._replayed(instance, plan)
        drawing = Drawing(plan, instance, standing_of(instance, result, replay))
        makers: dict[str, Callable[[], str]] = {
            "How sure it is": lambda: lines([*how_sure(instance, plan, margins)]),
            "How the search went": lambda: figure(trace.figure(instance, result)),
            "Other methods": lambda: self._methods(instance, result),
            "What if": lambda: self._what_if(instance, result),
            "Replayed": lambda: lines(refused) if replay is None else _replay(replay),
            f"With {self.rate:g} times the traffic": lambda: self._replanned(instance, plan),
        }
        parts = [*plan_parts(drawing, result.report), lines(result.notes)]
        for title, make in makers.items():
            with progress(title):
                try:
                    content = make()
                except InputError as error:  # a section that cannot be made tells the reason instead
                    content = lines(error.lines)
            parts.append(section(title, content))
        write_text(self.out, document(drawing.title, drawing.summary, parts), self.force)
        more = {"out": self.out, "simulation": replay and replay.summary(),
                "margins": [one.model_dump() for one in margins or ()]}
        return self.answer(result.summary() | more, f"report written to {self.out}")

    def _replayed(self, instance: Instance, plan: Plan) -> tuple[SimulationReport | None, Sequence[str]]:
        """The replay of a plan; None if the simulator refuses it, as with too many requests, and the reason."""
        seconds = self.seconds
        if seconds is None:
            arriving_rps = sum(one.rate_rps for one in instance.workloads)
            seconds = min(REPLAYED_S, REPLAYED / arriving_rps) if arriving_rps else REPLAYED_S
        try:
            return simulate(instance, plan, seconds, self.seed), ()
        except InputError as error:
            return None, error.lines

    def _methods(self, instance: Instance, result: Result) -> str:
        """The table of all methods, and a line for each method that cannot plan the instance, as HTML."""
        own = result.summary() | {"violations": len(known(result.report).violations)}
        comparison = Comparison(self.time_limit_s, self.seed)
        rows = [own, *(comparison.row(instance, name)[0] for name in self.methods if name != self.method)]
        tried = [one for one in rows if one["status"] != NOT_APPLICABLE]
        refused = [f"{one['method']}: {one['reason']}" for one in rows if one["status"] == NOT_APPLICABLE]
        return table(COLUMNS, [[cell(one, column) for column in COLUMNS] for one in tried]) + lines(refused)

    def _what_if(self, instance: Instance, result: Result) -> str:
        """The sweep in words, as a figure and as a table, as HTML."""
        sweep = made(self.vary)
        values, base = values_of(sweep), row(result)
        rows = run(instance, points_of(sweep), {
            "method": self.method, "time_limit_s": self.time_limit_s, "seed": self.seed})
        told = lines(words.answers(base, values, rows, {}, objective_of(instance).unit))
        columns = [*values, *SWEPT]
        content = [[one.get(column) for column in columns] for one in aligned(rows)]
        return told + figure(sweep_figure(instance, base, values, rows, {})) + table(columns, content)

    def _replanned(self, instance: Instance, plan: Plan) -> str:
        """The plan for higher rates that disturbs the running plan little, with the changes, as HTML."""
        more = changed(instance, {"rate": self.rate})
        found = replan(more, plan, time_limit_s=self.time_limit_s)
        shown = {name: value for name, value in found.summary().items() if value is not None}
        counted = table(list(shown), [list(shown.values())])
        return counted + ("" if found.plan is None else "".join(plan_parts(Drawing(found.plan, more), found.report)))


def _replay(replay: SimulationReport) -> str:
    """The latencies of the replayed requests as curves and, for those closest to their SLOs, as a table, as HTML."""
    nearest = sorted(replay.workloads, key=strain, reverse=True)[:MOST_REPLAYED]
    shown = nearest if len(nearest) < len(replay.workloads) else replay.workloads
    fared = [one.summary() for one in (*shown, *replay.workflows)]
    rows = [[one[name] for name in FARED.values()] for one in fared]
    hidden = plural(len(replay.workloads) - len(shown), "calmer workload")
    more = () if shown is replay.workloads else (f"{hidden} not in the table (provision simulate --json has all)",)
    return lines([*replay.notes, *more]) + figure(latencies_figure(replay)) + table(list(FARED), rows)
