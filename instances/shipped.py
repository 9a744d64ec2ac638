"""The instances that ship with the package, in data/."""

from functools import cache
from importlib.resources import as_file, files

from provision.instances.instance_file import read_instance_file


@cache
def shipped_instances():
    """Names of the shipped instances, sorted."""
    return tuple(sorted(path.name.removesuffix(".yaml") for path in (files(__package__) / "data").iterdir()))


def shipped(name):
    """The shipped instance of this name."""
    with as_file(files(__package__) / "data" / f"{name}.yaml") as path:
        return read_instance_file(path)
