"""What an administrator asks for: status, difference, apply, rollback."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from provision.applier.execute import Executor, Permissions
from provision.applier.journal import APPLIED, RESTORED, UNRESTORED, Journal, Run, locked
from provision.applier.layout import MachineLayout
from provision.applier.match import target_layout
from provision.applier.nvml import Driver
from provision.applier.observe import observe
from provision.applier.services import Services
from provision.applier.steps import Step, steps_between
from provision.applier.target import Commands
from provision.models.base.errors import InputError
from provision.models.base.fields import Record, Text
from provision.models.base.known import known

if TYPE_CHECKING:
    from provision.applier.layout import Observed
    from provision.instances.files.files import FilePath
    from provision.models.plans.plan import Plan

DECLINED = "declined"


class RunOutcome(Record):
    """How a run ended: applied, restored (it failed, or was a rollback), unrestored or declined."""

    outcome: Text
    steps: tuple[Step, ...] = ()
    failure: Text | None = None
    unrestored: tuple[Text, ...] = ()


def default_state() -> Path:
    """The state directory when none is named."""
    if os.geteuid() == 0:
        return Path("/var/lib/provision")
    return Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")) / "provision"


def status(state: FilePath) -> tuple[Observed, Run | None]:
    """What runs, as Observed, and the last Run of this state directory, which is None when there was none."""
    with Driver() as driver:
        return observe(driver, Services(state)), Journal(state).last()


def difference(
    plan: Plan, state: FilePath, gpus: Sequence[str] | None = None, commands: Commands | None = None
) -> tuple[Observed, list[Step]]:
    """The observed state and the steps that turn it into the plan.

    Parameters
    ----------
    plan
        The Plan.
    state
        The state directory.
    gpus
        Indices or UUIDs of the GPUs that may be used; by default all of the plan's types.
    commands
        The Commands that serve replicas; by default none are started.

    Raises
    ------
    InputError
        When the plan does not fit the machine, the driver cannot be asked, or an earlier run has to be finished first.
    """
    commands = commands or Commands()
    with Driver() as driver:
        present = observe(driver, Services(state))
    run = _run(Journal(state), plan, present, gpus, commands)
    return present, steps_between(present, run.target)


def apply(
    plan: Plan, state: FilePath, gpus: Sequence[str] | None = None, commands: Commands | None = None,
    permissions: Permissions | None = None, confirm: Callable[[Observed, Sequence[Step]], bool] | None = None,
    report: Callable[[Step], None] | None = None, wait: bool = False,
) -> RunOutcome:
    """Bring the GPUs to the plan, changing only what differs; on failure put back what was there.

    A run that was cut off is resumed on the same GPUs.

    Parameters
    ----------
    plan, state, gpus, commands
        As for ``difference``.
    permissions
        The Permissions; by default nothing is disturbed.
    confirm
        Called with the observed state and the steps; unless it returns true nothing is done. By default not asked.
    report
        Called with every step before it is done.
    wait
        Whether to wait for another applier instead of refusing.

    Returns
    -------
    RunOutcome

    Raises
    ------
    InputError
        When nothing was done.
    """
    commands = commands or Commands()
    with _session(state, permissions, report, wait) as executor:
        journal, present = executor.journal, executor.observe()
        last, run = journal.last(), _run(journal, plan, present, gpus, commands)
        steps = steps_between(present, run.target)
        if not steps:
            if last and last.unfinished:
                journal.write("end", outcome=APPLIED)
            return RunOutcome(outcome=APPLIED)
        executor.check(steps, present)
        if confirm and not confirm(present, steps):
            return RunOutcome(outcome=DECLINED, steps=steps)
        journal.begin(run)
        try:
            executor.reach(run.target, steps)
        except InputError as error:
            return _put_back(executor, run.former, steps, str(error))
        journal.write("end", outcome=APPLIED)
        return RunOutcome(outcome=APPLIED, steps=steps)


def rollback(
    state: FilePath, permissions: Permissions | None = None,
    confirm: Callable[[Observed, Sequence[Step]], bool] | None = None, report: Callable[[Step], None] | None = None,
    wait: bool = False,
) -> RunOutcome:
    """Go back to the layout that was there before the last apply.

    Parameters, result and errors are those of ``apply``.
    """
    with _session(state, permissions, report, wait) as executor:
        last = executor.journal.last()
        if last is None:
            raise InputError(f"{state}: no run is recorded there, so there is nothing to go back to")
        present = executor.observe()
        _check_there(present, last.former)
        steps = steps_between(present, last.former)
        executor.check(steps, present)
        if steps and confirm and not confirm(present, steps):
            return RunOutcome(outcome=DECLINED, steps=steps)
        if steps or last.unfinished:
            executor.journal.begin(last.model_copy(update={"verb": "rollback", "target": last.former, "outcome": None}))
            return _put_back(executor, last.former, steps, None)
        return RunOutcome(outcome=RESTORED)


@contextmanager
def _session(
    state: FilePath, permissions: Permissions | None, report: Callable[[Step], None] | None, wait: bool
) -> Iterator[Executor]:
    """An Executor that has the lock and the driver."""
    with locked(state, wait), Driver() as driver:
        permissions, report = permissions or Permissions(), report or (lambda step: None)
        yield Executor(driver, Services(state), Journal(state), permissions, report)


def _run(journal: Journal, plan: Plan, present: Observed, gpus: Sequence[str] | None, commands: Commands) -> Run:
    """The run that applies a plan: the one that was cut off, or a new one."""
    asked = [plan.model_dump(mode="json"), sorted(gpus or ()), commands.template, commands.models]
    request = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    last = journal.last()
    if last is None or not last.unfinished:
        target = target_layout(plan, present, commands, gpus)
        former = MachineLayout(gpus=tuple(known(present.gpu(goal.uuid)).layout() for goal in target.gpus))
        return Run(verb="apply", request=request, former=former, target=target)
    if last.verb == "rollback":
        raise InputError(f"{journal.path}: a rollback was not finished; run provision rollback first")
    if last.request != request:
        raise InputError(
            f"{journal.path}: an apply with another plan or other options was not finished; apply that again or run "
            "provision rollback first"
        )
    _check_there(present, last.target)
    return last.model_copy(update={"outcome": None})


def _check_there(present: Observed, layout: MachineLayout) -> None:
    for goal in layout.gpus:
        if present.gpu(goal.uuid) is None:
            raise InputError(f"GPU {goal.uuid} of the recorded run is gone; bring it back or move the journal away")


def _put_back(executor: Executor, former: MachineLayout, steps: Sequence[Step], failure: str | None) -> RunOutcome:
    """Restore a layout and close the journal's run."""
    executor.journal.write("restore", failure=failure)
    problems = executor.restore(former)
    outcome = UNRESTORED if problems else RESTORED
    executor.journal.write("end", outcome=outcome)
    return RunOutcome(outcome=outcome, steps=steps, failure=failure, unrestored=problems)
