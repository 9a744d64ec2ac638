"""``provision bench``: the benchmark families, against the ledger of best-known values."""

from pathlib import Path

from provision.commands.common import add_json, print_json, print_table, progress
from provision.instances.families import FAMILIES
from provision.instances.ledger import better, entry, joined, ledger
from provision.instances.read import read, write
from provision.models.errors import InputError, UnsupportedError
from provision.solve import solve

COLUMNS = ("instance", "method", "status", "objective", "bound", "gap", "best_known", "excess", "seconds")


def add_parsers(verbs):
    """Declare the verb."""
    text = "solve the benchmark families and set the answers against the best known; exit 1 when one is worse"
    parser = verbs.add_parser("bench", help=text, description=text)
    parser.add_argument(
        "families", nargs="*", metavar="FAMILY", help=f"any of {', '.join(FAMILIES)} (default: all)"
    )
    parser.add_argument("--method", default="auto", metavar="M", help="one of `provision methods` (default: auto)")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S", help="seconds each (default: 60)")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--ledger", metavar="DIR", help="write entries that know more than the ledger here")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options):
    rows = [_row(name, options) for name in _names(options.families)]
    if options.json:
        print_json(rows)
    else:
        print_table(COLUMNS, [[_cell(row[column]) for column in COLUMNS] for row in rows])
    return 1 if any(row["excess"] and row["excess"] > 0 for row in rows) else 0


def _names(families):
    """The instances of these families."""
    for family in families:
        if family not in FAMILIES:
            raise InputError(f"unknown family {family!r}; use any of {', '.join(FAMILIES)}")
    return [name for family in families or FAMILIES for name in FAMILIES[family]]


def _row(name, options):
    """One instance solved; what it knows more than the ledger is written when asked."""
    instance, known = read(name), ledger().get(name)
    row = dict.fromkeys(COLUMNS) | {"instance": name, "method": options.method}
    if known and known.digest == instance.digest:
        row["best_known"] = known.value
    try:
        with progress(f"{options.method} on {name}") as report:
            result = solve(instance, options.method, options.time_limit, options.seed, report)
    except UnsupportedError:
        return row | {"status": "not applicable"}
    if options.ledger and result.verified and better(entry(result), known):
        write(joined(entry(result), known), Path(options.ledger) / f"{name}.json", force=True)
    seconds = round(result.build_seconds + result.solve_seconds, 2)
    found = {"status": result.status, "objective": result.objective, "bound": result.bound, "gap": result.gap}
    return row | found | {"excess": _excess(result, row["best_known"]), "seconds": seconds}


def _excess(result, best_known):
    """How far above the best known the objective is, as a fraction; None when one of them is missing."""
    if result.objective is None or not best_known:
        return None
    return result.objective / best_known - 1


def _cell(value):
    return round(value, 4) if isinstance(value, float) else value
