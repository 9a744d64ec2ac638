"""What verbs share: they read instances and plans, print JSON, and have exit codes."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from provision.draw.progress import progress
from provision.instances.files.instance_file import shipped_instances
from provision.instances.generators.families import generated
from provision.instances.read import read, read_plan
from provision.models.base.errors import InputError
from provision.models.base.plain import finite
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

UNKNOWN = 3
"""The exit code if the time limit was reached without a plan and without a proof that there is none."""


def print_json(content: object) -> None:
    """Print a JSON object on stdout, with null for numbers that are not finite."""
    json.dump(finite(content), sys.stdout, indent=1)
    sys.stdout.write("\n")


def verdict(yes: bool, status: str) -> int:
    """The exit code of an answer: 0 for yes, 1 for no, 3 if the search ended without an answer."""
    return 0 if yes else UNKNOWN if status == "unknown" else 1


def until_stopped(row: Callable[[str], dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of all names; after Ctrl-C, the rows that were finished before it."""
    rows = []
    try:
        for name in names:
            rows.append(row(name))
    except KeyboardInterrupt:
        print(f"stopped: {len(rows)} of {len(names)} done", file=sys.stderr)
    return rows


LARGE_BYTES = 100_000
"""The size in bytes from which on reading a file takes noticeably long."""


def read_instance(name_or_path: str) -> Instance:
    """The instance that ``provision.read`` returns for a name or path. Raises InputError if the instance does not exist
    or cannot be used.
    """
    size = os.path.getsize(name_or_path) if os.path.isfile(name_or_path) else 0
    if size < LARGE_BYTES:
        return read(name_or_path)
    with progress(f"reading {name_or_path} ({size / 1e6:.1f} MB)"):
        return read(name_or_path)


def given_plan(plan_file: str, instance_file: str | None) -> tuple[Plan, Instance | None]:
    """The pair (plan, instance). The instance is the given one; if none is given, the shipped instance if it has not
    changed since the plan was made, otherwise None. Raises InputError if a file cannot be used.
    """
    if instance_file:
        instance = read_instance(instance_file)
        return read_plan(plan_file, instance), instance
    plan = read_plan(plan_file)
    if plan.instance not in shipped_instances() and generated(plan.instance) is None:
        return plan, None
    instance = read(plan.instance)
    return plan, instance if plan.digest in ("", instance.digest) else None


def instance_of(plan_file: str, instance_file: str | None, plan: Plan) -> Instance:
    """The instance in a file; if none is named, the shipped instance for which the plan was made."""
    if instance_file is None and plan.instance not in shipped_instances():
        raise InputError(f"{plan_file}: made for {plan.instance}, which does not ship; name its file before it")
    return read(instance_file or plan.instance)
