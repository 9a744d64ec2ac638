"""``provision what-if``: sweep over rates, SLOs, prices and fleets; find breakpoints, marginal prices, and the price of
safety.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision import draw
from provision.commands import interrupted
from provision.commands.common import add_executor, add_force, add_json, counting, print_json, print_table, seconds
from provision.commands.reading import read_instance
from provision.draw.figures import check_picture, write_figure
from provision.formulations.marginal.prices import marginal_prices
from provision.instances.files.demand import read_demand
from provision.models.base.errors import InputError
from provision.models.problem.executor import executor_of
from provision.models.problem.objective import objective_of
from provision.sweeps import words
from provision.sweeps.breakpoints import breakpoints, check_range
from provision.sweeps.grid import from_flags, points_of, read_sweep, values_of
from provision.sweeps.parameters import PARAMETERS
from provision.sweeps.run import COLUMNS, FAILED, NOT_APPLICABLE, digest, run
from provision.sweeps.safety import QUANTILES, price_of_safety
from provision.sweeps.table import Table, aligned

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.models.problem.executor import Executor
    from provision.models.problem.instance import Instance
    from provision.sweeps.breakpoints import Breakpoint
    from provision.sweeps.grid import Sweep
    from provision.sweeps.run import Settings
    from provision.sweeps.table import TableRow

HIDDEN = ("gpcs", "cost_per_hour", "reason")
"""The columns that are in files and JSON but not in printed tables."""


def add_what_if(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    names = {name: f"{name}.{one.target}" if one.target else name for name, one in PARAMETERS.items()}
    listed = "; ".join(f"{names[name]}: {one.what}" for name, one in PARAMETERS.items())
    parser.description = f"{parser.description}. Parameters: {listed}"
    parser.add_argument("instance", metavar="INSTANCE", help="a shipped instance or a file")
    parser.add_argument(
        "--vary", action="append", default=[], metavar="NAME=VALUES", help="FIRST:LAST:STEP or VALUE,VALUE"
    )
    parser.add_argument("--sweep", metavar="F", help="the parameters and values from a YAML file")
    parser.add_argument("--one-at-a-time", action="store_true", help="not every combination of several parameters")
    parser.add_argument(
        "--breakpoints", action="append", default=[], metavar="NAME", help="find where the GPUs change along it"
    )
    parser.add_argument(
        "--budget", type=float, metavar="B",
        help="say which values cost no more: $ per hour, or GPUs where the fleet has no prices"
    )
    parser.add_argument("--prices", action="store_true", help="what a request/s and a ms of SLO cost at the margin")
    parser.add_argument("--demand", metavar="F", help="CSV of time_s,workload,rate_rps: plans for its quantiles")
    quantiles = ",".join(f"{one:g}" for one in QUANTILES)
    parser.add_argument("--quantiles", default=quantiles, metavar="Q,Q", help=f"of the demand (default: {quantiles})")
    parser.add_argument("--method", default="auto", metavar="M", help="one of `provision methods` (default: auto)")
    parser.add_argument("--time-limit", type=seconds, default=60.0, metavar="S", help="seconds a point (default: 60)")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    add_executor(parser)
    parser.add_argument("--out", metavar="F", help="write the table here (.csv or .parquet); resumes when interrupted")
    parser.add_argument("--png", metavar="F", help="draw the sweep here (.png or .svg)")
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    instance, sweep = read_instance(options.instance), _sweep(options)
    values = values_of(sweep) if sweep else {}
    _check(options, values)
    try:
        with executor_of(options.workers, options.dask) as executor:
            found = _found(instance, sweep, values, options, executor)
    except KeyboardInterrupt:
        print(f"stopped: {_kept(options.out)}", file=sys.stderr)
        return interrupted()
    if options.png:
        parts = found["base"], values, found["rows"], found["breakpoints"]
        write_figure(draw.sweep.sweep_figure(instance, *parts), options.png, options.force)
    _show(found, options)
    return 1 if found["unproven"] or any(one["status"] == FAILED for one in found.get("rows", [])) else 0


def _found(
    instance: Instance, sweep: Sweep | None, values: Mapping[str, Sequence[Any]], options: Namespace,
    executor: Executor,
) -> dict[str, Any]:
    """All results for which the options ask, by name. Inputs are read and checked before anything is solved."""
    settings = {"method": options.method, "time_limit_s": options.time_limit, "seed": options.seed}
    points = points_of(sweep) if sweep else []
    table = Table(options.out, digest(instance, points, settings), options.force) if options.out else None
    safety = (read_demand(options.demand), _quantiles(options.quantiles)) if options.demand else None
    found = {"instance": instance.name, "digest": instance.digest, **settings, "answers": []}
    if options.prices:
        found["prices"] = [price._asdict() for price in marginal_prices(instance)]
    [found["base"]] = run(instance, [{}], settings)
    if safety:
        found["safety"] = price_of_safety(instance, safety[0], settings, safety[1])
    if sweep:
        found["rows"] = _rows(instance, points, settings, table, executor)
    found["breakpoints"], found["unproven"] = _breakpoints(instance, values, settings, options)
    if sweep:
        found["answers"] = words.answers(
            found["base"], values, found["rows"], found["breakpoints"], objective_of(instance).unit
        )
    if sweep and options.budget is not None:
        found["answers"] += words.within(options.budget, list(values), found["rows"], objective_of(instance).unit)
    found["answers"] += [line for name, points in found["breakpoints"].items() for line in words.changes(name, points)]
    found["answers"] += found["unproven"]
    return found


def _kept(out: str | None) -> str:
    """A sentence on what an interrupted command leaves on disk."""
    if out and Path(f"{out}.part").exists():
        return f"{out}.part keeps what is done; the same command goes on from there"
    if out and Path(out).exists():
        return f"{out} holds the whole table; nothing else is kept"
    return "nothing is kept" if out else "nothing is kept without --out"


def _sweep(options: Namespace) -> Sweep | None:
    """The Sweep that the flags or a file describe; None if there is neither."""
    if options.sweep and options.vary:
        raise InputError("--sweep and --vary: use one of them")
    if options.sweep:
        return read_sweep(options.sweep)
    return from_flags(options.vary, options.one_at_a_time) if options.vary else None


def _check(options: Namespace, values: Mapping[str, Sequence[Any]]) -> None:
    """Refuse options that cannot be combined, before any work."""
    for name, given in (("--out", options.out), ("--png", options.png), ("--breakpoints", options.breakpoints)):
        if given and not values:
            raise InputError(f"{name}: needs something to vary; add --vary NAME=VALUES")
    if not (values or options.prices or options.demand):
        raise InputError("what-if: say what to vary, as --vary rate=0.8:1.4:0.05, or add --prices or --demand")
    if options.budget is not None and not (values and 0 <= options.budget < float("inf")):
        raise InputError(f"--budget {options.budget:g}: write a number from 0 on, and something to vary")
    for name in options.breakpoints:
        check_range(name, values.get(name, []))
    if options.png:
        check_picture(options.png, options.force)


def _rows(
    instance: Instance, points: Sequence[dict[str, float | str]], settings: Settings, table: Table | None,
    executor: Executor,
) -> list[TableRow]:
    """The rows of the sweep; if there is a table on disk, finished rows are taken from it and new rows are written to
    it.
    """
    done = table.done if table else {}
    if done:
        print(f"going on: {sum(map(len, done.values()))} of {len(points)} points were done", file=sys.stderr)
    with counting(f"what-if on {instance.name}", len(points)) as advance:
        advance(sum(map(len, done.values())))

        def tell(number: int, rows: list[TableRow]) -> None:
            if table:
                table.add(number, rows)
            advance(len(rows))

        rows = run(instance, points, settings, done, tell, executor)
    if table:
        table.finish(rows)
    return rows


def _breakpoints(
    instance: Instance, values: Mapping[str, Sequence[Any]], settings: Settings, options: Namespace
) -> tuple[dict[str, list[Breakpoint]], list[str]]:
    """The breakpoints by parameter, for the parameters that the options name; and a line for every value at which
    nothing was proven.
    """
    found: dict[str, list[Breakpoint]] = {}
    unproven: list[str] = []
    for name in options.breakpoints:
        with counting(f"breakpoints along {name}", None) as advance:
            try:
                found[name] = breakpoints(instance, name, values[name], settings, _one_by_one(advance), unproven.append)
            except InputError as error:  # the rows of the sweep, and other breakpoints, are told all the same
                unproven.append(str(error))
    return found, unproven


def _one_by_one(advance: Callable[[int], None]) -> Callable[[int], None]:
    """A function that advances by one step at every call and ignores the total that its caller passes."""
    return lambda total: advance(1)


def _quantiles(text: str) -> list[float]:
    """The quantiles in a text with commas."""
    try:
        quantiles = [float(part) for part in text.split(",")]
    except ValueError:
        quantiles = [-1.0]
    if not all(0 <= one <= 1 for one in quantiles):
        raise InputError(f"--quantiles {text!r}: write numbers between 0 and 1 with commas, as 0.9,0.99")
    return quantiles


def _show(found: dict[str, Any], options: Namespace) -> None:
    if options.json:
        changes = {name: [one._asdict() for one in points] for name, points in found["breakpoints"].items()}
        print_json(found | {"breakpoints": changes, "table_file": options.out, "plot_file": options.png})
        return
    for line in found["answers"]:
        print(line)
    for part in ("rows", "prices", "safety"):
        _table(found.get(part, []))
    for one in found.get("rows", []):
        if one["status"] in (NOT_APPLICABLE, FAILED):
            point = ", ".join(f"{name} {one[name]}" for name in one if name not in COLUMNS)
            print(f"{point}: {one['reason']}")
    for what, path in (("table", options.out), ("plot", options.png)):
        if path:
            print(f"{what} written to {path}")


def _table(rows: Sequence[TableRow]) -> None:
    if rows:
        rows = aligned(rows)
        columns = [name for name in rows[0] if name not in HIDDEN]
        print_table(columns, [[row[name] for name in columns] for row in rows])
