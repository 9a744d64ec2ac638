"""What ``provision apply`` and ``provision rollback`` share: options, and the steps to change this machine or a
cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from provision.applier.cluster.roll import ClusterOutcome
from provision.applier.execute import Permissions
from provision.applier.journal import Journal
from provision.applier.outcome import APPLIED, DECLINED, QUARANTINED, RESTORED, UNRESTORED, RunOutcome
from provision.applier.steps import Step
from provision.commands.common import print_json
from provision.commands.gpus.asking import asked_of_cluster, asked_of_machine
from provision.commands.gpus.ending import carried_out, say
from provision.commands.gpus.given import STATE
from provision.commands.verb import Answering
from provision.instances.files.files import FilePath
from provision.models.base.arguments import local
from provision.models.base.fields import Flag

HEADLINES = {
    APPLIED: "applied: the plan stands",
    QUARANTINED: "quarantined: the plan stands but for slices that can neither be finished nor destroyed:",
    RESTORED: "restored: the former layout stands",
    UNRESTORED: "not restored; when what stands in the way is gone, roll back again:",
    DECLINED: "declined: nothing was done",
}


class Changing(Answering):
    """Base of verbs that change GPUs."""

    yes: Flag = local(False, None, "do not ask")
    evict: Flag = local(False, None, "end processes on slices that have to go")
    evict_foreign: Flag = local(False, None, "destroy MIG instances in the way that something else made")
    adopt: bool | None = local(
        None, None, "take over slices of the plan's that something else made or uses, and what a run that was cut off "
        "may have made (--no-adopt: it did not make that)")
    allow_mig_mode_change: Flag = local(False, None, "turn MIG on or off, which may reset the GPU")
    via: Literal["kubernetes"] | None = local(None, None, "on a cluster instead of on this machine's GPUs")
    context: str | None = local(None, "NAME", "with --via: of the kubeconfig (default: the current one)")
    wait: Flag = local(False, None, "wait while another applier is at work")
    state: str = STATE


def change_machine(options: Changing, wanted: str, act: Callable[..., RunOutcome]) -> int:
    """Change this machine's GPUs by calling ``act``; returns the exit code, which is 0 if the outcome is ``wanted``."""
    permissions = Permissions(
        evict=options.evict, evict_foreign=options.evict_foreign,
        allow_mig_mode_change=options.allow_mig_mode_change, adopt=options.adopt,
    )
    return carried_out(
        lambda: act(permissions=permissions, confirm=asked_of_machine(options.yes, options.as_json), report=_report,
                    wait=options.wait),
        wanted,
        lambda outcome: _print_run(outcome, options.as_json),
        lambda: _stopped(options.state),
    )


def change_cluster(options: Changing, wanted: str, act: Callable[..., ClusterOutcome]) -> int:
    """Change a cluster by calling ``act``; returns the exit code, which is 0 if the outcome is ``wanted``."""
    return carried_out(
        lambda: act(confirm=asked_of_cluster(options.yes, options.as_json), report=say),
        wanted,
        lambda outcome: _print_cluster(outcome, options.as_json),
        lambda: "stopped on the way: provision rollback --via kubernetes goes back",
    )


def _report(step: Step) -> None:
    say(f"{step.gpu}: {step.text}" if step.gpu else step.text)


def _stopped(state: FilePath) -> str:
    """A sentence on the state in which an interrupted run leaves the GPUs."""
    last = Journal(state).last()
    return f"stopped on the way: {last.ways_on}" if last and last.unfinished else "stopped: nothing is left half done"


def _print_run(outcome: RunOutcome, as_json: bool) -> None:
    if as_json:
        steps = [{"uuid": step.gpu, "action": step.action, "text": step.text} for step in outcome.steps]
        print_json(outcome.model_dump(mode="json") | {"steps": steps})
        return
    if outcome.failure:
        print(f"failed: {outcome.failure}")
    elif outcome.steps:
        print(f"{len(outcome.steps)} steps")
    print(HEADLINES[outcome.outcome])
    for line in (*outcome.quarantined, *outcome.unrestored):
        print(f"  {line}")
    for line in outcome.notes:
        print(f"note: {line}")


def _print_cluster(outcome: ClusterOutcome, as_json: bool) -> None:
    if as_json:
        print_json(outcome.model_dump(mode="json"))
        return
    if outcome.failure:
        print(f"failed: {outcome.failure}")
    print(HEADLINES[outcome.outcome])
    for line in outcome.unrestored:
        print(f"  {line}")
