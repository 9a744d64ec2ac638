"""``provision status``, ``diff`` and ``assert``: tell what runs on this machine's GPUs, and how it differs from a plan.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import Field

from provision.applier.layout import Observed, ObservedGpu
from provision.applier.match import target_layout
from provision.applier.operations import default_state, difference, status
from provision.applier.steps import Step, steps_between
from provision.applier.target import Commands
from provision.commands import told
from provision.commands.verb import INSTANCE, PLAN, Answering, Given, PlanFiles
from provision.draw.output import Rows
from provision.instances.files.files import validate
from provision.instances.read import read, read_plan
from provision.models.base.arguments import local, operand, option
from provision.models.base.fields import Name
from provision.models.base.known import known

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
    if not gpu.slices:
        return [(*head, None, None, gpu.uuid, None, None, None)]
    return [
        (
            *head,
            piece.label,
            None if piece.enumerator is None else "others" if piece.strange else "provision",
            ", ".join(piece.devices) or None,
            "trouble" if piece.trouble else "yes" if piece.mps else "no",
            ", ".join(replica.workload for replica in piece.replicas if replica) or None,
            ", ".join(f"{one.pid} {one.name}".strip() for one in piece.clients) or None,
        )
        for piece in gpu.slices
    ]


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
        present, steps = _difference(self)
        text = [steps_table(step_rows(present, steps))] if steps else "no difference"
        told(lambda: self.answer({"steps": [step.described(present) for step in steps]}, text))
        return 1 if steps else 0


class Assert(OnGpus):
    def run(self) -> int:
        present, steps = _difference(self)
        lines = [f"  {'' if gpu is None else f'GPU {gpu}: '}{text}" for gpu, text, _ in step_rows(present, steps)]
        content = {"ok": not steps, "differences": [step.described(present) for step in steps]}
        told(lambda: self.answer(content, [f"differs: {len(steps)} steps away" if steps else "holds", *lines]))
        return 1 if steps else 0


def _difference(options: OnGpus) -> tuple[Observed, list[Step]]:
    gpus = None if options.gpus is None else list(options.gpus)
    return difference(read_plan(known(options.plan)), options.state, gpus, commands(options))
