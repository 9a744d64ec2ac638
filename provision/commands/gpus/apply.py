"""``provision apply``: bring this machine's GPUs, or a cluster, to a plan, changing only what differs."""

from __future__ import annotations

from functools import partial
from typing import Any

from provision.applier.cluster import roll
from provision.applier.cluster.wanted import TARGETS
from provision.applier.operations import apply_last
from provision.applier.outcome import APPLIED
from provision.applier.target import refuse_stale
from provision.applier.verified import apply
from provision.commands.gpus.changing import Changing, change_cluster, change_machine
from provision.commands.gpus.given import USABLE, Gpus, OnGpus
from provision.commands.reading import instance_of
from provision.commands.verb import PLAN, Given, PlanFiles
from provision.instances.read import read_plan
from provision.models.base.arguments import local, operand, option
from provision.models.base.errors import InputError
from provision.models.base.fields import Flag

OF_CLUSTERS = ("nodes", "to", "namespace", "gpus_per_node", "within", "context")
"""The options that have a meaning only with ``--via``."""


class Apply(OnGpus, Changing):
    """``provision apply``, for a job on the server's own GPUs, if it was started with ``--allow-apply``."""

    plan: str | None = operand("[INSTANCE] PLAN", PLAN, None, nargs="*", action=PlanFiles)
    gpus: Gpus = option(*USABLE, most=64)
    last: Flag = local(False, None, "without a plan: what the last run led to, as after a reboot")
    nodes: str | None = local(None, "LIST", "with --via: nodes of the cluster, in the order of the plan's")
    to: str | None = local(None, "T", f"with --via: one of {', '.join(TARGETS)}", choices=TARGETS)
    namespace: str | None = local(None, "N", "with --via: of objects that name none (default: default)")
    gpus_per_node: int | None = local(None, "N", "with --via: GPUs that a node has (default: 8)")
    within: float | None = local(None, "SECONDS", "with --via: to partition, and to start pods")
    force: Flag = local(False, None, "apply a plan that was made for another instance or another state of it")

    def job(self, given: Given) -> dict[str, Any]:
        """What was done."""
        gpus = None if self.gpus is None else list(self.gpus)
        done = apply(given.instance, given.plan, gpus=gpus, report=lambda step: given.progress(1))
        return done.model_dump(mode="json")

    def run(self) -> int:
        """Bring the GPUs to the plan."""
        if self.via:
            return self._apply_to_cluster()
        for name in OF_CLUSTERS:
            if getattr(self, name) is not None:
                raise InputError(f"--{name.replace('_', '-')}: is for --via kubernetes; add that or leave it out")
        if self.last:
            if self.plan:
                raise InputError(f"--last: applies what the last run led to, not {self.plan}; leave one of them out")
            if self.force:
                raise InputError("--force: is for a plan, and --last takes none; leave one of them out")
            return change_machine(self, APPLIED, partial(apply_last, self.state))
        if self.plan is None:
            raise InputError("apply: no plan; name a plan file, or add --last")
        plan = read_plan(self.plan)
        instance = instance_of(self.plan, self.instance, plan)
        gpus = None if self.gpus is None else list(self.gpus)
        act = partial(apply, instance, plan, self.state, gpus, self.server, force=self.force)
        return change_machine(self, APPLIED, act)

    def _apply_to_cluster(self) -> int:
        if self.plan is None:
            raise InputError("apply: no plan; name a plan file")
        plan = read_plan(self.plan)
        given = {name: getattr(self, name) for name in ("to", "namespace", "context", "gpus_per_node")}
        given["within_s"] = self.within
        instance = instance_of(self.plan, self.instance, plan)
        refuse_stale(instance, plan, self.force)
        chosen = {name: value for name, value in given.items() if value is not None}
        names = [name.strip() for name in (self.nodes or "").split(",") if name.strip()]
        act = partial(roll.apply, instance, plan, names, self.state, **chosen)
        return change_cluster(self, APPLIED, act)
