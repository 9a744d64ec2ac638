"""Asks the schemas of Kubernetes' custom resources, as their projects publish them, whether objects keep them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml

OPEN = "x-kubernetes-preserve-unknown-fields"


def complaints(crd: Path, found: dict[str, Any]) -> list[str]:
    """What a CustomResourceDefinition in a file says against an object: values that its schema refuses, and fields that
    it does not know, which an API server would drop.
    """
    definition = yaml.safe_load(crd.read_text())
    version = found["apiVersion"].rpartition("/")[2]
    [schema] = [one["schema"]["openAPIV3Schema"] for one in definition["spec"]["versions"] if one["name"] == version]
    assert definition["spec"]["names"]["kind"] == found["kind"]
    wrong = [f"{error.json_path}: {error.message}" for error in jsonschema.Draft7Validator(schema).iter_errors(found)]
    return [*wrong, *_unknown(schema, found, "$")]


def _unknown(schema: dict[str, Any], value: Any, where: str) -> Iterator[str]:
    """Yield the fields of a value that a schema does not list."""
    if isinstance(value, list):
        for at, one in enumerate(value):
            yield from _unknown(schema.get("items", {}), one, f"{where}[{at}]")
    if not isinstance(value, dict) or schema.get(OPEN):
        return
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, one in value.items():
        if where == "$" and name == "metadata":
            continue
        if name in known:
            yield from _unknown(known[name], one, f"{where}.{name}")
        elif isinstance(others, dict):
            yield from _unknown(others, one, f"{where}.{name}")
        elif not others:
            yield f"{where}.{name}: is not known"
