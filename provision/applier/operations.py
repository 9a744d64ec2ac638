"""What an administrator asks for: status, difference, apply, rollback."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from provision.applier.consumers import blind
from provision.applier.driver.nvml import Driver
from provision.applier.execute import Executor, Permissions
from provision.applier.fitting import fitted, other_sms
from provision.applier.journal import APPLIED, QUARANTINED, RESTORED, UNRESTORED, Journal, Run
from provision.applier.layout import MachineLayout
from provision.applier.locks import locked_gpus, locked_state
from provision.applier.match import candidates, target_layout
from provision.applier.observe import observe, standing
from provision.applier.serving.services import Services
from provision.applier.steps import Step, steps_between
from provision.applier.target import Commands, check_plan
from provision.applier.undo import way_back
from provision.models.base.errors import InputError
from provision.models.base.fields import Record, Text
from provision.models.base.known import known

if TYPE_CHECKING:
    from provision.applier.layout import Observed
    from provision.instances.files.files import FilePath
    from provision.models.plans.plan import Plan

DECLINED = "declined"


class RunOutcome(Record):
    """How a run ended.

    ``outcome`` is applied, quarantined (applied but for the slices that ``quarantined`` tells of), restored (it failed,
    or was a rollback), unrestored or declined. ``notes`` tell what stays of others' and what is to do elsewhere.
    """

    outcome: Text
    steps: tuple[Step, ...] = ()
    failure: Text | None = None
    quarantined: tuple[Text, ...] = ()
    unrestored: tuple[Text, ...] = ()
    notes: tuple[Text, ...] = ()


def default_state() -> Path:
    """The state directory when none is named."""
    if os.geteuid() == 0:
        return Path("/var/lib/provision")
    return Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")) / "provision"


def status(state: FilePath) -> tuple[Observed, Run | None]:
    """What runs, as Observed, and the last Run of this state directory, which is None when there was none."""
    last = Journal(state).last()
    with Driver() as driver:
        return observe(driver, Services(state), last.owned if last else ()), last


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
    present, last = status(state)
    run = _run(Journal(state), last, plan, present, gpus, commands or Commands())
    return present, steps_between(present, fitted(run.target, present))


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
    with _session(state, permissions, report, wait) as session:

        def planned(present: Observed, last: Run | None) -> Run:
            return _run(session.journal, last, plan, present, gpus, commands)

        check_plan(plan)
        last = session.journal.last()
        named = candidates(plan, session.driver.identities(), gpus)
        resumed = [goal.uuid for goal in last.target.gpus] if last and last.unfinished else []
        with locked_gpus([*named, *resumed], state, wait):
            return _carried_out(session, planned, confirm)


def apply_last(
    state: FilePath, permissions: Permissions | None = None,
    confirm: Callable[[Observed, Sequence[Step]], bool] | None = None, report: Callable[[Step], None] | None = None,
    wait: bool = False,
) -> RunOutcome:
    """Bring the GPUs to what the last run led to, as after a reboot, which takes MIG instances and processes away.

    Parameters, result and errors are those of ``apply``.
    """
    with _session(state, permissions, report, wait) as session:
        last = session.journal.last()
        if last is None:
            raise InputError(f"{state}: no run is recorded there, so there is nothing to apply again")
        applied = last.verb == "apply" and last.outcome in (None, APPLIED, QUARANTINED)
        target = last.target if applied else last.former

        def planned(present: Observed, last: Run | None) -> Run:
            _check_there(present, target)
            if last and last.outcome is None and applied:
                return last
            return _new_run("last", present, target)

        with locked_gpus([goal.uuid for goal in target.gpus], state, wait):
            return _carried_out(session, planned, confirm)


def _carried_out(
    session: Executor, planned: Callable[[Observed, Run | None], Run],
    confirm: Callable[[Observed, Sequence[Step]], bool] | None,
) -> RunOutcome:
    """Bring the GPUs, which are locked, to the target of a run; on failure undo what it changed."""
    journal, last = session.journal, session.journal.last()
    present = session.observe()
    run = planned(present, last)
    target = fitted(run.target, present)
    steps = steps_between(present, target)
    notes = tuple(other_sms(run.target, present))
    if not steps:
        if last and last.unfinished:
            journal.write("end", outcome=APPLIED)
        return RunOutcome(outcome=APPLIED, notes=notes)
    session.check(steps, present)
    if confirm and not confirm(present, steps):
        return RunOutcome(outcome=DECLINED, steps=steps, notes=notes)
    journal.begin(run.model_copy(update={"outcome": None, "owned": standing(last, present)}))
    try:
        quarantined = session.reach(run.target, steps)
    except InputError as error:
        return _put_back(session, run, steps, str(error))
    outcome = QUARANTINED if quarantined else APPLIED
    journal.write("end", outcome=outcome)
    notes += tuple(blind(steps))
    return RunOutcome(outcome=outcome, steps=steps, quarantined=tuple(quarantined), notes=notes)


def rollback(
    state: FilePath, permissions: Permissions | None = None,
    confirm: Callable[[Observed, Sequence[Step]], bool] | None = None, report: Callable[[Step], None] | None = None,
    wait: bool = False,
) -> RunOutcome:
    """Go back to the layout that was there before the last apply.

    Parameters, result and errors are those of ``apply``.
    """
    with _session(state, permissions, report, wait) as session:
        last = session.journal.last()
        if last is None:
            raise InputError(f"{state}: no run is recorded there, so there is nothing to go back to")
        with locked_gpus([goal.uuid for goal in last.former.gpus], state, wait):
            return _rolled_back(session, last, confirm)


def _rolled_back(
    session: Executor, last: Run, confirm: Callable[[Observed, Sequence[Step]], bool] | None
) -> RunOutcome:
    """Undo what a run changed on its GPUs, which are locked."""
    present = session.observe()
    _check_there(present, last.former)
    back = way_back(present, last, session.permissions.evict_foreign)
    if back.obstacles:
        raise InputError(*back.obstacles)
    steps = steps_between(present, back.layout)
    session.check(steps, present)
    if steps and confirm and not confirm(present, steps):
        return RunOutcome(outcome=DECLINED, steps=steps, notes=back.kept)
    if not steps and not last.unfinished:
        return RunOutcome(outcome=RESTORED, notes=back.kept)
    run = last.model_copy(
        update={"verb": "rollback", "target": last.former, "outcome": None, "owned": standing(last, present)}
    )
    session.journal.begin(run)
    return _put_back(session, run, steps, None)


@contextmanager
def _session(
    state: FilePath, permissions: Permissions | None, report: Callable[[Step], None] | None, wait: bool
) -> Iterator[Executor]:
    """An Executor that has the state directory and the driver."""
    with locked_state(state, wait), Driver() as driver:
        permissions, report = permissions or Permissions(), report or (lambda step: None)
        yield Executor(driver, Services(state), Journal(state), permissions, report)


def _run(
    journal: Journal, last: Run | None, plan: Plan, present: Observed, gpus: Sequence[str] | None, commands: Commands
) -> Run:
    """The run that applies a plan: the one that was cut off, or a new one."""
    asked = [plan.model_dump(mode="json"), sorted(gpus or ()), commands.template, commands.models]
    request = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    if last is None or not last.unfinished:
        return _new_run(request, present, target_layout(plan, present, commands, gpus))
    if last.verb == "rollback":
        raise InputError(f"{journal.path}: a rollback was not finished; run provision rollback first")
    if last.request != request:
        raise InputError(
            f"{journal.path}: an apply with another plan or other options was not finished; apply that again or run "
            "provision rollback first"
        )
    _check_there(present, last.target)
    return last


def _new_run(request: str, present: Observed, target: MachineLayout) -> Run:
    """A run from what stands to a layout."""
    former = MachineLayout(gpus=tuple(known(present.gpu(goal.uuid)).layout() for goal in target.gpus))
    return Run(verb="apply", request=request, former=former, target=target)


def _check_there(present: Observed, layout: MachineLayout) -> None:
    for goal in layout.gpus:
        if present.gpu(goal.uuid) is None:
            raise InputError(f"GPU {goal.uuid} of the recorded run is gone; bring it back or move the journal away")


def _put_back(session: Executor, run: Run, steps: Sequence[Step], failure: str | None) -> RunOutcome:
    """Undo what a run changed and close it in the journal."""
    session.journal.write("restore", failure=failure)
    problems, kept = session.restore(run)
    outcome = UNRESTORED if problems else RESTORED
    session.journal.write("end", outcome=outcome)
    notes = (*kept, *blind(steps))
    return RunOutcome(outcome=outcome, steps=steps, failure=failure, unrestored=tuple(problems), notes=notes)
