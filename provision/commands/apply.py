"""``provision status``, ``diff`` and ``assert``: tell what runs on this machine, and how it differs from a plan.
``apply`` and ``rollback``: bring GPUs or a cluster to a plan, and back to the layout before; ask first, and end with a
line on what stands, also after a signal.
"""

import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from provision import InputError, Permissions, apply, read, read_plan
from provision.applier.cluster import roll
from provision.applier.cluster.roll import ClusterOutcome
from provision.applier.cluster.wanted import TARGETS
from provision.applier.journal import Journal
from provision.applier.layout import Observed, ObservedGpu
from provision.applier.match import target_layout
from provision.applier.operations import apply_last, default_state, difference, rollback, status
from provision.applier.outcome import APPLIED, DECLINED, QUARANTINED, RESTORED, UNRESTORED, RunOutcome
from provision.applier.steps import Step, steps_between
from provision.applier.target import Commands, refuse_stale
from provision.commands import SIGNALLED, drop_output, told
from provision.commands.verb import INSTANCE, PLAN, Answering, Given, PlanFiles, instance_of, print_json
from provision.draw.output import Rows, print_table
from provision.instances.files.files import reason, validate
from provision.models.base.arguments import local, operand, option
from provision.models.base.clock import end_if_asked
from provision.models.base.fields import Flag, Name, Positive, PositiveCount
from provision.models.base.objects import known
from provision.models.problem.search import SIGNALS, stoppable

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

    @property
    def usable(self) -> list[str] | None:
        """The GPUs that may be used; None for all of the plan's types."""
        return None if self.gpus is None else list(self.gpus)

    def difference(self) -> tuple[Observed, list[Step]]:
        """What runs, and the steps from there to the plan."""
        workloads = read(self.instance).workloads if self.instance else ()
        commands = Commands(self.server, {one.name: one.model for one in workloads})
        return difference(read_plan(known(self.plan)), self.state, self.usable, commands)


def step_rows(present: Observed, steps: Iterable[Step]) -> Iterator[tuple[int | None, str, str]]:
    """Yield a triple per step: (GPU index or None, text, workloads that are below their demand after the step)."""
    for step in steps:
        gpu = known(present.gpu(step.gpu)).index if step.gpu else None
        short = ", ".join(
            f"{one.workload} {one.in_place_rps:g} of {one.demand_rps:g} rps" for one in step.shortfalls
        )
        yield gpu, step.text, short


def steps_table(rows: Iterable[tuple[int | None, str, str]]) -> Rows:
    """Steps as a table."""
    return Rows(("GPU", "step", "then below demand"), [(gpu, text, short or None) for gpu, text, short in rows])


def _rows(gpu: ObservedGpu) -> list[tuple[object, ...]]:
    """The table rows of a GPU: one per slice, or a single row if the GPU has no slices."""
    mode = "on" if gpu.mig else "off" if gpu.mig_capable else None
    if gpu.mig != gpu.mig_pending:
        mode = f"{mode}, {'on' if gpu.mig_pending else 'off'} pending"
    head = (gpu.index, gpu.product, mode)
    return [
        (*head, piece.label, None if piece.enumerator is None else "others" if piece.strange else "provision",
         ", ".join(piece.devices) or None, "trouble" if piece.trouble else "yes" if piece.mps else "no",
         ", ".join(replica.workload for replica in piece.replicas if replica) or None,
         ", ".join(f"{one.pid} {one.name}".strip() for one in piece.clients) or None)
        for piece in gpu.slices
    ] or [(*head, None, None, gpu.uuid, None, None, None)]


class Status(Answering):
    state: str = STATE

    def run(self) -> int:
        present, last = status(self.state)
        table = Rows(("GPU", "product", "MIG", "slice", "made by", "device", "MPS", "replicas", "processes"),
                     [row for gpu in present.gpus for row in _rows(gpu)])
        lines: list[str] = []
        for gpu in present.gpus:
            if gpu.unknown:
                lines.append(f"GPU {gpu.index}: its driver does not tell {', '.join(gpu.unknown)}; they are unknown")
            lines += [f"GPU {gpu.index}, {piece.label}: {piece.trouble}; the next apply that needs it ends it"
                      for piece in gpu.slices if piece.trouble]
        lines += [f"{device} is gone but left files, a daemon or servers behind; the next apply clears them"
                  for device in present.leftovers]
        if last and last.unfinished:
            lines.append(f"the last {last.verb} was not finished: {last.ways_on}")
        run = last.model_dump(mode="json", include={"verb", "outcome"}) if last else None
        return self.answer(present.model_dump(mode="json") | {"last_run": run}, [table, *lines])


