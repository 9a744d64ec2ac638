"""The objects and node labels that a plan needs on a cluster."""

from collections.abc import Sequence
from typing import TypeAlias

import yaml

from provision.applier.cluster.api import Object, label
from provision.exporters.cluster import node_labels
from provision.exporters.common import nodes, prefix
from provision.exporters.export import render
from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

TARGETS = ("kubernetes", "kubernetes-dra", "kubernetes-device-plugin")
"""The exports whose objects can be applied."""
MIG = "mig-config.yaml"
"""The file of an export that says how the nodes are partitioned."""
OBJECTS = ("claims.yaml", "deployments.yaml", "services.yaml")
"""The files of an export that are applied once the nodes are partitioned."""
Labels: TypeAlias = dict[str, dict[str, str | None]]
"""The labels of nodes, by the name of the node. The value None stands for a label that is absent or is to be removed.
"""


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
