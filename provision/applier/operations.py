"""The operations of an administrator: status, difference, apply, rollback.

Every operation that changes GPUs takes ``permissions``, ``confirm``, ``report`` and ``wait``. Their meaning is
described at ``provision.applier.verified.apply``.

An operation that changes GPUs begins a run from one layout to another, or resumes the last run if the journal tells
that it was interrupted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from provision.applier.driver.calls import epoch
from provision.applier.driver.nvml import Driver
from provision.applier.execute import Executor, Permissions
from provision.applier.journal import Journal, JournalError, Run
from provision.applier.layout import MachineLayout, Observed
from provision.applier.locks import locked_gpus, locked_state
from provision.applier.match import candidates, fitted, other_sms, target_layout
from provision.applier.observe import observe, standing
from provision.applier.outcome import APPLIED, DECLINED, QUARANTINED, RESTORED, UNRESTORED, RunOutcome, blind
from provision.applier.serving.services import Services
from provision.applier.steps import Step, steps_between
from provision.applier.target import Commands, check_plan
from provision.applier.undo import way_back
from provision.instances.files.files import FilePath
from provision.models.base.errors import InputError
from provision.models.base.objects import known
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


def default_state() -> Path:
    """The state directory that is used when none is given."""
    if os.geteuid() == 0:
        return Path("/var/lib/provision")
    return Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")) / "provision"


def status(state: FilePath) -> tuple[Observed, Run | None]:
    """The observed state, and the last Run of this state directory (None if there was none)."""
    last = Journal(state).last()
    with Driver() as driver:
        return observe(driver, Services(state), last), last


def difference(plan: Plan, state: FilePath, gpus: Sequence[str] | None = None,
               commands: Commands | None = None) -> tuple[Observed, list[Step]]:
    """The observed state and the steps that turn it into the plan.

    Parameters
    ----------
    plan
        The Plan.
    state
        The state directory.
    gpus
        The indices or UUIDs of the GPUs that may be used; by default all GPUs of the plan's types.
    commands
        The Commands that serve replicas; by default no server is started.

    Raises
    ------
    InputError
        If the plan does not fit the machine, if the driver does not answer, or if an earlier run must be finished
        first.
    """
    present, last = status(state)
    run = run_to_plan(Journal(state), last, plan, present, gpus, commands or Commands())
    return present, steps_between(present, fitted(run.target, present))


def apply(plan: Plan, state: FilePath, gpus: Sequence[str] | None = None, commands: Commands | None = None,
          permissions: Permissions | None = None, confirm: Callable[[Observed, Sequence[Step]], bool] | None = None,
          report: Callable[[Step], None] | None = None, wait: bool = False) -> RunOutcome:
    """Put the plan on the GPUs, changing only what differs. On failure, restore the former layout.

    A run that was interrupted is resumed on the same GPUs. The plan is not verified here;
    ``provision.applier.verified.apply`` does that.

    Parameters
    ----------
    plan, state, gpus, commands
        As for ``difference``.

    Raises
    ------
    InputError
        If nothing was done.
    """
    commands = commands or Commands()
    with _session(state, permissions, report, wait) as session:

        def planned(present: Observed, last: Run | None) -> Run:
            return run_to_plan(session.journal, last, plan, present, gpus, commands)

        check_plan(plan)
        last = session.journal.last()
        named = candidates(plan, session.driver.identities(), gpus)
        resumed = [goal.uuid for goal in last.target.gpus] if last and last.unfinished else []
        with locked_gpus([*named, *resumed], state, wait):
            return _carried_out(session, planned, confirm)


def apply_last(state: FilePath, permissions: Permissions | None = None,
               confirm: Callable[[Observed, Sequence[Step]], bool] | None = None,
               report: Callable[[Step], None] | None = None, wait: bool = False) -> RunOutcome:
    """Bring the GPUs to the result of the last run again. A reboot, for example, destroys MIG instances and processes.
    Raises InputError if nothing was done.
    """
    with _session_after_run(state, permissions, report, wait, "apply again") as (session, last):
        applied = last.verb == "apply" and last.outcome in (None, APPLIED, QUARANTINED)
        target = last.target if applied else last.former

        def planned(present: Observed, last: Run | None) -> Run:
            check_gpus_there(present, target)
            if last and last.outcome is None and applied:
                return last
            return new_run("last", present, target)

        with locked_gpus([goal.uuid for goal in target.gpus], state, wait):
            return _carried_out(session, planned, confirm)


def _carried_out(session: Executor, planned: Callable[[Observed, Run | None], Run],
                 confirm: Callable[[Observed, Sequence[Step]], bool] | None) -> RunOutcome:
    """Bring the GPUs, which are locked, to the target of a run. On failure, undo what the run changed."""
    journal, last = session.journal, session.journal.last()
    present = session.observe()
    run = planned(present, last)
    target = fitted(run.target, present)
    steps = steps_between(present, target)
    notes = tuple(other_sms(run.target, present))
    if not steps:
        if last and (last.unfinished or set(standing(last, present)) != set(last.owned)):
            _close(journal, APPLIED if last.unfinished else known(last.outcome), present)
        return RunOutcome(outcome=APPLIED, notes=notes)
    session.check(steps, present)
    if confirm and not confirm(present, steps):
        return RunOutcome(outcome=DECLINED, steps=steps, notes=notes)
    _begin(session, run, last, present, steps)
    try:
        quarantined, present = session.reach(run.target, steps)
        outcome = QUARANTINED if quarantined else APPLIED
        notes += _recorded(journal, outcome, present)
    except InputError as error:
        return _put_back(session, run, steps, str(error))
    notes += tuple(blind(steps))
    return RunOutcome(outcome=outcome, steps=steps, quarantined=tuple(quarantined), notes=notes)


def rollback(state: FilePath, permissions: Permissions | None = None,
             confirm: Callable[[Observed, Sequence[Step]], bool] | None = None,
             report: Callable[[Step], None] | None = None, wait: bool = False) -> RunOutcome:
    """Restore the layout from before the last apply. Raises InputError if nothing was done."""
    with (
        _session_after_run(state, permissions, report, wait, "go back to") as (session, last),
        locked_gpus([goal.uuid for goal in last.former.gpus], state, wait),
    ):
        return _rolled_back(session, last, confirm)


def _rolled_back(session: Executor, last: Run,
                 confirm: Callable[[Observed, Sequence[Step]], bool] | None) -> RunOutcome:
    """Undo what a run changed on its GPUs, which are locked."""
    present = session.observe()
    check_gpus_there(present, last.former)
    back = way_back(present, last, session.permissions.evict_foreign)
    if back.obstacles:
        raise InputError(*back.obstacles)
    steps = steps_between(present, back.layout)
    session.check(steps, present)
    if steps and confirm and not confirm(present, steps):
        return RunOutcome(outcome=DECLINED, steps=steps, notes=back.kept)
    if not steps and not last.unfinished:
        return RunOutcome(outcome=RESTORED, notes=back.kept)
    # What was lost, as at a reboot, is brought back like what the run itself has destroyed.
    standing_now = {made.place for made in standing(last, present)}
    lost = [made.place for made in last.owned if made.place not in standing_now]
    taken = tuple(dict.fromkeys((*last.taken, *lost)))
    run = last.model_copy(update={"verb": "rollback", "target": last.former, "taken": taken})
    _begin(session, run, last, present, steps)
    return _put_back(session, run, steps, None)


@contextmanager
def _session(state: FilePath, permissions: Permissions | None, report: Callable[[Step], None] | None,
             wait: bool) -> Iterator[Executor]:
    """Yield an Executor with a locked state directory and a session with the driver."""
    with locked_state(state, wait), Driver() as driver:
        permissions, report = permissions or Permissions(), report or (lambda step: None)
        yield Executor(driver, Services(state), Journal(state), permissions, report)


@contextmanager
def _session_after_run(state: FilePath, permissions: Permissions | None, report: Callable[[Step], None] | None,
                       wait: bool, verb: str) -> Iterator[tuple[Executor, Run]]:
    """Yield a session and the last run of the state directory.

    If there was no run, raise InputError; ``verb`` says in its message what was to be done.
    """
    with _session(state, permissions, report, wait) as session:
        last = session.journal.last()
        if last is None:
            raise InputError(f"{state}: no run is recorded there, so there is nothing to {verb}")
        yield session, last


def _begin(session: Executor, run: Run, last: Run | None, present: Observed, steps: Sequence[Step]) -> None:
    """Announce a run in the journal."""
    now = epoch()
    answered = session.permissions.adopt is not None
    unsure = last.unsure if last and last.epoch == now and not answered else ()
    update = {"outcome": None, "epoch": now, "owned": standing(last, present), "unsure": unsure}
    session.journal.begin(run.model_copy(update=update), len(steps))


def _put_back(session: Executor, run: Run, steps: Sequence[Step], failure: str | None) -> RunOutcome:
    """Undo what a run changed, and record its end in the journal. This goes on although the journal cannot be written.
    """
    session.journal.going_back = True
    session.journal.write("restore", failure=failure)
    back = session.restore(run)
    problems, notes = back.problems, back.kept
    try:
        notes += _recorded(session.journal, UNRESTORED if problems else RESTORED, back.present)
    except JournalError as error:
        if failure:
            notes += (str(error),)
        else:
            # A rollback ends well only if the next run knows that it did.
            problems = [*problems, str(error)]
    outcome = UNRESTORED if problems else RESTORED
    notes += tuple(blind(steps))
    return RunOutcome(outcome=outcome, steps=steps, failure=failure, unrestored=tuple(problems), notes=notes)


def _recorded(journal: Journal, outcome: str, present: Observed | None) -> tuple[str, ...]:
    """Record the end of the last run. Returns a note if that could be written only beside the journal. Raises
    JournalError if it could be written nowhere.
    """
    journal.going_back = True
    _close(journal, outcome, present)
    if not journal.lost:
        return ()
    path = journal.saved()
    if path is None:
        raise JournalError(f"{journal.path}: cannot be written, and lacks the end of this run; free space, apply again")
    return (f"{journal.path}: cannot be written; the end of this run is in {path}, and the next run puts it back",)


def _close(journal: Journal, outcome: str, present: Observed | None) -> None:
    """Record the end of the last run with its outcome and its instances that exist now.

    What a run took over that is undone goes back to who made it. If ``present`` is None, the instances are not known,
    and those in the journal are kept.
    """
    last = known(journal.last())
    owned = last.owned if present is None else standing(last, present)
    if outcome == RESTORED:
        owned = tuple(made for made in owned if made.place not in last.adopted)
    journal.end(outcome, owned)