class Diff(OnGpus):
    """``provision diff``, for a job against a saved ``provision status --json``."""

    status: dict[Name, Any] | None = option(None, None, "a saved provision status --json", None, remote=dict[Name, Any])

    def job(self, given: Given) -> dict[str, Any]:
        state = {name: value for name, value in known(self.status).items() if name != "last_run"}
        present = validate(Observed, state, "status")
        steps = steps_between(present, target_layout(given.plan, present, Commands()))
        return {"steps": [step.described(present) for step in steps]}

    def run(self) -> int:
        present, steps = self.difference()
        text = [steps_table(step_rows(present, steps))] if steps else "no difference"
        told(lambda: self.answer({"steps": [step.described(present) for step in steps]}, text))
        return 1 if steps else 0


class Assert(OnGpus):
    def run(self) -> int:
        present, steps = self.difference()
        lines = [f"  {'' if gpu is None else f'GPU {gpu}: '}{text}" for gpu, text, _ in step_rows(present, steps)]
        content = {"ok": not steps, "differences": [step.described(present) for step in steps]}
        told(lambda: self.answer(content, [f"differs: {len(steps)} steps away" if steps else "holds", *lines]))
        return 1 if steps else 0


Outcome = TypeVar("Outcome", RunOutcome, ClusterOutcome)
LOOK_S = 0.1
"""The seconds between two looks, while nothing is typed, at whether a signal has come."""


def carried_out(act: Callable[[], Outcome], wanted: str, tell: Callable[[Outcome], None],
                left: Callable[[], str]) -> int:
    """Change the GPUs by calling ``act``, and ``tell`` the outcome; returns the exit code: 0 if the outcome is the
    wanted one, else 1. A signal asks ``act`` to stop before its next step, which raises KeyboardInterrupt; then stderr
    gets the sentence of ``left`` on the state that is left, and the exit code is 128 plus the number of the signal.
    """
    try:
        with stoppable(*SIGNALS, signal.SIGHUP) as stop:
            outcome = act()
    except KeyboardInterrupt:
        say(left())
        return SIGNALLED + (stop.signal or signal.SIGINT)
    try:
        told(lambda: tell(outcome))
    except OSError as error:
        # The exit code tells what happened to the GPUs, also when stdout takes nothing, as on a full disk.
        drop_output()
        say(f"{outcome.outcome}; more cannot be printed: stdout: {reason(error)}")
    return 0 if outcome.outcome == wanted else 1


def say(line: str) -> None:
    """Print a line on stderr; an error of stderr, for example if nobody reads it, is ignored."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


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

    def refuse(self) -> None:
        """Refuse options for clusters where a machine's GPUs are changed, and the other way round."""
        for name in OF_MACHINES if self.via else OF_CLUSTERS:
            if name in self.model_fields_set:
                meant = "this machine's GPUs; leave it or --via out" if self.via else (
                    "--via kubernetes; add that or leave it out")
                raise InputError(f"--{name.replace('_', '-')}: is for {meant}")

    def change_machine(self, wanted: str, act: Callable[..., RunOutcome]) -> int:
        """Change this machine's GPUs by calling ``act``; returns the exit code, 0 if the outcome is ``wanted``."""
        permissions = Permissions(**{name: getattr(self, name) for name in Permissions.model_fields})

        def left() -> str:
            last = Journal(self.state).last()
            unfinished = last and last.unfinished
            return f"stopped on the way: {known(last).ways_on}" if unfinished else "stopped: nothing is left half done"

        return self._change(wanted, partial(act, permissions=permissions, report=_report), left,
                            lambda *planned: print_table(*steps_table(step_rows(*planned))))

    def change_cluster(self, wanted: str, act: Callable[..., ClusterOutcome]) -> int:
        """Change a cluster by calling ``act``; returns the exit code, 0 if the outcome is ``wanted``."""
        begun: list[str] = []

        def report(line: str) -> None:
            begun.append(line)
            say(line)

        return self._change(wanted, partial(act, report=report), lambda: (
            "stopped on the way: provision rollback --via kubernetes goes back" if begun else
            "stopped: nothing was changed"), lambda steps: print(*steps, sep="\n"))

    def _change(self, wanted: str, act: Callable[..., Outcome], left: Callable[[], str], tell: Callable[..., None]
                ) -> int:
        def ask(*planned: Any) -> bool:
            """Whether the user says yes to steps, the last argument; the end of the input counts as no."""
            if self.as_json or not sys.stdin.isatty():
                what = f"{len(planned[-1])} steps to do, and nobody to ask"
                raise InputError(f"{what}; look at provision diff and add --yes")
            tell(*planned)
            print("Do this? [y/N] ", end="", flush=True)
            while not select.select([sys.stdin], [], [], LOOK_S)[0]:
                end_if_asked()
            return sys.stdin.readline().strip().lower() in ("y", "yes")

        return carried_out(lambda: act(confirm=None if self.yes else ask, wait=self.wait), wanted,
                           lambda outcome: _print(outcome, self.as_json), left)


