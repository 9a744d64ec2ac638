"""``provision compare``: several methods on one instance, in one table.

With ``--simulate`` every plan is replayed too, also one that the verifier rejects: a method that follows its paper may
miss SLOs, and the table then says how many the model predicts and how many the replayed requests meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from provision.answers.comparison import COLUMNS, REPLAYED, Comparison
from provision.commands import INTERRUPTED
from provision.commands.common import add_json, print_json, print_table, progress, until_stopped
from provision.commands.reading import read_instance
from provision.instances.read import read_plan
from provision.simulation.simulate import checked
from provision.solving.methods import method as find_method
from provision.solving.methods import methods
from provision.sweeps.run import NOT_APPLICABLE

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from provision.models.problem.instance import Instance
    from provision.sweeps.table import TableRow

PERCENT = ("gap", "violation_rate")


def add_compare(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("instance", metavar="INSTANCE", help="a shipped instance or a file")
    parser.add_argument(
        "--methods", default="all", metavar="M,M", help="names with commas between, or all (default)"
    )
    parser.add_argument(
        "--time-limit", type=float, default=60.0, metavar="S", help="seconds per method (default: 60)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--simulate", type=float, metavar="S", help="replay every plan for so many seconds of arrivals")
    parser.add_argument(
        "--arrival-cv", type=float, default=1.0, metavar="C",
        help="variation of replayed inter-arrival times: 1 Poisson (default), 0 constant",
    )
    parser.add_argument(
        "--plan", action="append", default=[], metavar="F", help="a plan in a file, of any tool, as a row beside them"
    )
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    instance = read_instance(options.instance)
    names = list(methods()) if options.methods == "all" else [name.strip() for name in options.methods.split(",")]
    for name in names:
        find_method(name)
    if options.simulate is not None:
        checked(seconds=options.simulate, seed=options.seed, arrival_cv=options.arrival_cv)
    comparison = Comparison(options.time_limit, options.seed, options.simulate, options.arrival_cv)
    given = [comparison.given(instance, path, read_plan(path, instance)) for path in options.plan]
    rows = until_stopped(lambda name: _row(instance, name, comparison), names)
    if options.json:
        print_json(given + rows)
    else:
        _print(given + rows, COLUMNS if options.simulate is None else (*COLUMNS, *REPLAYED))
    return 0 if len(rows) == len(names) else INTERRUPTED


def _row(instance: Instance, name: str, comparison: Comparison) -> TableRow:
    with progress(f"{name} on {instance.name}") as report:
        return comparison.row(instance, name, report)[0]


def _print(rows: Sequence[TableRow], columns: Sequence[str]) -> None:
    """A table of those that planned, and a line for each that says why it did not or what is to be known."""
    tried = [row for row in rows if row["status"] != NOT_APPLICABLE]
    if tried:
        print_table(columns, [[cell(row, column) for column in columns] for row in tried])
    for row in rows:
        if row["reason"]:
            print(f"{row['method']}: {row['reason']}")


def cell(row: TableRow, column: str) -> Any:
    """A cell in short: percentages and rounded numbers."""
    value = row[column]
    if column in PERCENT and value is not None:
        return f"{value:.1%}"
    return round(value, 3) if isinstance(value, float) else value
