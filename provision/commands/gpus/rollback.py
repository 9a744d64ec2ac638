"""``provision rollback``: go back to the layout before the last apply, on this machine's GPUs or on a cluster."""

from __future__ import annotations

from functools import partial

from provision.applier.cluster import roll
from provision.applier.operations import rollback
from provision.applier.outcome import RESTORED
from provision.commands.gpus.changing import Changing, change_cluster, change_machine


class Rollback(Changing):
    """``provision rollback``."""

    def run(self) -> int:
        """Go back to the layout before the last apply."""
        if self.via:
            return change_cluster(self, RESTORED, partial(roll.rollback, self.state, self.context))
        return change_machine(self, RESTORED, partial(rollback, self.state))
