"""What verbs on GPUs share: the plan's instance, the GPUs that may be used, the command that serves replicas."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from provision.applier.operations import default_state
from provision.applier.target import Commands
from provision.commands.verb import INSTANCE, PLAN, Answering, PlanFiles
from provision.instances.read import read
from provision.models.base.arguments import local, operand
from provision.models.base.fields import Name

STATE = local(str(default_state()), "DIR", "journal, daemons and environments (default: /var/lib/provision; "
              "without root ~/.local/state/provision)")
"""The folder of the applier."""


Gpus = Annotated[tuple[Name, ...], Field(min_length=1)] | None
USABLE = None, "LIST", "indices or UUIDs that may be used (default: all of the types)"


class OnGpus(Answering):
    """Base of verbs that compare a plan with this machine's GPUs."""

    plan: str | None = operand("[INSTANCE] PLAN", PLAN, nargs="+", action=PlanFiles)
    instance: str | None = INSTANCE
    state: str = STATE
    gpus: Gpus = local(*USABLE)
    server: str | None = local(None, "COMMAND",
                               "start servers, which stay in the foreground: 'serve {model} -b {batch}'")


def commands(options: OnGpus) -> Commands:
    """The Commands with which servers of replicas are started."""
    workloads = read(options.instance).workloads if options.instance else ()
    return Commands(options.server, {workload.name: workload.model for workload in workloads})
