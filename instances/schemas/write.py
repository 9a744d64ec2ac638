"""Writes the JSON Schemas of the files that users write; they are published beside this module.

``python -m provision.instances.schemas.write`` generates them from the classes.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from provision.models.base.errors import InputError
from provision.models.performance.catalogue import PerformanceFile
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

FOLDER = Path(__file__).parent
KINDS: dict[str, tuple[Any, str]] = {
    "instance": (Instance, "A provisioning problem: fleet, workloads, performance data and policy."),
    "plan": (Plan, "A plan: what stands on every GPU, complete enough to apply."),
    "performance": (PerformanceFile, "How models behave on the slices of one GPU type."),
}


def schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a kind of file: ``instance``, ``plan`` or ``performance``. Raises
    InputError if the kind is another.
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind of file {kind!r}; use one of {', '.join(KINDS)}")
    type_, description = KINDS[kind]
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:provision:{kind}:1",
        "title": f"provision {kind}",
    }
    return head | TypeAdapter(type_).json_schema() | {"title": head["title"], "description": description}


def text(kind: str) -> str:
    """The text of a schema's file."""
    return json.dumps(schema(kind), indent=1) + "\n"


def write_all() -> None:
    """Write every schema into its file."""
    FOLDER.mkdir(exist_ok=True)
    for kind in KINDS:
        (FOLDER / f"{kind}.schema.json").write_text(text(kind), encoding="utf-8")


if __name__ == "__main__":
    write_all()
