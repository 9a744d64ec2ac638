"""Reads instances from files, with the performance data in other files that they name; GPU types from files; and what
ships.

Paths of recorded arrivals are made absolute.

Recognises the kind of a file by its fields, so that a file of the wrong kind is refused in one line.
"""

import os
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from provision.instances.files.files import FilePath, load, validate
from provision.instances.files.tables import is_table, read_workloads
from provision.models.base.errors import InputError
from provision.models.base.register import did_you_mean
from provision.models.hardware.gpu import GpuType, shipped_types
from provision.models.performance.catalogue import PerformanceFile, shipped_performance
from provision.models.problem.instance import Instance

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


def read_instance_file(path: FilePath) -> Instance:
    """Read the instance in a file. Raises InputError if the file cannot be used."""
    content = load(path)
    refuse_other_kinds(content, "an instance", path)
    if "performance" in content:
        content["performance"] = _with_files(content["performance"], path)
    if is_table(content.get("workloads")):
        content["workloads"] = read_workloads(Path(path).parent / content["workloads"])
    for arrivals in _traces(content):
        arrivals["path"] = str(Path(path).absolute().parent / arrivals["path"])
    return validate(Instance, content, path)


def _traces(content: Any) -> Iterator[dict[str, Any]]:
    """Yield the ``arrivals`` of an instance's policy and workloads that name a file."""
    workloads = content.get("workloads")
    for one in (content.get("policy"), *(workloads if isinstance(workloads, list) else ())):
        arrivals = one.get("arrivals") if isinstance(one, dict) else None
        if isinstance(arrivals, dict) and isinstance(arrivals.get("path"), str):
            yield arrivals


def _with_files(performance: Any, instance: FilePath) -> Any:
    """The field ``performance`` of an instance with paths replaced by the content of the files; names of shipped data
    are
    kept.
    """
    if isinstance(performance, list):
        return [_from_file(one, instance) for one in performance]
    return _from_file(performance, instance)


def _from_file(performance: Any, instance: FilePath) -> Any:
    if not isinstance(performance, str) or performance in shipped_performance():
        return performance
    path = Path(instance).parent / performance
    if not os.path.isfile(path):
        shipped = ", ".join(shipped_performance())
        raise InputError(
            f"{instance}: performance: {performance!r} is neither shipped data ({shipped}) nor a file beside the "
            f"instance ({path}); correct the name{did_you_mean(performance, shipped_performance())}"
        )
    content = load(path)
    refuse_other_kinds(content, "performance data", path)
    return validate(PerformanceFile, content, path)


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Matches names of GPU types that are valid file names."""


def read_gpu_type(path: FilePath) -> GpuType:
    """Read the GPU type in a YAML or JSON file. Raises InputError if the file cannot be used, or its GPU type has the
    name of a shipped one.
    """
    content = load(path)
    refuse_other_kinds(content, "a GPU type", path)
    kind = validate(GpuType, content, path)
    if kind.name in shipped_types():
        raise InputError(f"{path}: name: {kind.name} is a GPU type that ships; give yours another name")
    if not NAME.fullmatch(kind.name):
        raise InputError(f"{path}: name: {kind.name!r} should have letters, digits, dots and hyphens only; rename it")
    return kind


@cache
def shipped_instances() -> tuple[str, ...]:
    """Names of the shipped instances, sorted."""
    return tuple(sorted(path.name.removesuffix(".yaml") for path in (files("provision.instances") / "data").iterdir()))


def shipped(name: str) -> Instance:
    """The shipped instance of this name."""
    with as_file(files("provision.instances") / "data" / f"{name}.yaml") as path:
        return read_instance_file(path)
