"""``provision compare``: several methods on one instance, in one table."""

from provision.commands.common import add_json, print_json, print_table, progress
from provision.instances.read import read
from provision.methods import method as find_method
from provision.methods import methods
from provision.models.errors import UnsupportedError
from provision.solve import solve

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


def add_parsers(verbs):
    """Declare the verb."""
    text = "run several methods on one instance and print one table"
    parser = verbs.add_parser("compare", help=text, description=text)
    parser.add_argument("instance", metavar="INSTANCE", help="a shipped instance or a file")
    parser.add_argument(
        "--methods", default="all", metavar="M,M", help="names with commas between, or all (default)"
    )
    parser.add_argument(
        "--time-limit", type=float, default=60.0, metavar="S", help="seconds per method (default: 60)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options):
    instance = read(options.instance)
    names = list(methods()) if options.methods == "all" else [name.strip() for name in options.methods.split(",")]
    for name in names:
        find_method(name)
    rows = [_row(instance, name, options) for name in names]
    if options.json:
        print_json(rows)
    else:
        print_table(COLUMNS, [[_cell(row, column) for column in COLUMNS] for row in rows])
        for row in rows:
            if row["reason"]:
                print(f"{row['method']}: {row['reason']}")
    return 0


def _row(instance, name, options):
    try:
        with progress(f"{name} on {instance.name}") as report:
            result = solve(instance, name, options.time_limit, options.seed, report)
    except UnsupportedError as error:
        return dict.fromkeys(COLUMNS) | {"method": name, "status": "not applicable", "reason": str(error)}
    violations = len(result.report.violations) if result.report else None
    return result.summary() | {"violations": violations}


def _cell(row, column):
    value = row[column]
    if column == "gap" and value is not None:
        return f"{value:.1%}"
    return round(value, 3) if isinstance(value, float) else value
