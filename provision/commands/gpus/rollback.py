"""``provision rollback``: go back to the layout before the last apply, on this machine's GPUs or on a cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from provision.applier.cluster import roll
from provision.applier.operations import rollback
from provision.applier.outcome import RESTORED
from provision.commands.gpus.changing import add_change_options, change_cluster, change_machine
from provision.commands.gpus.status import add_state

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_rollback(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_state(parser)
    add_change_options(parser)
    parser.set_defaults(run=_rollback)


def _rollback(options: Namespace) -> int:
    if options.via:
        return change_cluster(options, RESTORED, partial(roll.rollback, options.state, options.context))
    return change_machine(options, RESTORED, partial(rollback, options.state))
