"""``provision apply`` and ``rollback``: bring GPUs to a plan, changing only what differs, or back to what was there.

What the run says never ends it: a reader that goes away is not told any more. A signal ends it with an exit code that
is not 0, and a line on what is left.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from provision.applier.cluster import roll
from provision.applier.execute import Permissions
from provision.applier.journal import APPLIED, QUARANTINED, RESTORED, UNRESTORED, Journal
from provision.applier.operations import DECLINED, apply_last, rollback
from provision.applier.verified import apply
from provision.commands import INTERRUPTED, SIGNALLED, told
from provision.commands.common import add_json, print_json
from provision.commands.gpus.given import gpus, instance_of
from provision.commands.gpus.status import add_plan, add_state, print_steps, step_rows
from provision.instances.read import read_plan
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from types import FrameType

    from provision.applier.layout import Observed
    from provision.applier.operations import RunOutcome
    from provision.applier.steps import Step
    from provision.instances.files.files import FilePath

HEADLINES = {
    APPLIED: "applied: the plan stands",
    QUARANTINED: "quarantined: the plan stands but for slices that can neither be finished nor destroyed:",
    RESTORED: "restored: the former layout stands",
    UNRESTORED: "not restored; when what stands in the way is gone, roll back again:",
    DECLINED: "declined: nothing was done",
}
OF_CLUSTERS = ("nodes", "to", "namespace", "gpus_per_node", "within", "context")
SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class _SignalledError(KeyboardInterrupt):
    """A signal asked the run to end; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def add_apply(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_plan(parser, optional=True)
    parser.add_argument(
        "--last", action="store_true", help="without a plan: what the last run led to, as after a reboot"
    )
    _add_common(parser)
    parser.add_argument("--nodes", metavar="LIST", help="with --via: nodes of the cluster, in the order of the plan's")
    parser.add_argument("--to", choices=roll.TARGETS, metavar="T", help=f"with --via: one of {', '.join(roll.TARGETS)}")
    parser.add_argument("--namespace", metavar="N", help="with --via: of objects that name none (default: default)")
    parser.add_argument("--gpus-per-node", type=int, metavar="N", help="with --via: GPUs that a node has (default: 8)")
    parser.add_argument("--within", type=float, metavar="SECONDS", help="with --via: to partition, and to start pods")
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
        "--evict-foreign", action="store_true", help="destroy MIG instances in the way that something else made"
    )
    parser.add_argument(
        "--allow-mig-mode-change", action="store_true", help="turn MIG on or off, which may reset the GPU"
    )
    parser.add_argument("--via", choices=("kubernetes",), help="on a cluster instead of on this machine's GPUs")
    parser.add_argument("--context", metavar="NAME", help="with --via: of the kubeconfig (default: the current one)")
    parser.add_argument("--wait", action="store_true", help="wait while another applier is at work")
    add_json(parser)


def _apply(options: Namespace) -> int:
    if options.via:
        return _apply_to_cluster(options)
    for name in OF_CLUSTERS:
        if getattr(options, name) is not None:
            raise InputError(f"--{name.replace('_', '-')}: is for --via kubernetes; add that or leave it out")
    if options.last:
        if options.plan:
            raise InputError(f"--last: applies what the last run led to, not {options.plan}; leave one of them out")
        return _run(options, APPLIED, apply_last, options.state)
    if options.plan is None:
        raise InputError("apply: no plan; name a plan file, or add --last")
    plan = read_plan(options.plan)
    return _run(
        options, APPLIED, apply, instance_of(options, plan), plan, options.state, gpus(options), options.server
    )


def _apply_to_cluster(options: Namespace) -> int:
    if options.plan is None:
        raise InputError("apply: no plan; name a plan file")
    plan = read_plan(options.plan)
    given = {name: getattr(options, name) for name in ("to", "namespace", "context", "gpus_per_node")}
    given["within_s"] = options.within
    names = [name.strip() for name in (options.nodes or "").split(",") if name.strip()]
    chosen = {name: value for name, value in given.items() if value is not None}
    act = partial(roll.apply, instance_of(options, plan), plan, names, options.state, **chosen)
    return _on_cluster(options, APPLIED, act)


