"""``provision report``: write one self-contained page with everything about an instance and a plan for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from provision.answers.comparison import COLUMNS, Comparison
from provision.answers.margins import how_sure, margins_of
from provision.commands.common import UNKNOWN, add_force, add_json, print_json, progress, seconds, verdict
from provision.commands.planning.compare import cell
from provision.commands.reading import read_instance
from provision.draw.convergence import Trace, convergence_figure
from provision.draw.html import document, figure, lines, section, table
from provision.draw.latencies import latencies_figure, strain
from provision.draw.layout.drawing import Drawing
from provision.draw.page import plan_parts
from provision.draw.standing import standing_of
from provision.draw.sweep import sweep_figure
from provision.draw.words import plural
from provision.instances.files.files import check_writable, write_text
from provision.models.base.errors import InputError, UnsupportedError
from provision.models.base.known import known
from provision.models.problem.objective import objective_of
from provision.replanning.replan import replan
from provision.simulation.simulate import simulate
from provision.solving.methods import method as find_method
from provision.solving.solve import solve
from provision.sweeps import words
from provision.sweeps.grid import from_flags, points_of, values_of
from provision.sweeps.parameters import changed
from provision.sweeps.run import NOT_APPLICABLE, row, run
from provision.sweeps.table import aligned

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.models.plans.plan import Plan
    from provision.models.plans.result import Result
    from provision.models.plans.simulation_report import SimulationReport
    from provision.models.problem.instance import Instance

METHODS = "greedy,parvagpu,mig-serving-fast,paris,igniter,gpulets"
VARY = "rate=0.8:1.4:0.2"
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


def add_report(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("instance", metavar="INSTANCE", help="a shipped instance or a file")
    parser.add_argument("--out", required=True, metavar="F", help="the page to write (.html)")
    parser.add_argument("--method", default="auto", metavar="M", help="that plans (default: auto)")
    parser.add_argument(
        "--methods", default=METHODS, metavar="M,M", help=f"compared with it; empty parts are left out ({METHODS})"
    )
    parser.add_argument("--vary", default=VARY, metavar="NAME=VALUES", help=f"what if (default: {VARY})")
    parser.add_argument("--rate", type=float, default=1.2, metavar="F", help="traffic to replan for (default: 1.2)")
    parser.add_argument("--seconds", type=seconds, metavar="S",
                        help=f"arrivals to replay (default: {REPLAYED_S:g}; fewer if over {REPLAYED:,} requests come)")
    parser.add_argument("--time-limit", type=seconds, default=20.0, metavar="S", help="seconds per plan (default: 20)")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    instance = read_instance(options.instance)
    check_writable(options.out, options.force)
    names = [name.strip() for name in options.methods.split(",") if name.strip()]
    for name in names:
        find_method(name)
    sweep = from_flags([options.vary])
    points_of(sweep)
    with progress(f"{options.method} on {instance.name}") as report:
        trace = Trace(show=report)
        result = solve(instance, options.method, options.time_limit, options.seed, trace, replay=False)
    if result.plan is None:
        if options.json:
            print_json(result.summary() | {"out": None})
            return verdict(False, result.status)
        print(f"{instance.name}: {result.status}: {result.reason}; there is nothing to report")
        return UNKNOWN if result.status == "unknown" else 1
    plan = result.plan
    margins = margins_of(instance, plan) if result.verified else []
    replay, refused = _simulated(instance, plan, options)
    drawing = Drawing(plan, instance, standing_of(instance, result, replay))
    parts = [
        *plan_parts(drawing, result.report),
        lines(result.notes),
        *_sections({
            "How sure it is": lambda: lines([*how_sure(instance, plan, margins)]),
            "How the search went": lambda: figure(convergence_figure(instance, result, trace)),
            "Other methods": lambda: _methods(instance, result, names, options),
            "What if": lambda: _what_if(instance, result, options),
            "Replayed": lambda: lines(refused) if replay is None else _replay(replay),
            f"With {options.rate:g} times the traffic": lambda: _replanned(instance, result, options),
        }),
    ]
    write_text(options.out, document(drawing.title, drawing.summary, parts), options.force)
    if options.json:
        margins_told = [one.model_dump() for one in margins or ()]
        replayed = replay and replay.summary()
        print_json(result.summary() | {"out": options.out, "simulation": replayed, "margins": margins_told})
    else:
        print(f"report written to {options.out}")
    return 0


def _simulated(instance: Instance, plan: Plan, options: Namespace) -> tuple[SimulationReport | None, Sequence[str]]:
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


def _methods(instance: Instance, result: Result, names: list[str], options: Namespace) -> str:
    """The table of all methods, and a line for each method that cannot plan the instance, as HTML."""
    own = result.summary() | {"violations": len(known(result.report).violations)}
    comparison = Comparison(options.time_limit, options.seed)
    rows = [own, *(comparison.row(instance, name)[0] for name in names if name != options.method)]
    tried = [one for one in rows if one["status"] != NOT_APPLICABLE]
    refused = [f"{one['method']}: {one['reason']}" for one in rows if one["status"] == NOT_APPLICABLE]
    return table(COLUMNS, [[cell(one, column) for column in COLUMNS] for one in tried]) + lines(refused)


def _what_if(instance: Instance, result: Result, options: Namespace) -> str:
    """The sweep in words, as a figure and as a table, as HTML."""
    sweep = from_flags([options.vary])
    values, base = values_of(sweep), row(result)
    settings = {"method": options.method, "time_limit_s": options.time_limit, "seed": options.seed}
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


def _replanned(instance: Instance, result: Result, options: Namespace) -> str:
    """The plan for higher rates that disturbs the running plan little, with the changes, as HTML."""
    more = changed(instance, {"rate": options.rate})
    try:
        found = replan(more, known(result.plan), time_limit_s=options.time_limit)
    except UnsupportedError as error:
        return lines(error.lines)
    changes = found.summary()
    shown = {name: value for name, value in changes.items() if value is not None}
    counted = table(list(shown), [list(shown.values())])
    if found.plan is None:
        return counted
    return counted + "".join(plan_parts(Drawing(found.plan, more), found.report))
