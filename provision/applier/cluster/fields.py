"""Checks that Kubernetes' objects have the fields that are read, by the table ``fields.yaml``."""

from collections.abc import Iterator, Sequence
from fnmatch import filter as fitting
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from provision.models.base.errors import InputError

KINDS = {"": "a text", 0: "a whole number of 0 or more"}


@cache
def _shapes() -> dict[str, Any]:
    """The table, by kind of object."""
    found: dict[str, Any] = yaml.safe_load((files("provision.applier.cluster") / "fields.yaml").read_text())
    return found


def check_objects(objects: Sequence[dict[str, Any]], source: object) -> None:
    """Refuse objects without a field that they have to have, or with a value of another kind. Fields that are null
    count as absent, as in Kubernetes, and are removed.

    Raises
    ------
    InputError
        A line for every such field.
    """
    shapes = _shapes()
    wrong = [f"{source}: {one['kind']} {_name(one['metadata'])}: {found}; read the cluster with kubectl get -o json, "
             "and change nothing"
             for one in objects if one["kind"] in shapes for found in _wrong(one, shapes[one["kind"]], "")]
    if wrong:
        raise InputError(*wrong[:10])


def _name(meta: dict[str, Any]) -> str:
    """The namespace and the name, as far as they are there."""
    return "/".join(str(meta[key]) for key in ("namespace", "name") if key in meta) or "without a name"


def _wrong(value: Any, shape: Any, at: str) -> Iterator[str]:
    """Yield the fields of a value that do not have their shape."""
    if isinstance(shape, dict):
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            yield f"{at}: should be an object (got {value!r:.60})"
            return
        for name in [name for name, inner in value.items() if inner is None]:
            del value[name]
        for name, inner in shape.items():
            if name.endswith("!") and name[:-1] not in value:
                yield f"{at}.{name[:-1]}: is missing".lstrip(".")
            for key in fitting(value, name.rstrip("!")):
                yield from _wrong(value[key], inner, f"{at}.{key}".lstrip("."))
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{at}: should be a list (got {value!r:.60})"
            return
        for number, one in enumerate(value):
            yield from _wrong(one, shape[0], f"{at}[{number}]")
    elif shape is not None and not (isinstance(value, str) if shape == "" else str(value).isdecimal()):
        yield f"{at}: should be {KINDS[shape]} (got {value!r:.60})"
