"""``provision report``: write one self-contained page with everything about an instance and a plan for it."""

from collections.abc import Callable, Iterator, Sequence

from provision.answers.margins import how_sure, margins_of
from provision.commands.planning.compare import cell
from provision.commands.verb import Seconds, Writing, read_instance, verdict
from provision.comparing.compare import COLUMNS, Comparison
from provision.draw.convergence import Trace
from provision.draw.html import document, figure, lines, section, table
from provision.draw.latencies import latencies_figure, strain
from provision.draw.layout.drawing import Drawing
from provision.draw.page import plan_parts
from provision.draw.progress import progress
from provision.draw.standing import standing_of
from provision.draw.sweep import sweep_figure
from provision.draw.words import plural
from provision.instances.files.files import write_text
from provision.models.base.arguments import operand, option, written
from provision.models.base.errors import InputError, UnsupportedError
from provision.models.base.fields import Count, Name, Positive, Text
from provision.models.base.known import known
from provision.models.plans.plan import Plan
from provision.models.plans.result import Result
from provision.models.plans.simulation_report import SimulationReport
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.replanning.replan import replan
from provision.simulation.simulate import simulate
from provision.solving.methods import method as find_method
from provision.solving.solve import solve
from provision.sweeps import words
from provision.sweeps.grid import made, points_of, values_of
from provision.sweeps.parameters import changed
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


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


class Report(Writing):
    instance: str = operand("INSTANCE", "a shipped instance or a file")
    out: str = written("the page to write (.html)", default=...)
    method: Name = option("auto", "M", "that plans")
    methods: tuple[Name, ...] = option(METHODS, "M,M", "compared with it; empty parts are left out", type=_names)
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
        replay, refused = _simulated(instance, plan, self)
        drawing = Drawing(plan, instance, standing_of(instance, result, replay))
        parts = [
            *plan_parts(drawing, result.report),
            lines(result.notes),
            *_sections({
                "How sure it is": lambda: lines([*how_sure(instance, plan, margins)]),
                "How the search went": lambda: figure(trace.figure(instance, result)),
                "Other methods": lambda: _methods(instance, result, self),
                "What if": lambda: _what_if(instance, result, self),
                "Replayed": lambda: lines(refused) if replay is None else _replay(replay),
                f"With {self.rate:g} times the traffic": lambda: _replanned(instance, result, self),
            }),
        ]
        write_text(self.out, document(drawing.title, drawing.summary, parts), self.force)
        more = {"out": self.out, "simulation": replay and replay.summary(),
                "margins": [one.model_dump() for one in margins or ()]}
        return self.answer(result.summary() | more, f"report written to {self.out}")


def _simulated(instance: Instance, plan: Plan, options: Report) -> tuple[SimulationReport | None, Sequence[str]]:
    """The replay of a plan; None if the simulator refuses it, as with too many requests, and the reason."""
    seconds = options.seconds
    if seconds is None:
        arriving_rps = sum(one.rate_rps for one in instance.workloads)
        seconds = min(REPLAYED_S, REPLAYED / arriving_rps) if arriving_rps else REPLAYED_S
    try:
        return simulate(instance, plan, seconds, options.seed), ()
    except InputError as error:
        return None, error.lines


def _sections(makers: dict[str, Callable[[], str]]) -> Iterator[str]:
    """Yield the sections of the page as HTML; a section that cannot be made tells the reason instead."""
    for title, make in makers.items():
        with progress(title):
            try:
                content = make()
            except InputError as error:
                content = lines(error.lines)
        yield section(title, content)


def _methods(instance: Instance, result: Result, options: Report) -> str:
    """The table of all methods, and a line for each method that cannot plan the instance, as HTML."""
    own = result.summary() | {"violations": len(known(result.report).violations)}
    comparison = Comparison(options.time_limit_s, options.seed)
    rows = [own, *(comparison.row(instance, name)[0] for name in options.methods if name != options.method)]
    tried = [one for one in rows if one["status"] != NOT_APPLICABLE]
    refused = [f"{one['method']}: {one['reason']}" for one in rows if one["status"] == NOT_APPLICABLE]
    return table(COLUMNS, [[cell(one, column) for column in COLUMNS] for one in tried]) + lines(refused)


def _what_if(instance: Instance, result: Result, options: Report) -> str:
    """The sweep in words, as a figure and as a table, as HTML."""
    sweep = made(options.vary)
    values, base = values_of(sweep), row(result)
    settings = {"method": options.method, "time_limit_s": options.time_limit_s, "seed": options.seed}
    rows = run(instance, points_of(sweep), settings)
    told = lines(words.answers(base, values, rows, {}, objective_of(instance).unit))
    columns = [*values, *SWEPT]
    content = [[one.get(column) for column in columns] for one in aligned(rows)]
    return told + figure(sweep_figure(instance, base, values, rows, {})) + table(columns, content)


def _replay(replay: SimulationReport) -> str:
    """The latencies of the replayed requests as curves and as a table, as HTML; of many workloads only those closest to
    their SLOs are in the table.
    """
    nearest = sorted(replay.workloads, key=strain, reverse=True)[:MOST_REPLAYED]
    shown = nearest if len(nearest) < len(replay.workloads) else replay.workloads
    fared = [one.summary() for one in (*shown, *replay.workflows)]
    rows = [[one[name] for name in FARED.values()] for one in fared]
    hidden = plural(len(replay.workloads) - len(shown), "calmer workload")
    more = () if shown is replay.workloads else (f"{hidden} not in the table (provision simulate --json has all)",)
    return lines([*replay.notes, *more]) + figure(latencies_figure(replay)) + table(list(FARED), rows)


def _replanned(instance: Instance, result: Result, options: Report) -> str:
    """The plan for higher rates that disturbs the running plan little, with the changes, as HTML."""
    more = changed(instance, {"rate": options.rate})
    try:
        found = replan(more, known(result.plan), time_limit_s=options.time_limit_s)
    except UnsupportedError as error:
        return lines(error.lines)
    changes = found.summary()
    shown = {name: value for name, value in changes.items() if value is not None}
    counted = table(list(shown), [list(shown.values())])
    if found.plan is None:
        return counted
    return counted + "".join(plan_parts(Drawing(found.plan, more), found.report))
