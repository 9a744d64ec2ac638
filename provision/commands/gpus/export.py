"""``provision export``: write a plan as files for the tools that carry it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.commands.common import add_force, add_json, print_json
from provision.commands.gpus.given import instance_of
from provision.commands.reading import add_plan_files
from provision.exporters.export import TARGETS, export
from provision.instances.read import read_plan

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_export(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_plan_files(parser)
    parser.add_argument("--to", required=True, choices=tuple(TARGETS), metavar="T", help=f"one of {', '.join(TARGETS)}")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write, new or empty")
    parser.add_argument(
        "--gpus-per-node", type=int, default=8, metavar="N", help="GPUs that a machine has (default: 8)"
    )
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    plan = read_plan(options.plan)
    files = export(plan, options.to, options.out, instance_of(options, plan), options.force, options.gpus_per_node)
    if options.json:
        print_json({"to": options.to, "folder": options.out, "files": list(files)})
    else:
        print(f"{len(files)} files written to {options.out}; its README.md says what to do with them")
    return 0
