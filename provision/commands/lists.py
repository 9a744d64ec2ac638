"""``provision instances``, ``methods``, ``gpus`` and ``schema``: what there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from provision.answers.lists import gpu_rows, instance_row, method_rows
from provision.commands.common import add_json, print_json, print_table
from provision.instances.files.shipped import shipped, shipped_instances
from provision.instances.schemas.write import KINDS, schema

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.sweeps.table import TableRow


def add_instances(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_json(parser)
    parser.set_defaults(run=_instances)


def add_methods(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_json(parser)
    parser.set_defaults(run=_methods)


def add_gpus(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_json(parser)
    parser.set_defaults(run=_gpus)


def add_schema(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("kind", metavar="KIND", choices=tuple(KINDS), help=f"one of {', '.join(KINDS)}")
    parser.set_defaults(run=_schema)


def _instances(options: Namespace) -> int:
    return _print(options, [instance_row(shipped(name)) for name in shipped_instances()])


def _methods(options: Namespace) -> int:
    return _print(options, method_rows(), ("name", "exact", "summary", "features"))


def _gpus(options: Namespace) -> int:
    return _print(options, gpu_rows())


def _schema(options: Namespace) -> int:
    print_json(schema(options.kind))
    return 0


def _print(options: Namespace, rows: Sequence[TableRow], columns: Sequence[str] | None = None) -> int:
    """Rows as JSON with everything, or as a table of some columns."""
    if options.json:
        print_json(rows)
    else:
        columns = columns or list(rows[0])
        print_table(columns, [[_cell(row[column]) for column in columns] for row in rows])
    return 0


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
