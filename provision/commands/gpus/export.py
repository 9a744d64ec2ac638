"""``provision export``: a plan as files for the tools that carry it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.commands.common import add_force, add_json, print_json
from provision.exporters.export import TARGETS, export
from provision.instances.files.shipped import shipped_instances
from provision.instances.read import read, read_plan
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.models.plans.plan import Plan
    from provision.models.problem.instance import Instance


def add_export(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("plan", metavar="PLAN", help="a plan file")
    parser.add_argument("--to", required=True, choices=tuple(TARGETS), metavar="T", help=f"one of {', '.join(TARGETS)}")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write, new or empty")
    parser.add_argument("--instance", metavar="I", help="the plan's instance, when it is not a shipped one")
    parser.add_argument(
        "--gpus-per-node", type=int, default=8, metavar="N", help="GPUs that a machine has (default: 8)"
    )
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    plan = read_plan(options.plan)
    files = export(plan, options.to, options.out, _instance(options, plan), options.force, options.gpus_per_node)
    if options.json:
        print_json({"to": options.to, "folder": options.out, "files": list(files)})
    else:
        print(f"{len(files)} files written to {options.out}; its README.md says what to do with them")
    return 0


def _instance(options: Namespace, plan: Plan) -> Instance:
    """The instance named, or the shipped one that the plan was made for."""
    if options.instance is None and plan.instance not in shipped_instances():
        raise InputError(f"{options.plan}: made for {plan.instance}, which does not ship; add --instance FILE")
    return read(options.instance or plan.instance)
