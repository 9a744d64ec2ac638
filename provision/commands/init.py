"""``provision init`` and ``import``: write a first instance, or one from files of other tools."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from pydantic import create_model

from provision import gpu_type, read, write
from provision.commands.verb import Verb, Writing
from provision.instances.files.files import check_writable, write_text
from provision.instances.importers.importer import IMPORTERS, Source, doubts
from provision.models.base.arguments import FORCE, declare, local, operand, written
from provision.models.base.fields import Flag
from provision.starting.questions import (
    MEASURED,
    as_proposed,
    asked,
    instance_text,
    listed,
    performance_of,
    read_tables,
    workloads_of,
)

INSTANCE = "instance.yaml"
GPU = "l4"


class Init(Verb):
    folder: str = operand("DIR", "folder to write to (default: this one); tables (*.csv) in there are read: "
                          "measurements have columns batch and latency_ms, rates a column of times and one per "
                          "workload", ".", nargs="?")
    gpu: str | None = local(None, "TYPE,...", "GPU types, with commas between; tables are of the first")
    model: str | None = local(None, "NAME,...", "which of the models to serve (default: those measured)")
    yes: Flag = local(False, None, "ask nothing; what no option says is as proposed")
    force: Flag = FORCE

    def run(self) -> int:
        folder = Path(self.folder)
        path = folder / INSTANCE
        check_writable(path, self.force)
        ask = as_proposed if self.yes else asked
        is_new, has_tables = not folder.exists(), folder.is_dir() and any(folder.glob("*.csv"))
        gpus = listed(self.gpu or ask("GPU types that you have or would rent", GPU))
        for gpu in gpus:
            gpu_type(gpu)
        tables = read_tables(folder, gpus[0]) if has_tables else None
        for note in tables.notes if tables else ():
            print(note)
        data = performance_of(gpus, tables)
        served = workloads_of(self.model, data, tables, ask)
        files = [f"./{MEASURED}"] if tables and tables.measured else [one.name for one in data]
        text = instance_text(str(path), folder.resolve().name or "first", gpus, data, files, served)
        if tables and tables.measured:
            for line in doubts(tables.measured):
                print(f"warning: {line}", file=sys.stderr)
            write(tables.measured, folder / MEASURED, self.force)
        write_text(path, text, self.force)
        read(path)
        if is_new:
            print(f"{folder} is a new folder without tables: shipped profiles, and rates and SLOs as proposed")
        print(f"written to {path}; look at SLOs, rates and prices in there, then: provision solve {path}")
        return 0


class Import(Writing):
    """``provision import``; every format has options of its own."""

    out: str = written("file to write (.json, else YAML)", default=...)
    format: str = ""

    @classmethod
    def of(cls, source: type[Source]) -> Any:
        """The verb with the options of a format."""
        return create_model("Import", __base__=(source, cls))

    @classmethod
    def declare(cls, parser: ArgumentParser) -> None:
        formats = parser.add_subparsers(title="formats", dest="format", metavar="FORMAT", required=True)
        for name, importer in IMPORTERS.items():
            one = formats.add_parser(name, help=importer.summary, description=importer.summary)
            declare(one, cls.of(importer.source))

    @classmethod
    def chosen(cls, options: Namespace) -> type[Verb]:
        made: type[Verb] = cls.of(IMPORTERS[options.format].source)
        return made

    def run(self) -> int:
        assert isinstance(self, Source)
        found = self.read()
        write(found.record, self.out, self.force)
        for note in () if self.as_json else found.notes:
            print(note, file=sys.stderr)
        told = {"told": list(found.told), "notes": list(found.notes)}
        return self.answer({"format": self.format, "file": self.out} | told, [*found.told, *self.files_told])
