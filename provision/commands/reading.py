"""Reading instances and plans for verbs: on a terminal a line tells of a large file that it is being read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from provision.commands.common import progress
from provision.instances.files.shipped import shipped_instances
from provision.instances.generators.families import generated
from provision.instances.read import read, read_plan
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.models.plans.plan import Plan
    from provision.models.problem.instance import Instance

LARGE_BYTES = 100_000
"""Files from this size on take long enough to read that one wonders."""


def read_instance(name_or_path: str) -> Instance:
    """The instance that ``provision.read`` finds.

    Raises
    ------
    InputError
        When it does not exist or cannot be used.
    """
    size = os.path.getsize(name_or_path) if os.path.isfile(name_or_path) else 0
    if size < LARGE_BYTES:
        return read(name_or_path)
    with progress(f"reading {name_or_path} ({size / 1e6:.1f} MB)"):
        return read(name_or_path)


def add_plan_files(parser: ArgumentParser) -> None:
    """A plan with its instance before it, which may be left out where it ships."""
    parser.add_argument(
        "files", nargs="+", metavar="[INSTANCE] PLAN",
        help="the plan, after its instance; a plan of an instance that ships needs none",
    )
    parser.add_argument("--instance", metavar="I", help="the instance, in place of the first file")


def given_plan(options: Namespace) -> tuple[Plan, Instance | None]:
    """The plan of ``add_plan_files``, and its instance: the one given, or the one that ships and has not changed since.

    Raises
    ------
    InputError
        When a file cannot be used, or more are given than a plan and its instance.
    """
    *before, path = options.files
    if len(before) + (options.instance is not None) > 1:
        raise InputError(f"{' '.join(options.files)}: give a plan, and before it at most its instance")
    if named := options.instance or next(iter(before), None):
        instance = read_instance(named)
        return read_plan(path, instance), instance
    plan = read_plan(path)
    if plan.instance not in shipped_instances() and generated(plan.instance) is None:
        return plan, None
    instance = read(plan.instance)
    return plan, instance if plan.digest in ("", instance.digest) else None


def plan_of_instance(options: Namespace) -> tuple[Plan, Instance]:
    """The same for verbs that need the instance.

    Raises
    ------
    InputError
        As above, and when nobody names the instance and it does not ship.
    """
    plan, instance = given_plan(options)
    if instance is None:
        path = options.files[-1]
        raise InputError(f"{path}: made for {plan.instance}, which does not ship; name its file before the plan")
    return plan, instance
