"""Reads a GPU type from a file of the user."""

from __future__ import annotations

import re

from provision.instances.files.files import FilePath, load, validate
from provision.instances.files.kinds import refuse_other_kinds
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import GpuType, shipped_types

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Matches names of GPU types that are valid file names."""


def read_gpu_type(path: FilePath) -> GpuType:
    """Read the GPU type in a YAML or JSON file.

    Raises
    ------
    InputError
        If the file cannot be used, or its GPU type has the name of a shipped one.
    """
    content = load(path)
    refuse_other_kinds(content, "a GPU type", path)
    kind = validate(GpuType, content, path)
    if kind.name in shipped_types():
        raise InputError(f"{path}: name: {kind.name} is a GPU type that ships; give yours another name")
    if not NAME.fullmatch(kind.name):
        raise InputError(f"{path}: name: {kind.name!r} should have letters, digits, dots and hyphens only; rename it")
    return kind
