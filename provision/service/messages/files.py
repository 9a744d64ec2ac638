"""Reads an instance that is sent together with the files of performance data that it names."""

from pathlib import PurePath
from typing import Any

from pydantic import Field

from provision import InputError
from provision.instances.files.kinds import MARKS, refuse_other_kinds
from provision.instances.files.parse import parse
from provision.models.base.fields import Record
from provision.models.performance.catalogue import shipped_performance
from provision.service.messages.problems import refused

MOST_FILES = 50


class Files(Record):
    """The texts of files by name: one instance, and performance data."""

    files: dict[str, str] = Field(min_length=1, max_length=MOST_FILES)


def joined(files: dict[str, str]) -> dict[str, Any]:
    """The content of the instance among the files, with the names of performance files replaced by their content.

    Folders in these names are ignored.

    Raises
    ------
    RefusedError
        If a file is not well-formed, there is not exactly one instance, or a file that the instance names is missing.
    """
    try:
        contents = {name: parse(name, text) for name, text in files.items()}
        instances = [name for name, content in contents.items() if MARKS["an instance"] <= set(content)]
        if len(instances) != 1:
            raise InputError(f"{len(instances)} of these files are an instance (with workloads and fleet); send one")
        [name] = instances
        instance = contents.pop(name)
        named = instance.get("performance")
        several = named if isinstance(named, list) else [named]
        instance["performance"] = [_found(one, name, contents) for one in several]
    except InputError as error:
        raise refused(400, str(error)) from None
    return instance


def _found(performance: Any, instance: str, contents: dict[str, dict[str, Any]]) -> Any:
    """The content of performance data that a file name gives; names of shipped data and inline data are returned
    unchanged.
    """
    if not isinstance(performance, str) or performance in shipped_performance():
        return performance
    name = PurePath(performance).name
    if name not in contents:
        there = ", ".join(contents) or "no other file"
        raise InputError(f"{instance}: performance: {performance!r} is neither shipped data nor among the files; "
                         f"there is {there}")
    refuse_other_kinds(contents[name], "performance data", name)
    return contents[name]
