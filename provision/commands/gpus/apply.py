"""``provision apply``: bring this machine's GPUs, or a cluster, to a plan, changing only what differs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from provision.applier.cluster import roll
from provision.applier.cluster.wanted import TARGETS
from provision.applier.operations import apply_last
from provision.applier.outcome import APPLIED
from provision.applier.target import refuse_stale
from provision.applier.verified import apply
from provision.commands.gpus.changing import add_change_options, change_cluster, change_machine
from provision.commands.gpus.given import gpus, instance_of
from provision.commands.gpus.status import add_plan
from provision.instances.read import read_plan
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

OF_CLUSTERS = ("nodes", "to", "namespace", "gpus_per_node", "within", "context")
"""The options that have a meaning only with ``--via``."""


def add_apply(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_plan(parser, optional=True)
    parser.add_argument(
        "--last", action="store_true", help="without a plan: what the last run led to, as after a reboot"
    )
    add_change_options(parser)
    parser.add_argument("--nodes", metavar="LIST", help="with --via: nodes of the cluster, in the order of the plan's")
    parser.add_argument("--to", choices=TARGETS, metavar="T", help=f"with --via: one of {', '.join(TARGETS)}")
    parser.add_argument("--namespace", metavar="N", help="with --via: of objects that name none (default: default)")
    parser.add_argument("--gpus-per-node", type=int, metavar="N", help="with --via: GPUs that a node has (default: 8)")
    parser.add_argument("--within", type=float, metavar="SECONDS", help="with --via: to partition, and to start pods")
    parser.add_argument(
        "--force", action="store_true", help="apply a plan that was made for another instance or another state of it"
    )
    parser.set_defaults(run=_apply)


def _apply(options: Namespace) -> int:
    if options.via:
        return _apply_to_cluster(options)
    for name in OF_CLUSTERS:
        if getattr(options, name) is not None:
            raise InputError(f"--{name.replace('_', '-')}: is for --via kubernetes; add that or leave it out")
    if options.last:
        if options.plan:
            raise InputError(f"--last: applies what the last run led to, not {options.plan}; leave one of them out")
        if options.force:
            raise InputError("--force: is for a plan, and --last takes none; leave one of them out")
        return change_machine(options, APPLIED, partial(apply_last, options.state))
    if options.plan is None:
        raise InputError("apply: no plan; name a plan file, or add --last")
    plan = read_plan(options.plan)
    instance = instance_of(options, plan)
    act = partial(apply, instance, plan, options.state, gpus(options), options.server, force=options.force)
    return change_machine(options, APPLIED, act)


def _apply_to_cluster(options: Namespace) -> int:
    if options.plan is None:
        raise InputError("apply: no plan; name a plan file")
    plan = read_plan(options.plan)
    given = {name: getattr(options, name) for name in ("to", "namespace", "context", "gpus_per_node")}
    given["within_s"] = options.within
    instance = instance_of(options, plan)
    refuse_stale(instance, plan, options.force)
    chosen = {name: value for name, value in given.items() if value is not None}
    names = [name.strip() for name in (options.nodes or "").split(",") if name.strip()]
    act = partial(roll.apply, instance, plan, names, options.state, **chosen)
    return change_cluster(options, APPLIED, act)