OF_CLUSTERS = ("nodes", "to", "namespace", "gpus_per_node", "within", "context")
"""The options that have a meaning only with ``--via``."""
OF_MACHINES = ("gpus", "server", "last", *Permissions.model_fields)
"""The options that have none with ``--via``."""


def _report(step: Step) -> None:
    say(f"{step.gpu}: {step.text}" if step.gpu else step.text)


def _print(outcome: RunOutcome | ClusterOutcome, as_json: bool) -> None:
    machine = outcome if isinstance(outcome, RunOutcome) else None
    if as_json:
        steps = [{"uuid": step.gpu, "action": step.action, "text": step.text} for step in machine.steps] \
            if machine else outcome.steps
        print_json(outcome.model_dump(mode="json") | {"steps": steps})
        return
    if outcome.failure:
        print(f"failed: {outcome.failure}")
    elif outcome.steps:
        print(f"{len(outcome.steps)} steps")
    print(HEADLINES[outcome.outcome])
    for line in (*(machine.quarantined if machine else ()), *outcome.unrestored):
        print(f"  {line}")
    for line in machine.notes if machine else ():
        print(f"note: {line}")


class Apply(OnGpus, Changing):
    """``provision apply``, for a job on the server's own GPUs, if it was started with ``--allow-apply``."""

    plan: str | None = operand("[INSTANCE] PLAN", PLAN, None, nargs="*", action=PlanFiles)
    gpus: Gpus = option(*USABLE, most=64)
    last: Flag = local(False, None, "without a plan: what the last run led to, as after a reboot")
    nodes: str | None = local(None, "LIST", "with --via: nodes of the cluster, in the order of the plan's")
    to: str | None = local(None, "T", f"with --via: one of {', '.join(TARGETS)}", choices=TARGETS)
    namespace: str | None = local(None, "N", "with --via: of objects that name none (default: default)")
    gpus_per_node: PositiveCount | None = local(None, "N", "with --via: GPUs that a node has (default: 8)")
    within: Positive | None = local(None, "SECONDS", "with --via: to partition, and to start pods")
    force: Flag = local(False, None, "apply a plan that was made for another instance or another state of it")

    def job(self, given: Given) -> dict[str, Any]:
        done = apply(given.instance, given.plan, gpus=self.usable, report=lambda step: given.progress(1))
        return done.model_dump(mode="json")

    def run(self) -> int:
        if self.last and not self.via:
            if self.plan:
                raise InputError(f"--last: applies what the last run led to, not {self.plan}; leave one of them out")
            if self.force:
                raise InputError("--force: is for a plan, and --last takes none; leave one of them out")
            return self.change_machine(APPLIED, partial(apply_last, self.state))
        if self.plan is None:
            raise InputError(f"apply: no plan; name a plan file{'' if self.via else ', or add --last'}")
        plan = read_plan(self.plan)
        instance = instance_of(self.plan, self.instance, plan)
        if not self.via:
            return self.change_machine(APPLIED, partial(
                apply, instance, plan, self.state, self.usable, self.server, force=self.force))
        refuse_stale(instance, plan, self.force)
        given = {name: getattr(self, name) for name in ("to", "namespace", "context", "gpus_per_node")}
        chosen = {name: value for name, value in (given | {"within_s": self.within}).items() if value is not None}
        names = [name.strip() for name in (self.nodes or "").split(",") if name.strip()]
        return self.change_cluster(APPLIED, partial(roll.apply, instance, plan, names, self.state, **chosen))


class Rollback(Changing):
    def run(self) -> int:
        if self.via:
            return self.change_cluster(RESTORED, partial(roll.rollback, self.state, self.context))
        return self.change_machine(RESTORED, partial(rollback, self.state))
