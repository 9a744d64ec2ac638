"""Describes importers: formats of other tools' files, the options of each, and the record that a file becomes."""

from typing import NamedTuple

from pydantic import BaseModel

from provision.models.base.fields import Record
from provision.models.base.register import Register


class Imported(NamedTuple):
    """The result of an import: a record to write, and lines to print on stdout (``told``) and on stderr (``notes``)."""

    record: BaseModel
    told: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Source(Record):
    """Base of what formats ask for: each field is an argument of ``provision import``, stated as those of verbs are
    (``models.base.arguments``).
    """

    def read(self) -> Imported:
        """Read the files.

        Raises
        ------
        InputError
            If a file cannot be used.
        """
        raise NotImplementedError


class Importer(NamedTuple):
    """A format of ``provision import``: what it is, and what it asks for."""

    summary: str
    source: type[Source]


IMPORTERS: Register[Importer] = Register("provision.importers")
"""The importers by format; other packages add importers as entry points."""
