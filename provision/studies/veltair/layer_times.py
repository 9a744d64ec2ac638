"""Reads measured layer times, by shipped name or by path."""

import os
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable

from provision.instances.files.files import FilePath, load, validate
from provision.models.base.errors import InputError
from provision.models.cpu.times import LayerTimes


def read_layer_times(name_or_path: FilePath) -> LayerTimes:
    """Read LayerTimes from the file of this name if it exists, else the shipped layer times of this name. Raises
    InputError if there is neither, or the file cannot be used.
    """
    name = os.fspath(name_or_path)
    if os.path.exists(name):
        return validate(LayerTimes, load(name), name)
    if name not in shipped_layer_times():
        raise InputError(f"{name}: no such file, and no shipped layer times; there are "
                         f"{', '.join(shipped_layer_times())}")
    with as_file(_folder() / f"{name}.yaml") as path:
        return validate(LayerTimes, load(path), path)


def shipped_layer_times() -> list[str]:
    """Names of the shipped layer times, sorted."""
    return sorted(path.name.removesuffix(".yaml") for path in _folder().iterdir())


def _folder() -> Traversable:
    return files("provision.models.cpu") / "data"
