"""Reads the instances that ship with the package, in ``data/``."""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files

from provision.instances.files.instance_file import read_instance_file
from provision.models.problem.instance import Instance


@cache
def shipped_instances() -> tuple[str, ...]:
    """Names of the shipped instances, sorted."""
    return tuple(sorted(path.name.removesuffix(".yaml") for path in (files("provision.instances") / "data").iterdir()))


def shipped(name: str) -> Instance:
    """The shipped instance of this name."""
    with as_file(files("provision.instances") / "data" / f"{name}.yaml") as path:
        return read_instance_file(path)
