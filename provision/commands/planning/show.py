"""``provision show``: a plan, drawn."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from provision import draw
from provision.commands.common import add_force
from provision.draw.page import render_page
from provision.draw.terminal import draw_terminal
from provision.instances.files.files import check_writable, write_text
from provision.instances.files.shipped import shipped_instances
from provision.instances.read import read, read_plan
from provision.models.base.errors import InputError
from provision.verification.verify import verify

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.models.plans.plan import Plan
    from provision.models.problem.instance import Instance


def add_show(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("plan", metavar="PLAN", help="a plan file")
    parser.add_argument(
        "--instance", metavar="I", help="its instance, when it is not a shipped one: adds predictions"
    )
    parser.add_argument("--png", metavar="F", help="write a picture (.png or .svg)")
    parser.add_argument("--html", metavar="F", help="write a self-contained page")
    add_force(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    plan = read_plan(options.plan)
    instance = _instance(options, plan)
    _check_outputs(options)
    if options.png:
        draw.picture.draw_picture(plan, options.png, instance, options.force)
        print(f"picture written to {options.png}", file=sys.stderr)
    if options.html:
        report = verify(instance, plan) if instance else None
        write_text(options.html, render_page(plan, instance, report), options.force)
        print(f"page written to {options.html}", file=sys.stderr)
    draw_terminal(plan, instance)
    return 0


def _check_outputs(options: Namespace) -> None:
    if options.png and options.png == options.html:
        raise InputError(f"{options.png}: named by --png and by --html; give each a name of its own")
    for path in filter(None, (options.png, options.html)):
        check_writable(path, options.force)


def _instance(options: Namespace, plan: Plan) -> Instance | None:
    """The instance named, or the shipped one that the plan was made for."""
    if options.instance:
        return read(options.instance)
    if plan.instance not in shipped_instances():
        return None
    instance = read(plan.instance)
    return instance if plan.digest in ("", instance.digest) else None
