"""Recognises the kind of a file by its fields, so that a file of the wrong kind is refused in one line."""

from typing import Any

from provision.instances.files.files import FilePath
from provision.models.base.errors import InputError

MARKS = {"an instance": {"workloads", "fleet"}, "a plan": {"instance", "gpus"}, "performance data": {"kind", "models"},
         "a GPU type": {"product", "sms"}}
"""For every kind of file the fields by which it is recognised; no other kind has all of them."""


def refuse_other_kinds(content: Any, wanted: str, path: FilePath) -> None:
    """Refuse a file that is recognised as another kind than ``wanted``; a file that is not recognised passes. Raises
    InputError if the content has all fields in MARKS of another kind, but not those of ``wanted``.
    """
    fields = set(content) if isinstance(content, dict) else set()
    for kind, marks in MARKS.items():
        if kind != wanted and marks <= fields and not MARKS[wanted] <= fields:
            raise InputError(f"{path}: is {kind}; give {wanted} here")
