"""Writes plans as files for the tools that carry them out."""

from collections.abc import Callable, Iterable
from pathlib import Path

from provision.draw.words import plural
from provision.exporters.common import Exported
from provision.instances.files.files import FilePath, check_writable, write_text
from provision.instances.read import read, read_plan
from provision.models.base.errors import InputError
from provision.models.base.register import Register
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.verification.verify import refuse_unsound

Exporter = Callable[["Plan", "Instance", int], Exported]
"""Renders a plan that the verifier accepts. The number is the most GPUs of a machine."""
TARGETS: Register[Exporter] = Register("provision.exporters")
"""The exporters by target. Other packages add theirs as entry points."""


def export(plan: Plan | FilePath, to: str, folder: FilePath, instance: Instance | FilePath, force: bool = False,
           gpus_per_node: int = 8) -> tuple[str, ...]:
    """Write a plan for another tool.

    Parameters
    ----------
    plan
        The Plan, or its path.
    to
        One of TARGETS.
    folder
        The folder for the files. It must be new or empty or, with ``force``, have only files of an earlier export.
    instance
        The Instance that the plan is for, its shipped name or its path.
    force
        Whether files may be overwritten.
    gpus_per_node
        The most GPUs of a machine. The plan's GPUs are divided among machines in order.

    Returns
    -------
    tuple of str
        The names of the files that were written, relative to the folder.

    Raises
    ------
    InputError
        If the plan has violations, if the target cannot express it, or if the folder cannot be used. Nothing is then
        written.
    """
    files = render(read_plan(plan, instance), to, read(instance), gpus_per_node)
    _check_folder(Path(folder), files, force)
    for name, text in files.items():
        write_text(Path(folder) / name, text, force)
    return tuple(files)


def render(plan: Plan, to: str, instance: Instance, gpus_per_node: int = 8) -> dict[str, str]:
    """The texts of an export by file name, ``README.md`` among them."""
    exporter = TARGETS.find(to, "--to")
    if gpus_per_node < 1:
        raise InputError(f"--gpus-per-node {gpus_per_node}: must be at least 1; correct it")
    if not plan.gpus:
        raise InputError(f"the plan for {plan.instance} has no GPUs; there is nothing to export")
    plan.refuse_turns("export")
    refuse_unsound(instance, plan)
    exported = exporter(plan, instance, gpus_per_node)
    return {"README.md": _readme(plan, to, exported.notes)} | exported.files


def _readme(plan: Plan, to: str, notes: Iterable[str]) -> str:
    bullets = "".join(f"- {note}\n" for note in notes)
    return f"# {plan.instance}: {plural(plan.gpu_count, 'GPU')}, for {to}\n\n{bullets}"


def _check_folder(folder: Path, files: Iterable[str], force: bool) -> None:
    for name in files:
        check_writable(folder / name, force)
    present = {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
    strange = sorted(present - set(files))
    if strange:
        raise InputError(f"{folder}: holds {strange[0]!r}, which this export does not write; name another folder")
