"""``provision compare``: several methods on one instance, in one table.

With ``--simulate`` every plan is replayed too, also one that the verifier rejects: a method that follows its paper may
miss SLOs, and the table then says how many the model predicts and how many the replayed requests meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from provision.commands import INTERRUPTED
from provision.commands.common import add_json, print_json, print_table, progress, until_stopped
from provision.instances.read import read
from provision.models.base.errors import UnsupportedError
from provision.models.base.known import known
from provision.simulation.simulate import checked, simulate
from provision.solving.methods import method as find_method
from provision.solving.methods import methods
from provision.solving.solve import solve

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.models.plans.result import Result
    from provision.models.problem.instance import Instance
    from provision.sweeps.table import TableRow

COLUMNS = (
    "method",
    "status",
    "objective",
    "gpus",
    "gpcs",
    "cost_per_hour",
    "bound",
    "gap",
    "violations",
    "build_seconds",
    "solve_seconds",
)
REPLAYED = ("violated_workloads", "late_workloads", "violation_rate")
"""With ``--simulate``: workloads with a predicted violation, workloads (and workflows) whose replayed P99 is over the
SLO, and the part of all replayed requests that are."""
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
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    instance = read(options.instance)
    names = list(methods()) if options.methods == "all" else [name.strip() for name in options.methods.split(",")]
    for name in names:
        find_method(name)
    if options.simulate is not None:
        checked(seconds=options.simulate, seed=options.seed, arrival_cv=options.arrival_cv)
    rows = until_stopped(lambda name: _row(instance, name, options), names)
    columns = COLUMNS if options.simulate is None else (*COLUMNS, *REPLAYED)
    if options.json:
        print_json(rows)
    else:
        print_table(columns, [[_cell(row, column) for column in columns] for row in rows])
        for row in rows:
            if row["reason"]:
                print(f"{row['method']}: {row['reason']}")
    return 0 if len(rows) == len(names) else INTERRUPTED


def _row(instance: Instance, name: str, options: Namespace) -> TableRow:
    try:
        with progress(f"{name} on {instance.name}") as report:
            result = solve(instance, name, options.time_limit, options.seed, report, replay=False)
    except UnsupportedError as error:
        row = dict.fromkeys((*COLUMNS, *REPLAYED))
        return row | {"method": name, "status": "not applicable", "reason": str(error)}
    violations = len(result.report.violations) if result.report else None
    return result.summary() | {"violations": violations} | _replayed(instance, result, options)


def _replayed(instance: Instance, result: Result, options: Namespace) -> TableRow:
    """What the columns of ``--simulate`` say about a plan."""
    if options.simulate is None or result.plan is None:
        return dict.fromkeys(REPLAYED)
    found = simulate(instance, result.plan, options.simulate, options.seed, arrival_cv=options.arrival_cv)
    return dict(zip(REPLAYED, (len(known(result.report).violated), len(found.late), found.violation_rate), strict=True))


def _cell(row: TableRow, column: str) -> Any:
    value = row[column]
    if column in PERCENT and value is not None:
        return f"{value:.1%}"
    return round(value, 3) if isinstance(value, float) else value
