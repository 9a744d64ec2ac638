"""``provision explain``: tell why a plan is as it is, what it costs, and what a longer SLO or another GPU would gain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.answers.explain import explain
from provision.commands.common import add_json, print_json, progress, seconds
from provision.commands.reading import add_plan_files, given_plan
from provision.instances.read import read_plan
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_explain(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_plan_files(parser)
    parser.add_argument("--workload", metavar="W", help="tell of this workload alone")
    parser.add_argument("--on", metavar="GPU", help="compare with this GPU type, also one that the fleet lacks")
    parser.add_argument("--before", metavar="PLAN", help="the plan that ran before: tell what changes")
    parser.add_argument("--time-limit", type=seconds, default=20.0, metavar="S", help="seconds (default: 20)")
    parser.add_argument("--markdown", action="store_true", help="as Markdown, such as for a pull request")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    plan, instance = given_plan(options)
    if instance is None:
        raise InputError(f"{options.plan}: made for {plan.instance}, which does not ship; name its file before it")
    before = read_plan(options.before, instance) if options.before else None
    with progress(f"explaining {options.plan}"):
        found = explain(instance, plan, options.workload, options.on, before, options.time_limit)
    if options.json:
        print_json(found.summary())
        return 0
    heading, item = ("### {}\n", "- {}") if options.markdown else ("{}:", "  {}")
    for title, lines in found.sections().items():
        print(heading.format(title))
        for line in lines:
            print(item.format(line))
    return 0
