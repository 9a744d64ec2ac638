"""Which kind of file a content looks like, so that files given in each other's place are told in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from provision.instances.files.files import FilePath

MARKS = {"an instance": {"workloads", "fleet"}, "a plan": {"instance", "gpus"}, "performance data": {"kind", "models"},
         "a GPU type": {"product", "sms"}}
"""Fields that a kind of file has and no other kind has all of."""


def refuse_other_kinds(content: Any, wanted: str, path: FilePath) -> None:
    """Refuse a file of another kind; one without the marks of any kind is left to its checks.

    Raises
    ------
    InputError
        When the content has all marks of another kind than the one that is wanted.
    """
    fields = set(content) if isinstance(content, dict) else set()
    for kind, marks in MARKS.items():
        if kind != wanted and marks <= fields and not MARKS[wanted] <= fields:
            raise InputError(f"{path}: is {kind}; give {wanted} here")
