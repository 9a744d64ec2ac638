"""The objects and node labels that a plan needs on a cluster. The fields that are read of Kubernetes' objects are
checked by the table ``fields.yaml``.
"""

from collections.abc import Iterator, Sequence
from fnmatch import filter as fitting
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

import yaml

from provision.applier.cluster.api import Object, label
from provision.exporters.common import nodes, prefix, render
from provision.exporters.mig_parted import node_labels
from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

KINDS = {"": "a text", 0: "a whole number of 0 or more"}
TARGETS = ("kubernetes", "kubernetes-dra", "kubernetes-device-plugin")
"""The exports whose objects can be applied."""
MIG = "mig-config.yaml"
"""The file of an export that says how the nodes are partitioned."""
OBJECTS = ("claims.yaml", "deployments.yaml", "services.yaml")
"""The files of an export that are applied once the nodes are partitioned."""
Labels: TypeAlias = dict[str, dict[str, str | None]]
"""The labels of nodes, by the name of the node. The value None stands for a label that is absent or is to be removed.
"""


@cache
def _shapes() -> dict[str, Any]:
    """The table, by kind of object."""
    found: dict[str, Any] = yaml.safe_load((files("provision.applier.cluster") / "fields.yaml").read_text())
    return found


def check_objects(objects: Sequence[dict[str, Any]], source: object) -> None:
    """Refuse objects without a field that they have to have, or with a value of another kind. Fields that are null
    count as absent, as in Kubernetes, and are removed.

    Raises
    ------
    InputError
        A line for every such field.
    """
    shapes = _shapes()
    wrong = [f"{source}: {one['kind']} {_name(one['metadata'])}: {found}; read the cluster with kubectl get -o json, "
             "and change nothing"
             for one in objects if one["kind"] in shapes for found in _wrong(one, shapes[one["kind"]], "")]
    if wrong:
        raise InputError(*wrong[:10])


def _name(meta: dict[str, Any]) -> str:
    """The namespace and the name, as far as they are there."""
    return "/".join(str(meta[key]) for key in ("namespace", "name") if key in meta) or "without a name"


def _wrong(value: Any, shape: Any, at: str) -> Iterator[str]:
    """Yield the fields of a value that do not have their shape."""
    if isinstance(shape, dict):
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            yield f"{at}: should be an object (got {value!r:.60})"
            return
        for name in [name for name, inner in value.items() if inner is None]:
            del value[name]
        for name, inner in shape.items():
            if name.endswith("!") and name[:-1] not in value:
                yield f"{at}.{name[:-1]}: is missing".lstrip(".")
            for key in fitting(value, name.rstrip("!")):
                yield from _wrong(value[key], inner, f"{at}.{key}".lstrip("."))
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{at}: should be a list (got {value!r:.60})"
            return
        for number, one in enumerate(value):
            yield from _wrong(one, shape[0], f"{at}[{number}]")
    elif shape is not None and not (isinstance(value, str) if shape == "" else str(value).isdecimal()):
        yield f"{at}: should be {KINDS[shape]} (got {value!r:.60})"


class Wanted:
    """The objects and node labels that a plan needs on a cluster.

    ``configuration`` are the objects that partition the nodes, and ``objects`` those that need partitioned nodes.
    ``every`` has both, in the order in which they are applied. ``labels`` are the labels of the nodes.

    Parameters
    ----------
    instance, plan
        The Instance and its Plan.
    to
        One of TARGETS.
    names
        The cluster's nodes, in the order of the plan's machines.
    gpus_per_node
        The number of GPUs of a machine.

    Raises
    ------
    InputError
        If the target cannot express the plan, or if there are too few or too many nodes.
    """

    def __init__(self, instance: Instance, plan: Plan, to: str, names: Sequence[str], gpus_per_node: int) -> None:
        if to not in TARGETS:
            raise InputError(f"--to {to}: a cluster is not set up by this; use one of {', '.join(TARGETS)}")
        files = render(plan, to, instance, gpus_per_node)
        machines = nodes(plan, gpus_per_node, prefix(plan))
        if len(names) != len(machines) or len(set(names)) != len(names):
            told = ", ".join(f"{machine.name} ({machine.devices})" for machine in machines)
            raise InputError(f"--nodes: give {len(machines)} different nodes, in the order {told} (got {len(names)})")
        self.configuration = _documents(files.get(MIG, ""))
        self.objects = [one for name in OBJECTS for one in _documents(files.get(name, ""))]
        self.every = [*self.configuration, *self.objects]
        partitioned = MIG in files
        self.labels: Labels = {
            name: dict(node_labels(machine, partitioned)) for name, machine in zip(names, machines, strict=True)
        }

    def steps(self) -> tuple[str, ...]:
        """The steps in order, each as a text."""
        configured = [f"apply {label(one)}" for one in self.configuration]
        labelled = [f"label node {name} {in_words(labels)}" for name, labels in self.labels.items()]
        return (*configured, *labelled, *(f"apply {label(one)}" for one in self.objects))


def _documents(text: str) -> list[Object]:
    """The documents of a YAML file that are not empty."""
    return [one for one in yaml.safe_load_all(text) if one]


def in_words(labels: dict[str, str | None]) -> str:
    """Labels as ``kubectl label`` writes them: ``name=value``, or ``name-`` for a label that is to be removed."""
    return " ".join(f"{name}-" if value is None else f"{name}={value}" for name, value in labels.items())
