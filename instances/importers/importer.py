"""What an importer is: a format of other people's files, its options, and what a file of it becomes."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import NamedTuple

from pydantic import BaseModel

from provision.models.base.register import Register


class Imported(NamedTuple):
    """What a file becomes: a record to write, and lines to say on stdout (``told``) and on stderr (``notes``)."""

    record: BaseModel
    told: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _no_arguments(parser: ArgumentParser) -> None:
    """Most formats need nothing but the file."""


class Importer(NamedTuple):
    """A format of ``provision import``.

    ``read`` gets the options of the command line: ``path`` (a list of paths where ``many``), ``out``, ``force`` and
    what ``add_arguments`` declares. It raises an InputError for a file that cannot be used. ``metavar`` stands for the
    path in the help.
    """

    summary: str
    metavar: str
    read: Callable[[Namespace], Imported]
    add_arguments: Callable[[ArgumentParser], None] = _no_arguments
    many: bool = False


IMPORTERS: Register[Importer] = Register("provision.importers")
"""By format; other packages add theirs as entry points."""
