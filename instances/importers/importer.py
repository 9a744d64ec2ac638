"""Describes importers: formats of other tools' files, the options of each, and the record that a file becomes."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import NamedTuple

from pydantic import BaseModel

from provision.models.base.register import Register


class Imported(NamedTuple):
    """The result of an import: a record to write, and lines to print on stdout (``told``) and on stderr (``notes``)."""

    record: BaseModel
    told: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _no_arguments(parser: ArgumentParser) -> None:
    """Declare no options; most formats need only the file."""


class Importer(NamedTuple):
    """A format of ``provision import``.

    ``read`` is called with the options of the command line: ``path`` (a list of paths if ``many`` is set), ``out``,
    ``force`` and the options that ``add_arguments`` declares. ``read`` raises an InputError if a file cannot be used.
    ``metavar`` is the name of the path in the help; if it is None, the format takes no path.
    """

    summary: str
    metavar: str | None
    read: Callable[[Namespace], Imported]
    add_arguments: Callable[[ArgumentParser], None] = _no_arguments
    many: bool = False


IMPORTERS: Register[Importer] = Register("provision.importers")
"""The importers by format; other packages add importers as entry points."""
