"""``provision status``, ``diff`` and ``assert``: tell what runs on this machine's GPUs, and how it differs from a plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from provision.applier.operations import default_state, difference, status
from provision.commands import told
from provision.commands.common import add_json, print_json, print_table
from provision.commands.gpus.given import commands, gpus
from provision.commands.reading import add_plan_files
from provision.instances.read import read_plan
from provision.models.base.known import known

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.applier.layout import Observed, ObservedGpu
    from provision.applier.steps import Step


def add_status(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_state(parser)
    add_json(parser)
    parser.set_defaults(run=_status)


def add_diff(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_plan(parser)
    add_json(parser)
    parser.set_defaults(run=_diff)


def add_assert(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_plan(parser)
    add_json(parser)
    parser.set_defaults(run=_assert)


def add_state(parser: ArgumentParser) -> None:
    """Declare the ``--state`` option."""
    default = default_state()
    parser.add_argument(
        "--state", default=default, metavar="DIR", help=f"journal, daemons and environments (default: {default})"
    )


def add_plan(parser: ArgumentParser, optional: bool = False) -> None:
    """Declare the arguments for a plan and for how it is put on the GPUs."""
    add_plan_files(parser, optional)
    add_state(parser)
    parser.add_argument("--gpus", metavar="LIST", help="indices or UUIDs that may be used (default: all of the types)")
    parser.add_argument(
        "--server", metavar="COMMAND", help="start servers, which stay in the foreground: 'serve {model} -b {batch}'"
    )


def step_rows(present: Observed, steps: Iterable[Step]) -> Iterator[tuple[int | None, str, str]]:
    """Yield a triple per step: (GPU index or None, text, workloads that are below their demand after the step)."""
    for step in steps:
        gpu = known(present.gpu(step.gpu)).index if step.gpu else None
        short = ", ".join(
            f"{one.workload} {one.in_place_rps:g} of {one.demand_rps:g} rps" for one in step.shortfalls
        )
        yield gpu, step.text, short


def print_steps(rows: Iterable[tuple[int | None, str, str]]) -> None:
    """Print steps as a table."""
    print_table(("GPU", "step", "then below demand"), [(gpu, text, short or None) for gpu, text, short in rows])


def _status(options: Namespace) -> int:
    present, last = status(options.state)
    if options.json:
        run = last.model_dump(mode="json", include={"verb", "outcome"}) if last else None
        print_json(present.model_dump(mode="json") | {"last_run": run})
        return 0
    print_table(
        ("GPU", "product", "MIG", "slice", "made by", "device", "MPS", "replicas", "processes"),
        [row for gpu in present.gpus for row in _rows(gpu)],
    )
    for gpu in present.gpus:
        if gpu.unknown:
            print(f"GPU {gpu.index}: its driver does not tell {', '.join(gpu.unknown)}; they are unknown")
        for piece in gpu.slices:
            if piece.trouble:
                print(f"GPU {gpu.index}, {piece.label}: {piece.trouble}; the next apply that needs it ends it")
    for device in present.leftovers:
        print(f"{device} is gone but left files, a daemon or servers behind; the next apply clears them")
    if last and last.unfinished:
        print(f"the last {last.verb} was not finished: {last.ways_on}")
    return 0


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


def _difference(options: Namespace) -> tuple[Observed, list[Step]]:
    return difference(read_plan(options.plan), options.state, gpus(options), commands(options))


def _diff(options: Namespace) -> int:
    present, steps = _difference(options)

    def tell() -> None:
        if options.json:
            print_json({"steps": [step.described(present) for step in steps]})
        elif steps:
            print_steps(step_rows(present, steps))
        else:
            print("no difference")

    told(tell)
    return 1 if steps else 0


def _assert(options: Namespace) -> int:
    present, steps = _difference(options)

    def tell() -> None:
        if options.json:
            print_json({"ok": not steps, "differences": [step.described(present) for step in steps]})
            return
        print(f"differs: {len(steps)} steps away" if steps else "holds")
        for gpu, text, _ in step_rows(present, steps):
            print(f"  {'' if gpu is None else f'GPU {gpu}: '}{text}")

    told(tell)
    return 1 if steps else 0
