"""Writes plans as files for the tools that carry them out, by the exporter of each tool.

Exporters share what is here: machines, names, and the type of their results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from provision.draw.output import plural
from provision.instances.files.files import FilePath, check_writable, write_text
from provision.instances.read import read, read_plan
from provision.models.base.errors import InputError
from provision.models.base.register import Register
from provision.models.hardware.gpu import GpuType, gpu_type
from provision.models.plans.plan import Plan, PlannedGpu
from provision.models.problem.instance import Instance
from provision.verification.verify import refuse_unsound

LONGEST, LONGEST_PREFIX, MARK = 40, 20, 6
"""The most characters of a slug, and of the prefix of a plan's objects. Together they fit the 63 characters of a name
in Kubernetes. The last MARK characters of a shortened name distinguish it from other names.
"""

Attachment = tuple[dict[str, Any], dict[str, Any]]
"""How a pod gets its slice: the ``resources`` of each container, and further fields of the pod."""


class Exported(NamedTuple):
    """The result of an exporter: texts by file name, and notes that tell users what to do with the files."""

    files: dict[str, str]
    notes: tuple[str, ...]


class Node(NamedTuple):
    """A machine with GPUs of one type and MIG mode. ``gpus`` are pairs (index in the plan, PlannedGpu) by device
    number.

    A node of the plan (such as 8xh100-80gb) is a machine with one pair.
    """

    name: str
    gpus: tuple[tuple[int, PlannedGpu], ...]

    @property
    def type(self) -> GpuType:
        """The GPU type of all its GPUs."""
        return gpu_type(self.gpus[0][1].gpu)

    @property
    def mig(self) -> bool:
        """Whether the GPUs of the machine run with MIG on."""
        return self.gpus[0][1].mig and self.type.gpus == 1

    @property
    def devices(self) -> str:
        """The number and the product of the machine's GPUs, as text."""
        return self.type.product if self.type.gpus > 1 else f"{len(self.gpus)} x {self.type.product}"

    @property
    def can_mig(self) -> bool:
        """Whether the MIG mode of its GPUs can be set. GPUs of a node in the plan keep MIG off."""
        return self.type.mig is not None and self.type.gpus == 1


def prefix(plan: Plan) -> str:
    """The prefix for the names of a plan's objects in a cluster, which may also have objects of other plans."""
    plain = slugs([plan.instance])[plan.instance]
    if plain[0].isdigit():
        # Names of Services begin with a letter.
        plain = f"plan-{plain}"
    if len(plain) <= LONGEST_PREFIX:
        return plain
    mark = sha256(plan.instance.encode()).hexdigest()[:MARK]
    return f"{plain[: LONGEST_PREFIX - MARK - 1].strip('-')}-{mark}"


def nodes(plan: Plan, gpus_per_node: int, prefix: str = "") -> list[Node]:
    """Divide the GPUs of a plan among machines, in the order of the plan. A machine has GPUs of one type and MIG mode.
    If the plan puts its GPUs on nodes, these are the machines; a node with several types or modes is one for each.

    Parameters
    ----------
    plan
        The Plan.
    gpus_per_node
        The most GPUs of a machine.
    prefix
        The prefix of the names of the machines.
    """
    begin = f"{prefix}-" if prefix else ""
    if all(gpu.node is not None for gpu in plan.gpus):
        return _named_nodes(plan, begin)
    alike: dict[tuple[str, bool], list[tuple[int, PlannedGpu]]] = {}
    for index, gpu in enumerate(plan.gpus):
        alike.setdefault((gpu.gpu, gpu.mig), []).append((index, gpu))
    machines = []
    for (kind, mig), gpus in alike.items():
        single = gpu_type(kind).gpus == 1
        many, called = gpus_per_node if single else 1, f"{begin}{kind}-{'mig-' if mig and single else ''}"
        machines += [Node(f"{called}{number}", tuple(gpus[first : first + many]))
                     for number, first in enumerate(range(0, len(gpus), many))]
    return machines


def _named_nodes(plan: Plan, begin: str) -> list[Node]:
    """The machines of a plan whose GPUs are on nodes, with the names of these."""
    alike: dict[tuple[str, object], list[tuple[int, PlannedGpu]]] = {}
    for index, gpu in enumerate(plan.gpus):
        kind = (gpu.gpu, gpu.mig) if gpu_type(gpu.gpu).gpus == 1 else index
        alike.setdefault((gpu.node or "", kind), []).append((index, gpu))
    names, machines = slugs(name for name, _ in alike), list[Node]()
    for name in names:
        parts = [gpus for (node, _), gpus in alike.items() if node == name]
        machines += [Node(f"{begin}{names[name]}" + (f"-part-{number}" if len(parts) > 1 else ""), tuple(gpus))
                     for number, gpus in enumerate(parts)]
    return machines


def slugs(names: Iterable[str], longest: int = LONGEST) -> dict[str, str]:
    """A slug for every name, all different: lower case letters, digits and dashes, valid in files, labels and host
    names.
    """
    found, taken = {}, set()
    for name in names:
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:longest].strip("-") or "unnamed"
        numbered = chain([plain], (f"{plain}-{number}" for number in count(2)))
        found[name] = next(slug for slug in numbered if slug not in taken)
        taken.add(found[name])
    return found


def slice_name(index: int, position: int) -> str:
    """The name of a slice, by the index of its GPU in the plan and its position on the GPU."""
    return f"gpu{index:03d}-slice{position}"


class _Dumper(yaml.CSafeDumper):
    """A YAML dumper without aliases. It quotes text that other readers may take for a number or truth value (1e3, y).
    """

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    plain = len(text) > 1 and text[0].isalpha()
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None if plain else '"')


_Dumper.add_representer(str, _text)


def yaml_text(*documents: object) -> str:
    """The text of YAML documents; fields keep their order."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=115)


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
