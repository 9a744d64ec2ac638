"""The run that an operation begins, or resumes according to the journal: from which layout to which."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from provision.applier.journal import Journal, Run
from provision.applier.layout import MachineLayout, Observed
from provision.applier.match import target_layout
from provision.applier.target import Commands
from provision.models.base.errors import InputError
from provision.models.base.known import known
from provision.models.plans.plan import Plan


def run_to_plan(journal: Journal, last: Run | None, plan: Plan, present: Observed, gpus: Sequence[str] | None,
                commands: Commands) -> Run:
    """The run that applies a plan: the last run if it was interrupted, else a new one. Raises InputError if the plan
    does not fit the machine, or if another interrupted run must be finished first.
    """
    asked = [plan.model_dump(mode="json"), sorted(gpus or ()), commands.template, commands.models]
    request = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    if last is None or not last.unfinished:
        return new_run(request, present, target_layout(plan, present, commands, gpus))
    if last.verb == "rollback":
        raise InputError(f"{journal.path}: a rollback was not finished; run provision rollback first")
    if last.request != request:
        raise InputError(
            f"{journal.path}: an apply with another plan or other options was not finished; apply that again or run "
            "provision rollback first"
        )
    check_gpus_there(present, last.target)
    return last


def new_run(request: str, present: Observed, target: MachineLayout) -> Run:
    """A run from the present state to a layout. ``request`` identifies what was asked for."""
    former = MachineLayout(gpus=tuple(known(present.gpu(goal.uuid)).layout() for goal in target.gpus))
    return Run(verb="apply", request=request, former=former, target=target)


def check_gpus_there(present: Observed, layout: MachineLayout) -> None:
    """Refuse a layout with GPUs that the machine no longer has; raise InputError."""
    for goal in layout.gpus:
        if present.gpu(goal.uuid) is None:
            raise InputError(f"GPU {goal.uuid} of the recorded run is gone; bring it back or move the journal away")