def _on_cluster(options: Namespace, wanted: str, carry_out: Callable[..., roll.ClusterOutcome]) -> int:
    """Carry out a verb on a cluster; exit code 0 when it came to the outcome that is wanted."""

    def ask(steps: Sequence[str]) -> bool:
        _check_asked(options, len(steps))
        print(*steps, sep="\n")
        return _agreed()

    try:
        with _signals():
            outcome = carry_out(confirm=None if options.yes else ask, report=lambda line: _say(line, sys.stderr))
    except KeyboardInterrupt as interrupt:
        _say("stopped on the way: provision rollback --via kubernetes goes back", sys.stderr)
        return SIGNALLED + interrupt.number if isinstance(interrupt, _SignalledError) else INTERRUPTED

    def tell() -> None:
        if options.json:
            print_json(outcome.model_dump(mode="json"))
            return
        if outcome.failure:
            print(f"failed: {outcome.failure}")
        print(HEADLINES[outcome.outcome])
        for line in outcome.unrestored:
            print(f"  {line}")

    told(tell)
    return 0 if outcome.outcome == wanted else 1


def _rollback(options: Namespace) -> int:
    if options.via:
        return _on_cluster(options, RESTORED, partial(roll.rollback, options.state, options.context))
    return _run(options, RESTORED, rollback, options.state)


def _run(options: Namespace, wanted: str, carry_out: Callable[..., RunOutcome], *arguments: Any) -> int:
    """Carry out a verb; exit code 0 when it came to the outcome that is wanted."""
    permissions = Permissions(
        evict=options.evict, evict_foreign=options.evict_foreign, allow_mig_mode_change=options.allow_mig_mode_change
    )
    try:
        with _signals():
            outcome = carry_out(
                *arguments, permissions=permissions, confirm=_confirm(options), report=_report, wait=options.wait
            )
    except KeyboardInterrupt as interrupt:
        _say(_stopped(options.state), sys.stderr)
        return SIGNALLED + interrupt.number if isinstance(interrupt, _SignalledError) else INTERRUPTED
    told(lambda: _print(outcome, options.json))
    return 0 if outcome.outcome == wanted else 1


@contextmanager
def _signals() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP interrupt like Ctrl-C, but for the exit code."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _SignalledError(number)

    try:
        former = {one: signal.signal(one, interrupt) for one in SIGNALS}
    except ValueError:
        # Not in the main thread, where signals do not arrive.
        former = {}
    try:
        yield
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)


def _stopped(state: FilePath) -> str:
    """A sentence on the state in which an interrupted run leaves the GPUs."""
    last = Journal(state).last()
    return f"stopped on the way: {last.ways_on}" if last and last.unfinished else "stopped: nothing is left half done"


def _confirm(options: Namespace) -> Callable[[Observed, Sequence[Step]], bool] | None:
    """The question before anything is done; None when it is not to be asked."""
    if options.yes:
        return None

    def ask(present: Observed, steps: Sequence[Step]) -> bool:
        _check_asked(options, len(steps))
        print_steps(step_rows(present, steps))
        return _agreed()

    return ask


def _check_asked(options: Namespace, steps: int) -> None:
    """Refuse to go on where nobody can be asked."""
    if options.json or not sys.stdin.isatty():
        raise InputError(f"{steps} steps to do, and nobody to ask; look at provision diff and add --yes")


def _agreed() -> bool:
    """Whether whoever is asked says yes."""
    try:
        return input("Do this? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _report(step: Step) -> None:
    _say(f"{step.gpu}: {step.text}" if step.gpu else step.text, sys.stderr)


def _say(line: str, stream: TextIO) -> None:
    """Print a line; when nobody reads it, that ends nothing."""
    with suppress(OSError):
        print(line, file=stream, flush=True)


def _print(outcome: RunOutcome, as_json: bool) -> None:
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
