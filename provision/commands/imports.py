"""``provision import``: turn public files of other systems into instances, performance data and plans."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from provision.commands.common import add_force, add_json, print_json
from provision.instances.files.files import check_writable
from provision.instances.importers.importer import IMPORTERS
from provision.instances.read import write

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_import(parser: ArgumentParser) -> None:
    """Declare the verb's formats and their arguments."""
    formats = parser.add_subparsers(title="formats", dest="format", metavar="FORMAT", required=True)
    for name, importer in IMPORTERS.items():
        one = formats.add_parser(name, help=importer.summary, description=importer.summary)
        if importer.metavar:
            one.add_argument("path", metavar=importer.metavar, nargs="+" if importer.many else None)
        importer.add_arguments(one)
        one.add_argument("--out", required=True, metavar="F", help="file to write (.json, else YAML)")
        add_force(one)
        add_json(one)
        one.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    check_writable(options.out, options.force)
    found = IMPORTERS[options.format].read(options)
    write(found.record, options.out, options.force)
    if options.json:
        told = {"told": list(found.told), "notes": list(found.notes)}
        print_json({"format": options.format, "file": options.out} | told)
        return 0
    for note in found.notes:
        print(note, file=sys.stderr)
    for line in found.told:
        print(line)
    print(f"written to {options.out}")
    return 0
