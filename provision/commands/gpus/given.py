"""Reads arguments of verbs on GPUs: the plan's instance, the GPUs that may be used, the command that serves replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.applier.target import Commands
from provision.instances.files.shipped import shipped_instances
from provision.instances.read import read
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from argparse import Namespace

    from provision.models.plans.plan import Plan
    from provision.models.problem.instance import Instance


def instance_of(options: Namespace, plan: Plan) -> Instance:
    """The instance that the options name; if they name none, the shipped instance for which the plan was made."""
    if options.instance is None and plan.instance not in shipped_instances():
        raise InputError(f"{options.plan}: made for {plan.instance}, which does not ship; name its file before it")
    return read(options.instance or plan.instance)


def gpus(options: Namespace) -> list[str] | None:
    """The indices or UUIDs of the GPUs that may be used; None for all GPUs."""
    if options.gpus is None:
        return None
    names = [name.strip() for name in options.gpus.split(",")]
    if not all(names):
        raise InputError(f"--gpus {options.gpus!r}: names no GPU; give indices or UUIDs with commas between them")
    return names


def commands(options: Namespace) -> Commands:
    """The Commands with which servers of replicas are started."""
    workloads = read(options.instance).workloads if options.instance else ()
    return Commands(options.server, {workload.name: workload.model for workload in workloads})
