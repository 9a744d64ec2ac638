"""``provision bench``: the benchmark families, against the ledger of best-known values."""

from pathlib import Path

from provision.commands.common import add_json, print_json, print_table, progress
from provision.instances.families import FAMILIES
from provision.instances.files import check_writable
from provision.instances.ledger import better, entry, joined, ledger
from provision.instances.read import read, write
from provision.models.errors import InputError, UnsupportedError
from provision.sweeps.run import solved

COLUMNS = ("instance", "method", "status", "objective", "bound", "gap", "best_known", "excess", "seconds")
NOT_APPLICABLE = "not applicable"
ROUNDING = 1e-9
"""Relative excess that counts as none."""


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
    names = _names(options.families)
    if options.ledger:
        check_writable(Path(options.ledger) / "entry.json", force=True)
    rows = [_row(name, options) for name in names]
    if options.json:
        print_json(rows)
    else:
        print_table(COLUMNS, [[_cell(row[column]) for column in COLUMNS] for row in rows])
    return 1 if any(map(_worse, rows)) else 0


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
    settings = {"method": options.method, "time_limit_s": options.time_limit, "seed": options.seed}
    try:
        with progress(f"{options.method} on {name}") as report:
            result = solved(instance, settings, report=report)
    except UnsupportedError:
        return row | {"status": NOT_APPLICABLE}
    if options.ledger and result.verified and better(instance, entry(result), known):
        write(joined(instance, entry(result), known), Path(options.ledger) / f"{name}.json", force=True)
    seconds = round(result.build_seconds + result.solve_seconds, 2)
    found = {"status": result.status, "objective": result.objective, "bound": result.bound, "gap": result.gap}
    return row | found | {"excess": _excess(instance, result, row["best_known"]), "seconds": seconds}


def _worse(row):
    """Whether an answer, or that there is none, is worse than the best known."""
    if row["best_known"] is None or row["status"] == NOT_APPLICABLE:
        return False
    return row["objective"] is None or (row["excess"] or 0) > ROUNDING


def _excess(instance, result, best_known):
    """How much worse than the best known the objective is, as a fraction; None when one of them is missing."""
    if result.objective is None or not best_known:
        return None
    return (instance.loss(result.objective) - instance.loss(best_known)) / best_known


def _cell(value):
    return round(value, 4) if isinstance(value, float) else value
