"""``provision compare``: run several methods on one or more instances, and print one table.

With ``--simulate`` every plan is replayed, even a plan that the verifier rejects. A method that follows its paper may
miss SLOs; the table then shows how many workloads the model predicts to be late, and how many are late in the replay.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from provision.answers.comparison import COLUMNS, REPLAYED, Comparison
from provision.commands import interrupted
from provision.commands.common import (
    add_force,
    add_json,
    print_json,
    print_table,
    progress,
    seconds,
    telling,
    until_stopped,
)
from provision.commands.reading import read_instance
from provision.comparing.compare import compare
from provision.comparing.table import ComparisonTable, check_table, tightest
from provision.instances.read import read_plan
from provision.models.base.errors import InputError
from provision.models.plans.result import relative_gap
from provision.models.problem.objective import objective_of
from provision.simulation.simulate import checked
from provision.solving.methods import method as find_method
from provision.solving.methods import methods
from provision.sweeps.run import NOT_APPLICABLE
from provision.sweeps.table import aligned

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from provision.models.problem.instance import Instance
    from provision.sweeps.table import TableRow

MOST_SEEDS = 1000
PERCENT = ("gap", "violation_rate")


def add_compare(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("instances", metavar="INSTANCE", nargs="+", help="shipped instances or files")
    parser.add_argument(
        "--methods", default="all", metavar="M,M", help="names with commas between, or all (default)"
    )
    parser.add_argument(
        "--time-limit", type=seconds, default=60.0, metavar="S", help="seconds per method (default: 60)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="runs of each, from --seed on: means and 95 %% intervals"
    )
    parser.add_argument("--simulate", type=seconds, metavar="S", help="replay every plan for this many seconds")
    parser.add_argument(
        "--arrival-cv", type=float, default=1.0, metavar="C",
        help="variation of replayed inter-arrival times: 1 Poisson (default), 0 constant",
    )
    parser.add_argument(
        "--plan", action="append", default=[], metavar="F", help="a plan in a file, of any tool, as a row beside them"
    )
    parser.add_argument("--out", metavar="F", help="write means: .csv, .tex (booktabs), or a picture .png or .svg")
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    instances = [read_instance(name) for name in options.instances]
    names = list(methods()) if options.methods == "all" else [name.strip() for name in options.methods.split(",")]
    for name in names:
        find_method(name)
    if options.simulate is not None:
        checked(seconds=options.simulate, seed=options.seed, arrival_cv=options.arrival_cv)
    if not 1 <= options.seeds <= MOST_SEEDS:
        raise InputError(f"--seeds {options.seeds}: give a number from 1 to {MOST_SEEDS}")
    if options.out:
        check_table(options.out, options.force)
    if len(instances) > 1 or options.seeds > 1:
        return _means(instances, names, options)
    [instance] = instances
    comparison = Comparison(options.time_limit, options.seed, options.simulate, options.arrival_cv)
    given = [comparison.given(instance, path, read_plan(path, instance)) for path in options.plan]
    rows = until_stopped(lambda name: _row(instance, name, comparison), names)
    unit = objective_of(instance).unit
    best = tightest(unit, [row.get("bound") for row in rows])
    for row in given + rows:
        row["gap"] = relative_gap(row.get("objective"), best) if row.get("verified") else row.get("gap")
    if options.json:
        print_json(given + rows)
    else:
        _print(given + rows, COLUMNS if options.simulate is None else (*COLUMNS, *REPLAYED))
    if options.out:
        runs = tuple({"instance": instance.name, "seed": options.seed} | row for row in rows)
        _write(ComparisonTable(runs, {instance.name: unit}), options)
    return 0 if len(rows) == len(names) else interrupted()


def _means(instances: Sequence[Instance], names: Sequence[str], options: Namespace) -> int:
    """Compare on several instances or seeds: print means with confidence intervals; returns the exit code."""
    if options.plan:
        raise InputError("--plan goes with one instance and one seed; leave it out")
    seeds = range(options.seed, options.seed + options.seeds)
    with telling("comparing") as report:
        table = compare(instances, names, seeds, options.time_limit, options.simulate, options.arrival_cv, report)
    if options.json:
        print_json({"runs": table.runs, "means": table.rows, "overall": table.overall})
    else:
        for rows in (aligned(table.rows), table.overall if len(instances) > 1 else []):
            if rows:
                print_table(list(rows[0]), [[rounded(value) for value in row.values()] for row in rows])
        _refused(table.refused)
    if options.out:
        _write(table, options)
    return 0


def _write(table: ComparisonTable, options: Namespace) -> None:
    table.write(options.out, options.force)
    print(f"written to {options.out}", file=sys.stderr)


def _row(instance: Instance, name: str, comparison: Comparison) -> TableRow:
    with progress(f"{name} on {instance.name}") as report:
        return comparison.row(instance, name, report)[0]


def _print(rows: Sequence[TableRow], columns: Sequence[str]) -> None:
    """Print a table of the methods that ran, a line for each row with a remark, and one line on all methods that cannot
    plan the instance.
    """
    tried = [row for row in rows if row["status"] != NOT_APPLICABLE]
    if tried:
        print_table(columns, [[cell(row, column) for column in columns] for row in tried])
    refused = [row for row in rows if row["status"] == NOT_APPLICABLE]
    for row in [*tried, *(refused if len(refused) == 1 else ())]:
        if row["reason"]:
            print(f"{row['method']}: {row['reason']}")
    if len(refused) > 1:
        _refused([row["method"] for row in refused])


def _refused(names: Sequence[str]) -> None:
    """Print one line on all methods that cannot plan the instance."""
    if names:
        print(f"{len(names)} methods cannot plan this: {', '.join(names)} (--json says why; provision methods, "
              "what each can do)")


def cell(row: TableRow, column: str) -> Any:
    """The short form of a value in a table: a percentage or a rounded number."""
    value = row[column]
    if column in PERCENT and value is not None:
        return f"{value:.1%}"
    return rounded(value)


def rounded(value: Any) -> Any:
    """A value; a float is rounded to three digits behind the point."""
    return round(value, 3) if isinstance(value, float) else value
