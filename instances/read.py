"""Reading instances and plans, by shipped name or by path, and writing them."""

import os
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from provision.instances.files import dump, load, validate, write_text
from provision.models.errors import InputError
from provision.models.instance import Instance
from provision.models.performance import PerformanceFile, shipped_performance
from provision.models.plan import Plan


@cache
def shipped_instances():
    """Names of the shipped instances, sorted."""
    return tuple(sorted(path.name.removesuffix(".yaml") for path in (files(__package__) / "data").iterdir()))


def read(name_or_path):
    """An instance: a file when there is one of this name, else a shipped instance.

    Raises
    ------
    InputError
        When it does not exist or cannot be used.
    """
    name = os.fspath(name_or_path)
    if name in shipped_instances() and not os.path.isfile(name):
        with as_file(files(__package__) / "data" / f"{name}.yaml") as path:
            return _read_file(path)
    if os.path.exists(name):
        return _read_file(name)
    raise InputError(f"{name}: no such file, and no shipped instance; there are {', '.join(shipped_instances())}")


def read_plan(path):
    """A plan from a file.

    Raises
    ------
    InputError
        When it does not exist or cannot be used.
    """
    return validate(Plan, load(path), path)


def write(record, path, force=False):
    """Write an instance or a plan as JSON (``.json``) or YAML, under a temporary name first.

    Raises
    ------
    InputError
        When the file exists and ``force`` is not set, or cannot be written.
    """
    write_text(path, dump(record, path), force)


def _read_file(path):
    content = load(path)
    if "performance" in content:
        content["performance"] = _with_files(content["performance"], path)
    return validate(Instance, content, path)


def _with_files(performance, instance):
    """Performance data with paths replaced by what the files hold; names of shipped data stay."""
    if isinstance(performance, list):
        return [_from_file(one, instance) for one in performance]
    return _from_file(performance, instance)


def _from_file(performance, instance):
    if not isinstance(performance, str) or performance in shipped_performance():
        return performance
    path = Path(instance).parent / performance
    if not os.path.isfile(path):
        shipped = ", ".join(shipped_performance())
        raise InputError(
            f"{instance}: performance: {performance!r} is neither shipped data ({shipped}) nor a file beside the "
            f"instance ({path}); correct the name"
        )
    return validate(PerformanceFile, load(path), path)
