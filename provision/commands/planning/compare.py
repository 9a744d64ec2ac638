"""``provision compare``: run several methods on one or more instances, and print one table."""

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field

from provision import InputError, Instance, methods, read_plan
from provision.commands import interrupted
from provision.commands.verb import Given, Seconds, Writing, planned, read_instance, until_stopped
from provision.comparing.compare import COLUMNS, REPLAYED, Comparison, compare
from provision.comparing.table import ComparisonTable, check_table, tightest
from provision.draw.output import Rows, rows_of
from provision.draw.progress import progress, telling
from provision.models.base.arguments import local, operand, option
from provision.models.base.fields import Count, Name, NonNegative, PositiveCount
from provision.models.plans.result import relative_gap
from provision.models.problem.objective import objective_of
from provision.simulation.simulate import checked
from provision.solving.methods import method as find_method
from provision.sweeps.run import NOT_APPLICABLE
from provision.sweeps.table import TableRow, aligned

PERCENT = ("gap", "violation_rate")


class Compare(Writing):
    instances: tuple[str, ...] = operand("INSTANCE", "shipped instances or files", local=True, nargs="+", default=())
    instance: str | None = option(None, None, "the instance of a job", None)
    methods: tuple[Name, ...] = option(("all",), "M,M", "names with commas between, or all", most=50)
    time_limit_s: Seconds = option(60.0, "S", "seconds per method")
    seed: Count = option(0, "N", "for methods that draw numbers")
    seeds: Annotated[PositiveCount, Field(le=1000)] = local(
        1, "N", "runs of each, from --seed on: means and 95 % intervals")
    simulate_s: Seconds | None = option(None, "S", "replay every plan for this many seconds", most=3600)
    arrival_cv: Annotated[NonNegative, Field(le=10)] | None = option(
        None, "C", "variation of replayed inter-arrival times: 1 Poisson, 0 constant (default: as the instance states)")
    plan: tuple[str, ...] = local((), "F", "a plan in a file, of any tool, as a row beside them", action="append")
    out: str | None = local(None, "F", "write means: .csv, .tex (booktabs), or a picture .png or .svg")

    @property
    def names(self) -> list[str]:
        """The names of the methods."""
        return list(methods()) if self.methods == ("all",) else list(self.methods)

    def job(self, given: Given) -> dict[str, Any]:
        comparison = Comparison(self.time_limit_s, self.seed, self.simulate_s, self.arrival_cv)
        rows: list[dict[str, Any]] = []
        for name in self.names:
            row, plan = comparison.row(given.instance, name, given.incumbent)
            rows.append(row | planned(plan, None))
            given.progress(len(rows), len(self.names))
            given.keep({"rows": [*rows], "complete": False})
        return {"rows": rows, "complete": True}

    def run(self) -> int:
        instances = [read_instance(name) for name in self.instances]
        names = self.names
        for name in names:
            find_method(name)
        if self.simulate_s is not None:
            checked(seconds=self.simulate_s, seed=self.seed, arrival_cv=self.arrival_cv)
        if self.out:
            check_table(self.out, self.force)
        if len(instances) > 1 or self.seeds > 1:
            return self._means(instances)
        [instance] = instances
        comparison = Comparison(self.time_limit_s, self.seed, self.simulate_s, self.arrival_cv)
        given = [comparison.given(instance, path, read_plan(path, instance)) for path in self.plan]

        def solved(name: str) -> TableRow:
            with progress(f"{name} on {instance.name}") as report:
                return comparison.row(instance, name, report)[0]

        rows = until_stopped(solved, names)
        unit = objective_of(instance).unit
        best = tightest(unit, [row.get("bound") for row in rows])
        for row in given + rows:
            row["gap"] = relative_gap(row.get("objective"), best) if row.get("verified") else row.get("gap")
        columns = COLUMNS if self.simulate_s is None else (*COLUMNS, *REPLAYED)
        runs = tuple({"instance": instance.name, "seed": self.seed} | row for row in rows)
        table = ComparisonTable(runs, {instance.name: unit}, len(names) - len(rows))
        if not given:
            _check_planned(table)
        self.answer(given + rows, _told(given + rows, columns, best))
        return self._written(table)

    def _means(self, instances: Sequence[Instance]) -> int:
        """Compare on several instances or seeds: print means with confidence intervals; returns the exit code."""
        if self.plan:
            raise InputError("--plan goes with one instance and one seed; leave it out")
        seeds = range(self.seed, self.seed + self.seeds)
        with telling("comparing") as report:
            table = compare(instances, self.names, seeds, self.time_limit_s, self.simulate_s, self.arrival_cv, report)
        _check_planned(table)
        overall = [row | {"instances": f"{row['instances']} of {len(instances)}"} for row in table.overall]
        parts = aligned(table.rows), overall if len(instances) > 1 else []
        remarks = [line for name in table.units for line in _remarks(
            [run for run in table.runs if run["instance"] == name], name, f" on {name}")]
        self.answer({"runs": table.runs, "means": table.rows, "overall": table.overall},
                    [*(rows_of(rows, None, rounded) for rows in parts if rows), *dict.fromkeys(remarks)])
        if table.missing:
            print(f"stopped: {len(table.runs)} of {len(table.runs) + table.missing} done", file=sys.stderr)
        return self._written(table)

    def _written(self, table: ComparisonTable) -> int:
        """Write the means, if there are any and a file is named; returns the exit code."""
        if self.out and table.rows:
            table.write(self.out, self.force)
            print(f"written to {self.out}", file=sys.stderr)
        return interrupted() if table.missing else 0


def _check_planned(table: ComparisonTable) -> None:
    """Raise InputError with all reasons if no method can plan any instance."""
    if table.refused == table.methods and not table.missing:
        several = len(table.units) > 1
        raise InputError(*dict.fromkeys(
            f"{run['instance']}: {run['reason']}" if several else run["reason"] for run in table.runs))


def _told(rows: Sequence[TableRow], columns: Sequence[str], bound: float | None) -> Iterator[str | Rows]:
    """Yield a table of the methods that ran, the bound of their gaps, their remarks, and the methods that cannot."""
    tried = [row for row in rows if row["status"] != NOT_APPLICABLE]
    if tried:
        yield Rows(columns, [[cell(row, column) for column in columns] for row in tried])
    if bound is not None and len(tried) > 1:
        yield f"gap: of every plan to {rounded(bound):g}, the best bound that any of these methods proves"
    yield from _remarks(rows, "this")


def _remarks(rows: Sequence[TableRow], instance: str, where: str = "") -> Iterator[str]:
    """Yield the remarks of the methods on an instance, and one line on the methods that cannot plan it if there are
    several.
    """
    refused = dict.fromkeys(row["method"] for row in rows if row["status"] == NOT_APPLICABLE)
    for row in rows:
        if row["reason"] and (row["method"] not in refused or len(refused) == 1):
            yield f"{row['method']}{where}: {row['reason']}"
    if len(refused) > 1:
        yield (f"{len(refused)} methods cannot plan {instance}: {', '.join(refused)} "
               "(--json says why; provision methods, what each can do)")


def cell(row: TableRow, column: str) -> Any:
    """The short form of a value in a table: a percentage or a rounded number; any other value is unchanged."""
    value = row[column]
    if column in PERCENT and value is not None:
        return f"{value:.1%}"
    return rounded(value)


def rounded(value: Any) -> Any:
    """A value; a float is rounded to three digits behind the point."""
    return round(value, 3) if isinstance(value, float) else value
