"""Imports ParvaGPU's deployment maps, which become plans."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from provision.instances.importers.importer import Imported, Importer
from provision.instances.importers.parvagpu import import_deployment
from provision.instances.read import read


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--instance", required=True, metavar="I")


def _read(options: Namespace) -> Imported:
    return Imported(import_deployment(options.path, read(options.instance)))


IMPORTER = Importer("a deployment map, as a plan", "CSV", _read, _add_arguments)
