"""``provision import``: turn public files of other systems into instances, performance data and plans."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from provision.commands.common import print_json
from provision.commands.verb import Writing
from provision.instances.files.files import check_writable
from provision.instances.importers.importer import IMPORTERS
from provision.instances.read import write
from provision.models.base.arguments import declare, local


class Import(Writing):
    """``provision import``; every format has options of its own."""

    out: str = local(..., "F", "file to write (.json, else YAML)")
    format: str = ""
    options: Any = None

    @classmethod
    def declare(cls, parser: ArgumentParser) -> None:
        """Declare the formats and their options."""
        formats = parser.add_subparsers(title="formats", dest="format", metavar="FORMAT", required=True)
        for name, importer in IMPORTERS.items():
            one = formats.add_parser(name, help=importer.summary, description=importer.summary)
            if importer.metavar:
                one.add_argument("path", metavar=importer.metavar, nargs="+" if importer.many else None,
                                 help="the files to read" if importer.many else "the file to read")
            importer.add_arguments(one)
            declare(one, cls)

    def run(self) -> int:
        """Write what the files become."""
        check_writable(self.out, self.force)
        options = Namespace(**vars(self.options) | {"out": self.out, "force": self.force})
        found = IMPORTERS[self.format].read(options)
        write(found.record, self.out, self.force)
        if self.as_json:
            told = {"told": list(found.told), "notes": list(found.notes)}
            print_json({"format": self.format, "file": self.out} | told)
            return 0
        for note in found.notes:
            print(note, file=sys.stderr)
        for line in found.told:
            print(line)
        print(f"written to {self.out}")
        return 0
