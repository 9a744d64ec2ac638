"""``provision apply`` and ``rollback``: bring GPUs to a plan, changing only what differs, or back to what was there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from provision.applier.execute import Permissions
from provision.applier.journal import APPLIED, RESTORED, UNRESTORED, Journal
from provision.applier.operations import DECLINED, apply, rollback
from provision.commands import INTERRUPTED
from provision.commands.common import add_json, print_json
from provision.commands.gpus.status import add_plan, add_state, commands, gpus, print_steps, step_rows
from provision.instances.read import read_plan
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.applier.layout import Observed
    from provision.applier.operations import RunOutcome
    from provision.applier.steps import Step
    from provision.instances.files.files import FilePath

HEADLINES = {
    APPLIED: "applied: the plan stands",
    RESTORED: "restored: the former layout stands",
    UNRESTORED: "not restored; when what stands in the way is gone, roll back again:",
    DECLINED: "declined: nothing was done",
}


def add_apply(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_plan(parser)
    _add_common(parser)
    parser.set_defaults(run=_apply)


def add_rollback(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_state(parser)
    _add_common(parser)
    parser.set_defaults(run=_rollback)


def _add_common(parser: ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--evict", action="store_true", help="end processes on slices that have to go")
    parser.add_argument(
        "--allow-mig-mode-change", action="store_true", help="turn MIG on or off, which may reset the GPU"
    )
    parser.add_argument("--wait", action="store_true", help="wait while another applier is at work")
    add_json(parser)


def _apply(options: Namespace) -> int:
    plan = read_plan(options.plan)
    return _run(options, "apply", apply, plan, options.state, gpus(options), commands(options))


def _rollback(options: Namespace) -> int:
    return _run(options, "rollback", rollback, options.state)


def _run(options: Namespace, verb: str, carry_out: Callable[..., RunOutcome], *arguments: Any) -> int:
    """Carry out a verb; exit code 0 when it got there."""
    permissions = Permissions(evict=options.evict, allow_mig_mode_change=options.allow_mig_mode_change)
    try:
        outcome = carry_out(
            *arguments, permissions=permissions, confirm=_confirm(options), report=_report, wait=options.wait
        )
    except KeyboardInterrupt:
        print(_stopped(options.state), file=sys.stderr)
        return INTERRUPTED
    if options.json:
        steps = [{"uuid": step.gpu, "action": step.action, "text": step.text} for step in outcome.steps]
        print_json(outcome.model_dump(mode="json") | {"steps": steps})
    else:
        _print(outcome)
    return 0 if outcome.outcome == (APPLIED if verb == "apply" else RESTORED) else 1


def _stopped(state: FilePath) -> str:
    """A sentence on the state in which an interrupted run leaves the GPUs."""
    last = Journal(state).last()
    return f"stopped on the way: {last.ways_on}" if last and last.unfinished else "stopped: nothing is left half done"


def _confirm(options: Namespace) -> Callable[[Observed, Sequence[Step]], bool] | None:
    """The question before anything is done; None when it is not to be asked."""
    if options.yes:
        return None

    def ask(present: Observed, steps: Sequence[Step]) -> bool:
        if options.json or not sys.stdin.isatty():
            raise InputError(f"{len(steps)} steps to do, and nobody to ask; look at provision diff and add --yes")
        print_steps(step_rows(present, steps))
        try:
            return input("Do this? [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            return False

    return ask


def _report(step: Step) -> None:
    print(f"{step.gpu}: {step.text}" if step.gpu else step.text, file=sys.stderr)


def _print(outcome: RunOutcome) -> None:
    if outcome.failure:
        print(f"failed: {outcome.failure}")
    elif outcome.steps:
        print(f"{len(outcome.steps)} steps")
    print(HEADLINES[outcome.outcome])
    for line in outcome.unrestored:
        print(f"  {line}")
