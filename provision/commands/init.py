"""``provision init`` and ``import``: write a first instance, from a few questions, from the tables in a folder, or from
files of other tools.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import create_model

from provision.commands.verb import Verb, Writing
from provision.instances.files.files import check_writable, write_text
from provision.instances.importers.doubts import doubts
from provision.instances.importers.importer import IMPORTERS, Source
from provision.instances.read import read, write
from provision.models.base.arguments import FORCE, declare, local, operand, written
from provision.models.base.errors import InputError
from provision.models.base.fields import Flag
from provision.models.base.spelling import did_you_mean
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.catalogue import PerformanceFile
from provision.starting.instance_text import (
    Served,
    instance_text,
    proposed,
    serves,
    shipped_for,
    types_with_data,
)
from provision.starting.tables import MEASURED, Tables, read_tables

INSTANCE = "instance.yaml"
GPU = "l4"
MOST_RPS = 1e9


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
        ask = _proposed if self.yes else _asked
        has_tables = folder.is_dir() and any(folder.glob("*.csv"))
        gpus = _listed(self.gpu or ask("GPU types that you have or would rent", GPU))
        for gpu in gpus:
            gpu_type(gpu)
        tables = read_tables(folder, gpus[0]) if has_tables else None
        for note in tables.notes if tables else ():
            print(note)
        data = _performance(gpus, tables)
        served = _served(self, data, tables, ask)
        files = [f"./{MEASURED}"] if tables and tables.measured else [one.name for one in data]
        text = instance_text(str(path), folder.resolve().name or "first", gpus, data, files, served)
        if tables and tables.measured:
            for line in doubts(tables.measured):
                print(f"warning: {line}", file=sys.stderr)
            write(tables.measured, folder / MEASURED, self.force)
        write_text(path, text, self.force)
        read(path)
        print(f"written to {path}; look at SLOs, rates and prices in there, then: provision solve {path}")
        return 0


def _asked(question: str, proposed: str) -> str:
    """The user's answer to a question; the proposed answer if the user's is empty."""
    print(f"{question} [{proposed}]: ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip() if sys.stdin else ""
    return answer or proposed


def _proposed(question: str, proposed: str) -> str:
    return proposed


def _listed(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _performance(gpus: list[str], tables: Tables | None) -> list[PerformanceFile]:
    """The measurements in the folder; if there are none, the shipped data of the GPU types.

    Raises
    ------
    InputError
        If a GPU type has no data.
    """
    if tables and tables.measured:
        return [tables.measured]
    found = {gpu: shipped_for(gpu) for gpu in gpus}
    for gpu, data in found.items():
        if data is None:
            raise InputError(f"{gpu}: no data ships for it, and no table of measurements is in the folder; put a CSV "
                             f"with columns batch and latency_ms there, or use one of {', '.join(types_with_data())}")
    return [data for data in found.values() if data]


def _served(
    options: Init, data: list[PerformanceFile], tables: Tables | None, ask: Callable[[str, str], str]
) -> list[Served]:
    """The workloads: models with the rates and SLOs that the user gave or that were proposed."""
    of_model = {model: one for one in reversed(data) for model in one.models}
    peaks = dict(zip(tables.demand.workloads, tables.demand.rates_rps.max(axis=0).tolist(), strict=True)) if (
        tables and tables.demand) else {}
    measured = bool(tables and tables.measured)
    fit = [name for name, one in of_model.items() if measured or serves(one, name)]
    first = [name for name in peaks if name in of_model] or fit
    few = ",".join(first if measured or peaks else first[:1])
    names = _listed(options.model or ask(f"models to serve ({', '.join(of_model)})", few))
    for name in names:
        if name not in of_model:
            raise InputError(f"model {name!r}: no data describes it; use one of {', '.join(of_model)}"
                             f"{did_you_mean(name, of_model)}")
    begun = [proposed(of_model[name], name) for name in names]
    return [
        Served(one.model, _number(ask, f"{one.model}: requests per second at the peak",
                                  peaks.get(one.model) or one.rate_rps),
               _number(ask, f"{one.model}: latency SLO in ms", one.slo_ms))
        for one in begun
    ]


def _number(ask: Callable[[str, str], str], question: str, proposed: float) -> float:
    """The positive number that answers a question."""
    answer = ask(question, f"{proposed:g}")
    try:
        value = float(answer)
    except ValueError:
        value = 0.0
    if not 0 < value <= MOST_RPS:
        raise InputError(f"{question}: {answer!r} is no number above 0; begin again")
    return value


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
