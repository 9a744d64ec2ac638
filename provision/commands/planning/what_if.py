"""``provision what-if``: sweeps, breakpoints, marginal prices, and the price of safety."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from provision import InputError, Instance, draw
from provision.commands import interrupted
from provision.commands.verb import Given, Seconds, Writing, read_instance
from provision.draw.figures import write_figure
from provision.draw.output import Rows, rows_of
from provision.draw.progress import counting
from provision.instances.files.demand import read_demand
from provision.models.base.arguments import local, operand, option, written
from provision.models.base.fields import Count, Flag, Name, NonNegative, Number, PositiveCount, Text
from provision.models.base.objects import known
from provision.models.problem.executor import IN_PROCESS, Executor, executor_of
from provision.models.problem.objective import objective_of
from provision.sweeps import words
from provision.sweeps.breakpoints import Breakpoint, breakpoints, check_range
from provision.sweeps.marginal import marginal_prices
from provision.sweeps.parameters import PARAMETERS, Sweep, made, points_of, read_sweep, values_of
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
    workers: PositiveCount | None = local(None, "N", "processes on this machine (default: 1)")
    dask: str | None = local(None, "ADDRESS", "the scheduler of a Dask cluster, as tcp://host:8786")
    out: str | None = local(None, "F", "write the table here (.csv or .parquet); resumes when interrupted")
    png: str | None = written("draw the sweep here (.png or .svg)", what="picture")

    def _check(self) -> None:
        """Refuse options that cannot be combined."""
        values: Mapping[str, Sequence[Any]] = values_of(sweep) if (sweep := self._sweep()) else {}
        for name, given in (("--out", self.out), ("--png", self.png), ("--breakpoints", self.breakpoints)):
            if given and not values and not (self.demand and given == self.out):
                raise InputError(f"{name}: needs something to vary; add --vary NAME=VALUES")
        if not (values or self.prices or self.demand):
            raise InputError("what-if: say what to vary, as --vary rate=0.8:1.4:0.05, or add --prices or --demand")
        if self.budget is not None and not values:
            raise InputError(f"--budget {self.budget:g}: needs something to vary; add --vary NAME=VALUES")
        for name in self.breakpoints:
            check_range(name, values.get(name, []))

    def job(self, given: Given) -> dict[str, Any]:
        rows: list[TableRow] = []
        unit = {"unit": objective_of(given.instance).unit}

        def solved(row: TableRow) -> None:
            rows.insert(0, row)
            given.keep({"rows": [*rows], "complete": False} | unit)

        return {"rows": []} | _plain(self._found(given.instance, IN_PROCESS, solved, given.progress)) | unit

    def run(self) -> int:
        instance = read_instance(self.instance)
        self._check()
        try:
            with executor_of(self.workers, self.dask) as executor:
                found = self._found(instance, executor)
        except KeyboardInterrupt:
            print(f"stopped: {_kept(self.out)}", file=sys.stderr)
            return interrupted()
        if self.png:
            parts = found["base"], values_of(known(self._sweep())), found["rows"], found["breakpoints"]
            write_figure(draw.sweep.sweep_figure(instance, *parts), self.png, self.force)
        failed = found["unproven"] or any(one["status"] == FAILED for one in found.get("rows", []))
        content = _plain(found) | {"table_file": self.out, "plot_file": self.png}
        return self.answer(content, _told(found, self), 1 if failed else 0)

    def _sweep(self) -> Sweep | None:
        """The Sweep that the flags or a file describe; None if there is neither."""
        if self.sweep and self.vary:
            raise InputError("--sweep and --vary: use one of them")
        if self.sweep:
            return read_sweep(self.sweep)
        return made(self.vary, self.one_at_a_time) if self.vary else None

    def _found(self, instance: Instance, executor: Executor, solved: Callable[[TableRow], None] = untold,
               tell: Callable[[int, int | None], None] = lambda done, total: None) -> dict[str, Any]:
        """All results for which the options ask, by name. Inputs are read and checked before anything is solved.
        ``tell`` hears how many of all points are done, ``solved`` every row.
        """
        sweep, unit = self._sweep(), objective_of(instance).unit
        values: Mapping[str, Sequence[Any]] = values_of(sweep) if sweep else {}
        points = points_of(sweep) if sweep else []
        settings: Settings = {"method": self.method, "time_limit_s": self.time_limit_s, "seed": self.seed}
        table = Table(self.out, digest(instance, points, settings), self.force) if self.out else None
        demand = read_demand(self.demand) if self.demand else None
        changes: dict[str, list[Breakpoint]] = {}
        unproven: list[str] = []
        found: dict[str, Any] = {"instance": instance.name, "digest": instance.digest, **settings, "answers": [],
                                 "breakpoints": changes, "unproven": unproven}
        if self.prices:
            found["prices"] = [price._asdict() for price in marginal_prices(instance, self.prices_of)]
        [found["base"]] = run(instance, [{}], settings)
        if demand:
            found["safety"] = price_of_safety(instance, demand, settings, list(self.quantiles))
            if table and not sweep:
                table.finish(found["safety"])
        if sweep:
            found["rows"] = _rows(instance, points, settings, table, executor, tell, solved)
        for name in self.breakpoints:
            with counting(f"breakpoints along {name}", None) as advance:

                def one_more(number: int, advance: Callable[[int], None] = advance) -> None:
                    advance(1)
                    tell(number, None)

                try:
                    changes[name] = breakpoints(instance, name, values.get(name, []), settings, one_more,
                                                unproven.append)
                except InputError as error:  # the rows of the sweep, and other breakpoints, are told all the same
                    unproven.append(str(error))
        if sweep:
            found["answers"] += words.answers(found["base"], values, found["rows"], changes, unit)
        if sweep and self.budget is not None:
            found["answers"] += words.within(self.budget, list(values), found["rows"], unit)
        found["answers"] += [line for name, several in changes.items()
                             for line in words.changes(name, several, values[name])]
        found["answers"] += unproven
        return found


def _kept(out: str | None) -> str:
    """A sentence on what an interrupted command leaves on disk."""
    if out and Path(f"{out}.part").exists():
        return f"{out}.part keeps what is done; the same command goes on from there"
    if out and Path(out).exists():
        return f"{out} holds the whole table; nothing else is kept"
    return "nothing is kept" if out else "nothing is kept without --out"


def _rows(
    instance: Instance, points: Sequence[dict[str, float | str]], settings: Settings, table: Table | None,
    executor: Executor, progress: Callable[[int, int | None], None], solved: Callable[[TableRow], None],
) -> list[TableRow]:
    """The rows of the sweep; finished ones come from the table on disk, and new ones are written there."""
    done = table.done if table else {}
    so_far = sum(map(len, done.values()))
    if done:
        print(f"going on: {so_far} of {len(points)} points were done", file=sys.stderr)
    with counting(f"what-if on {instance.name}", len(points)) as advance:
        advance(so_far)

        def tell(number: int, rows: list[TableRow]) -> None:
            nonlocal so_far
            if table:
                table.add(number, rows)
            advance(len(rows))
            so_far += len(rows)
            progress(so_far, len(points))

        rows = run(instance, points, settings, done, tell, executor, solved)
    if table:
        table.finish(rows)
    return rows


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
