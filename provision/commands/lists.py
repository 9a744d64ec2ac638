"""``provision instances``, ``methods``, ``gpus`` and ``schema``: list what is available."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import yaml

from provision.answers.lists import gpu_rows, instance_row, method_rows
from provision.commands.common import add_force, add_json, print_json, print_table
from provision.instances.files.gpu_type_file import read_gpu_type
from provision.instances.files.shipped import shipped, shipped_instances
from provision.instances.read import write
from provision.instances.schemas.write import KINDS, schema
from provision.models.hardware.gpu import gpu_type, own_folder

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
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--print", metavar="TYPE", help="print the file of a type, to begin one of your own with")
    one.add_argument("--add", metavar="FILE", help="add the type in a file of yours, for all verbs from then on")
    add_force(parser)
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
    if options.print:
        content = gpu_type(options.print).model_dump(mode="json", exclude_defaults=True)
        yaml.dump(content, sys.stdout, Dumper=yaml.CSafeDumper, sort_keys=False)
        return 0
    if options.add:
        kind = read_gpu_type(options.add)
        path = own_folder() / f"{kind.name}.yaml"
        write(kind, path, options.force)
        print(f"{kind.name} written to {path}")
        return 0
    return _print(options, gpu_rows())


def _schema(options: Namespace) -> int:
    print_json(schema(options.kind))
    return 0


def _print(options: Namespace, rows: Sequence[TableRow], columns: Sequence[str] | None = None) -> int:
    """Print rows, either as JSON with all columns or as a table with the given columns."""
    if options.json:
        print_json(rows)
    else:
        columns = columns or list(rows[0])
        print_table(columns, [[_cell(row[column]) for column in columns] for row in rows], folded=True)
    return 0


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
