"""``provision what-if``: sweep over rates, SLOs, prices and fleets; find breakpoints, marginal prices, and the price of
safety.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from provision import draw
from provision.commands import interrupted
from provision.commands.verb import DASK, WORKERS, Given, Seconds, Writing, read_instance
from provision.draw.figures import write_figure
from provision.draw.output import Rows, rows_of
from provision.draw.progress import counting
from provision.formulations.marginal.prices import marginal_prices
from provision.instances.files.demand import read_demand
from provision.models.base.arguments import local, operand, option, written
from provision.models.base.errors import InputError
from provision.models.base.fields import Count, Flag, Name, NonNegative, Number, PositiveCount, Text
from provision.models.problem.executor import Executor, executor_of
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.sweeps import words
from provision.sweeps.breakpoints import Breakpoint, breakpoints, check_range
from provision.sweeps.grid import Sweep, made, points_of, read_sweep, values_of
from provision.sweeps.parameters import PARAMETERS
from provision.sweeps.run import COLUMNS, FAILED, NOT_APPLICABLE, Settings, digest, run, untold
from provision.sweeps.safety import QUANTILES, price_of_safety
from provision.sweeps.table import Table, TableRow, aligned

HIDDEN = {"gpcs", "reason"}
"""The columns that are in files and JSON but not in printed tables."""

LISTED = "; ".join(
    f"{f'{name}.{one.target}' if one.target else name}: {one.what}" for name, one in PARAMETERS.items())


class WhatIf(Writing):
    """``provision what-if``: a sweep, breakpoints along its parameters, marginal prices, and the price of safety."""

    more_help: ClassVar[str] = f" Parameters: {LISTED}"

    instance: str = operand("INSTANCE", "a shipped instance or a file")
    vary: dict[Name, list[Number | Text] | Text] = option(
        {}, "NAME=VALUES", "FIRST:LAST:STEP or VALUE,VALUE", most=4)
    sweep: str | None = local(None, "F", "the parameters and values from a YAML file")
    one_at_a_time: Flag = option(False, None, "not every combination of several parameters")
    breakpoints: tuple[Name, ...] = option((), "NAME", "find where the GPUs change along it", most=4, action="append")
    budget: NonNegative | None = option(
        None, "B", "say which values cost no more: $ per hour, or GPUs where the fleet has no prices")
    prices: Flag = option(False, None, "what a request/s and a ms of SLO cost at the margin")
    prices_of: tuple[Name, ...] = option((), "W", "of this workload alone", most=1000, action="append")
    demand: str | None = local(None, "F", "CSV of time_s,workload,rate_rps: plans for its quantiles")
    quantiles: tuple[Annotated[float, Field(ge=0, le=1)], ...] = local(QUANTILES, "Q,Q", "of the demand")
    method: Name = option("auto", "M", "one of `provision methods`")
    time_limit_s: Seconds = option(60.0, "S", "seconds a point")
    seed: Count = option(0, "N", "for methods that draw numbers")
    workers: PositiveCount | None = WORKERS
    dask: str | None = DASK
    out: str | None = local(None, "F", "write the table here (.csv or .parquet); resumes when interrupted")
    png: str | None = written("draw the sweep here (.png or .svg)", what="picture")

    def job(self, given: Given) -> dict[str, Any]:
        sweep = _sweep(self)
        rows: list[TableRow] = []

        def solved(row: TableRow) -> None:
            rows.insert(0, row)
            given.keep({"rows": [*rows], "complete": False, "unit": objective_of(given.instance).unit})

        with executor_of(None, None) as executor:
            found = _found(given.instance, sweep, values_of(sweep) if sweep else {}, self, executor, given.progress,
                           solved)
        return {"rows": []} | _plain(found) | {"unit": objective_of(given.instance).unit}

    def run(self) -> int:
        instance, sweep = read_instance(self.instance), _sweep(self)
        values = values_of(sweep) if sweep else {}
        _check(self, values)
        try:
            with executor_of(self.workers, self.dask) as executor:
                found = _found(instance, sweep, values, self, executor)
        except KeyboardInterrupt:
            print(f"stopped: {_kept(self.out)}", file=sys.stderr)
            return interrupted()
        if self.png:
            parts = found["base"], values, found["rows"], found["breakpoints"]
            write_figure(draw.sweep.sweep_figure(instance, *parts), self.png, self.force)
        failed = found["unproven"] or any(one["status"] == FAILED for one in found.get("rows", []))
        content = _plain(found) | {"table_file": self.out, "plot_file": self.png}
        return self.answer(content, _told(found, self), 1 if failed else 0)


def _found(
    instance: Instance, sweep: Sweep | None, values: Mapping[str, Sequence[Any]], options: WhatIf, executor: Executor,
    tell: Callable[[int, int | None], None] = lambda done, total: None, solved: Callable[[TableRow], None] = untold,
) -> dict[str, Any]:
    """All results for which the options ask, by name. Inputs are read and checked before anything is solved."""
    settings = {"method": options.method, "time_limit_s": options.time_limit_s, "seed": options.seed}
    points = points_of(sweep) if sweep else []
    table = Table(options.out, digest(instance, points, settings), options.force) if options.out else None
    safety = (read_demand(options.demand), list(options.quantiles)) if options.demand else None
    found: dict[str, Any] = {"instance": instance.name, "digest": instance.digest, **settings, "answers": []}
    if options.prices:
        found["prices"] = [price._asdict() for price in marginal_prices(instance, options.prices_of)]
    [found["base"]] = run(instance, [{}], settings)
    if safety:
        found["safety"] = price_of_safety(instance, safety[0], settings, safety[1])
        if table and not sweep:
            table.finish(found["safety"])
    if sweep:
        found["rows"] = _rows(instance, points, settings, table, executor, tell, solved)
    found["breakpoints"], found["unproven"] = _breakpoints(instance, values, settings, options, tell)
    if sweep:
        found["answers"] = words.answers(
            found["base"], values, found["rows"], found["breakpoints"], objective_of(instance).unit
        )
    if sweep and options.budget is not None:
        found["answers"] += words.within(options.budget, list(values), found["rows"], objective_of(instance).unit)
    found["answers"] += [line for name, points in found["breakpoints"].items()
                         for line in words.changes(name, points, values[name])]
    found["answers"] += found["unproven"]
    return found


def _kept(out: str | None) -> str:
    """A sentence on what an interrupted command leaves on disk."""
    if out and Path(f"{out}.part").exists():
        return f"{out}.part keeps what is done; the same command goes on from there"
    if out and Path(out).exists():
        return f"{out} holds the whole table; nothing else is kept"
    return "nothing is kept" if out else "nothing is kept without --out"


def _sweep(options: WhatIf) -> Sweep | None:
    """The Sweep that the flags or a file describe; None if there is neither."""
    if options.sweep and options.vary:
        raise InputError("--sweep and --vary: use one of them")
    if options.sweep:
        return read_sweep(options.sweep)
    return made(options.vary, options.one_at_a_time) if options.vary else None


def _check(options: WhatIf, values: Mapping[str, Sequence[Any]]) -> None:
    """Refuse options that cannot be combined, before any work."""
    for name, given in (("--out", options.out), ("--png", options.png), ("--breakpoints", options.breakpoints)):
        if given and not values and not (options.demand and given == options.out):
            raise InputError(f"{name}: needs something to vary; add --vary NAME=VALUES")
    if not (values or options.prices or options.demand):
        raise InputError("what-if: say what to vary, as --vary rate=0.8:1.4:0.05, or add --prices or --demand")
    if options.budget is not None and not values:
        raise InputError(f"--budget {options.budget:g}: needs something to vary; add --vary NAME=VALUES")
    for name in options.breakpoints:
        check_range(name, values.get(name, []))


def _rows(
    instance: Instance, points: Sequence[dict[str, float | str]], settings: Settings, table: Table | None,
    executor: Executor, progress: Callable[[int, int | None], None], solved: Callable[[TableRow], None],
) -> list[TableRow]:
    """The rows of the sweep; if there is a table on disk, finished rows are taken from it and new rows are written to
    it.
    """
    done = table.done if table else {}
    if done:
        print(f"going on: {sum(map(len, done.values()))} of {len(points)} points were done", file=sys.stderr)
    with counting(f"what-if on {instance.name}", len(points)) as advance:
        known = sum(map(len, done.values()))
        advance(known)

        def tell(number: int, rows: list[TableRow]) -> None:
            nonlocal known
            if table:
                table.add(number, rows)
            advance(len(rows))
            known += len(rows)
            progress(known, len(points))

        rows = run(instance, points, settings, done, tell, executor, solved)
    if table:
        table.finish(rows)
    return rows


def _breakpoints(instance: Instance, values: Mapping[str, Sequence[Any]], settings: Settings, options: WhatIf,
                 tell: Callable[[int, int | None], None]) -> tuple[dict[str, list[Breakpoint]], list[str]]:
    """The breakpoints by parameter, for the parameters that the options name; and a line for every value at which
    nothing was proven.
    """
    found: dict[str, list[Breakpoint]] = {}
    unproven: list[str] = []
    for name in options.breakpoints:
        with counting(f"breakpoints along {name}", None) as advance:

            def solved(number: int) -> None:
                advance(1)
                tell(number, None)

            try:
                found[name] = breakpoints(instance, name, values.get(name, []), settings, solved, unproven.append)
            except InputError as error:  # the rows of the sweep, and other breakpoints, are told all the same
                unproven.append(str(error))
    return found, unproven


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """Results as plain content."""
    changes = {name: [one._asdict() for one in points] for name, points in found["breakpoints"].items()}
    return found | {"breakpoints": changes}


def _told(found: dict[str, Any], options: WhatIf) -> Iterator[str | Rows]:
    yield from found["answers"]
    for part in ("rows", "prices", "safety"):
        if rows := aligned(found.get(part, [])):
            # Committed GPUs are part of the cost but not of the objective; then the cost stands in its place.
            committed = any(row.get("cost_per_hour") and (row["objective"] or 0) < row["cost_per_hour"] for row in rows)
            hidden = HIDDEN | ({"objective", "bound"} if committed else {"cost_per_hour"})
            yield rows_of(rows, [name for name in rows[0] if name not in hidden])
    for one in found.get("rows", []):
        if one["status"] in (NOT_APPLICABLE, FAILED):
            point = ", ".join(f"{name} {one[name]}" for name in one if name not in COLUMNS)
            yield f"{point}: {one['reason']}"
    for what, path in (("table", options.out), ("plot", options.png)):
        if path:
            yield f"{what} written to {path}"
