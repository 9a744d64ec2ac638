"""Reads instances and plans for verbs; a line on the terminal tells that a large file is being read."""

from __future__ import annotations

import os
from argparse import Action, ArgumentError
from collections.abc import Sequence
from typing import TYPE_CHECKING

from provision.commands.common import progress
from provision.instances.files.shipped import shipped_instances
from provision.instances.generators.families import generated
from provision.instances.read import read, read_plan

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

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


class _PlanFiles(Action):
    """The action of an argument that takes one file, the plan, or two files, the instance and the plan."""

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: str | Sequence[str] | None,
        option_string: str | None = None,
    ) -> None:
        files = list(values or ())
        if len(files) > 2:
            raise ArgumentError(None, f"{' '.join(files)}: give a plan, and before it at most its instance")
        if files:
            namespace.plan = files[-1]
        if len(files) == 2:
            namespace.instance = files[0]


def add_plan_files(parser: ArgumentParser, optional: bool = False) -> None:
    """Declare the arguments ``[INSTANCE] PLAN``, which set ``instance`` and ``plan``. An instance that ships may be
    left out.
    """
    parser.add_argument(
        "plan", nargs="*" if optional else "+", metavar="[INSTANCE] PLAN", action=_PlanFiles, default=None,
        help="the plan, after its instance; a plan of an instance that ships needs none",
    )
    parser.add_argument("--instance", metavar="I", help="the instance, where it does not stand before the plan")


def given_plan(options: Namespace) -> tuple[Plan, Instance | None]:
    """The pair (plan, instance). The instance is the given one; if none is given, the shipped instance if it has not
    changed since the plan was made, otherwise None.

    Raises
    ------
    InputError
        If a file cannot be used.
    """
    if options.instance:
        instance = read_instance(options.instance)
        return read_plan(options.plan, instance), instance
    plan = read_plan(options.plan)
    if plan.instance not in shipped_instances() and generated(plan.instance) is None:
        return plan, None
    instance = read(plan.instance)
    return plan, instance if plan.digest in ("", instance.digest) else None
