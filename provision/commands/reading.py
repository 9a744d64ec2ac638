"""Reads instances and plans for verbs; a line on the terminal tells that a large file is being read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from provision.commands.common import progress
from provision.instances.files.shipped import shipped_instances
from provision.instances.generators.families import generated
from provision.instances.read import read, read_plan
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from provision.models.plans.plan import Plan
    from provision.models.problem.instance import Instance

LARGE_BYTES = 100_000
"""The size in bytes from which on reading a file takes noticeably long."""


def read_instance(name_or_path: str) -> Instance:
    """The instance that ``provision.read`` returns for a name or path.

    Raises
    ------
    InputError
        If the instance does not exist or cannot be used.
    """
    size = os.path.getsize(name_or_path) if os.path.isfile(name_or_path) else 0
    if size < LARGE_BYTES:
        return read(name_or_path)
    with progress(f"reading {name_or_path} ({size / 1e6:.1f} MB)"):
        return read(name_or_path)





def given_plan(plan_file: str, instance_file: str | None) -> tuple[Plan, Instance | None]:
    """The pair (plan, instance). The instance is the given one; if none is given, the shipped instance if it has not
    changed since the plan was made, otherwise None.

    Raises
    ------
    InputError
        If a file cannot be used.
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
