"""A plan on a cluster: its export's objects, tried on the server first, applied, waited for, asserted, taken back.

What stood before is written to the state directory before anything is changed, so that a run that was cut off can be
rolled back too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml

from provision.applier.cluster.api import Cluster, authored, differing, label
from provision.applier.journal import APPLIED, RESTORED, UNRESTORED
from provision.applier.locks import locked_state
from provision.exporters.cluster import node_labels
from provision.exporters.common import nodes, prefix
from provision.exporters.export import render
from provision.instances.files.files import read_text, write_text
from provision.models.base.errors import InputError
from provision.models.base.fields import Record, Text

if TYPE_CHECKING:
    from provision.applier.cluster.api import Object
    from provision.instances.files.files import FilePath
    from provision.models.plans.plan import Plan
    from provision.models.problem.instance import Instance

TARGETS = ("kubernetes", "kubernetes-dra", "kubernetes-device-plugin")
MIG, OBJECTS = "mig-config.yaml", ("claims.yaml", "deployments.yaml", "services.yaml")
"""Files of an export: what partitions the nodes, and what is applied once they are."""
WITHIN_S = 900.0
"""How long partitioning, and then starting, may take."""
POLL_S = 1.0
Labels: TypeAlias = dict[str, dict[str, str | None]]
"""Labels by node; None for one that is not there."""
STATE = "nvidia.com/mig.config.state"
SPLIT = "nvidia.com/mig.config"


class ClusterOutcome(Record):
    """How a run on a cluster ended: applied, restored, unrestored or declined; ``steps`` are what was to be done."""

    outcome: Text
    steps: tuple[Text, ...] = ()
    failure: Text | None = None
    unrestored: tuple[Text, ...] = ()


class Wanted:
    """What a plan asks of a cluster: the objects of its export, and the labels of its nodes.

    Parameters
    ----------
    instance, plan
        The Instance and its Plan.
    to
        One of TARGETS.
    names
        The cluster's nodes, in the order of the plan's machines.
    gpus_per_node
        GPUs of a machine.

    Raises
    ------
    InputError
        When the target cannot express the plan, or there are too few or too many nodes.
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
        partitioned = MIG in files
        self.labels: Labels = {
            name: dict(node_labels(machine, partitioned)) for name, machine in zip(names, machines, strict=True)
        }


def _documents(text: str) -> list[Object]:
    return [one for one in yaml.safe_load_all(text) if one]


def apply(
    instance: Instance, plan: Plan, names: Sequence[str], state: FilePath, to: str = "kubernetes",
    namespace: str = "default", context: str | None = None, gpus_per_node: int = 8, within_s: float = WITHIN_S,
    confirm: Callable[[Sequence[str]], bool] | None = None, report: Callable[[str], None] = lambda line: None,
) -> ClusterOutcome:
    """Bring a cluster to a plan; on failure take back what was applied.

    Parameters
    ----------
    instance, plan
        The Instance and its Plan.
    names
        The cluster's nodes, in the order of the plan's machines.
    state
        The state directory.
    to
        One of TARGETS: the export whose objects are applied.
    namespace, context
        Where objects go that name no namespace, and the kubeconfig's context; by default the current one.
    gpus_per_node
        GPUs of a machine.
    within_s
        Seconds that partitioning, and then starting, may take.
    confirm
        Called with the steps; unless it returns true nothing is done. By default not asked.
    report
        Called with every step before it is done.

    Raises
    ------
    InputError
        When nothing was done: the plan does not hold, or the server refuses an object in a dry run.
    """
    wanted = Wanted(instance, plan, to, names, gpus_per_node)
    with locked_state(state):
        run = _Roll(Cluster(namespace, context), wanted, Path(state), within_s, report)
        run.try_out()
        steps = tuple(run.steps())
        if confirm and not confirm(steps):
            return ClusterOutcome(outcome="declined", steps=steps)
        run.remember()
        try:
            run.carry_out()
        except InputError as error:
            return run.taken_back(steps, str(error))
        run.forget(APPLIED)
    return ClusterOutcome(outcome=APPLIED, steps=steps)


def rollback(
    state: FilePath, context: str | None = None, confirm: Callable[[Sequence[str]], bool] | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> ClusterOutcome:
    """Take the last apply back: objects that were there as they were, others deleted, labels as before."""
    with locked_state(state):
        path = Path(state) / FILE
        if not path.exists():
            raise InputError(f"{path}: no run on a cluster is recorded there, so there is nothing to go back to")
        kept = json.loads(read_text(path))
        run = _Roll(Cluster(kept["namespace"], context), None, Path(state), WITHIN_S, report)
        run.former = kept
        steps = tuple(f"take back {label(one)}" for one in kept["applied"])
        if confirm and not confirm(steps):
            return ClusterOutcome(outcome="declined", steps=steps)
        return run.taken_back(steps, None)


FILE = "cluster.json"


class _Roll:
    """One run on a cluster."""

    def __init__(
        self, cluster: Cluster, wanted: Wanted | None, state: Path, within_s: float, report: Callable[[str], None]
    ) -> None:
        self.cluster, self.path, self.within_s, self.report = cluster, state / FILE, within_s, report
        self.former: dict[str, Any] = {}
        if wanted:
            self.wanted, self.every = wanted, [*wanted.configuration, *wanted.objects]

    def steps(self) -> list[str]:
        """What is to be done, in order."""
        labels = [f"label node {name} {_text(labels)}" for name, labels in self.wanted.labels.items()]
        configured = [f"apply {label(one)}" for one in self.wanted.configuration]
        return [*configured, *labels, *(f"apply {label(one)}" for one in self.wanted.objects)]

    def try_out(self) -> None:
        """Have the server judge every object and label, and change nothing."""
        for one in self.every:
            self.cluster.apply(one, dry_run=True)
        for name, labels in self.wanted.labels.items():
            self.cluster.labelled(name, labels, dry_run=True)

    def remember(self) -> None:
        """Write down what stands, before anything is changed."""
        there = [self.cluster.get(one) for one in self.every]
        objects = [None if found is None else authored(found) for found in there]
        labels = {}
        for name, wanted in self.wanted.labels.items():
            now = self._labels(name)
            labels[name] = {key: now.get(key) for key in wanted}
        self.former = {
            "namespace": self.cluster.namespace, "applied": self.every, "former": objects, "labels": labels,
            "outcome": None,
        }
        self._write()

    def forget(self, outcome: str) -> None:
        """Note how the run ended."""
        self.former["outcome"] = outcome
        self._write()

    def _write(self) -> None:
        write_text(self.path, json.dumps(self.former, indent=1) + "\n", force=True)

    def carry_out(self) -> None:
        """Apply everything, in order, and wait for it.

        Raises
        ------
        InputError
            For what the server refuses, or what does not come to be in time.
        """
        for one in self.wanted.configuration:
            self._apply(one)
        self._label(self.wanted.labels)
        self._until(lambda: self._unpartitioned(self.wanted.labels))
        for one in self.wanted.objects:
            self._apply(one)
        self._until(self._unavailable)
        for one in self.every:
            if (at := differing(one, self.cluster.get(one) or {})) is not None:
                raise InputError(f"{label(one)}: {at} is not what was applied: something else changes it")

    def _apply(self, one: Object) -> None:
        self.report(f"apply {label(one)}")
        self.cluster.apply(one)

    def _until(self, missing: Callable[[], str | None]) -> None:
        """Wait until nothing is missing."""
        until = time.monotonic() + self.within_s
        while (what := missing()) is not None:
            if time.monotonic() > until:
                raise InputError(f"{what} after {self.within_s:g} s; see kubectl describe")
            time.sleep(POLL_S)

    def _label(self, every: Labels) -> None:
        """Label the nodes. The GPU operator acts on another value only, so that the same one goes and comes again."""
        before, after = self.former["former"], self.former["applied"]
        pairs = [(old, new) for old, new in zip(before, after, strict=True) if new["kind"] == "ConfigMap"]
        other = any(old is None or differing(new, old) is not None for old, new in pairs)
        for name, labels in every.items():
            self.report(f"label node {name} {_text(labels)}")
            same = SPLIT in labels and self._labels(name).get(SPLIT) == labels[SPLIT]
            if same and other:
                self.cluster.labelled(name, {SPLIT: None})
            state: dict[str, str | None] = {STATE: None} if SPLIT in labels and (other or not same) else {}
            self.cluster.labelled(name, labels | state)

    def _unpartitioned(self, every: Labels) -> str | None:
        """A node that the GPU operator has not partitioned yet; None when there is none."""
        for name, labels in every.items():
            if labels.get(SPLIT) is None:
                continue
            state = self._labels(name).get(STATE)
            if state == "failed":
                raise InputError(f"node {name}: the GPU operator could not partition it; see the mig-manager's log")
            if state != "success":
                return f"node {name}: {STATE} is {state}"
        return None

    def _unavailable(self) -> str | None:
        """A Deployment whose pods are not available yet; None when there is none."""
        for one in self.wanted.objects:
            if one["kind"] != "Deployment":
                continue
            found = self.cluster.get(one) or {}
            status, replicas = found.get("status", {}), one["spec"]["replicas"]
            seen = status.get("observedGeneration", 0) >= found.get("metadata", {}).get("generation", 1)
            if not seen or status.get("availableReplicas", 0) < replicas or status.get("updatedReplicas", 0) < replicas:
                return f"{label(one)}: {status.get('availableReplicas', 0)} of {replicas} pods available"
        return None

    def _labels(self, name: str) -> dict[str, str]:
        node = self.cluster.get({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        if node is None:
            raise InputError(f"node {name}: the cluster has none of this name; see kubectl get nodes")
        return node["metadata"].get("labels", {})

    def taken_back(self, steps: tuple[str, ...], failure: str | None) -> ClusterOutcome:
        """Bring back what stood before, last things first."""
        problems = []
        pairs = list(zip(self.former["applied"], self.former["former"], strict=True))
        acts: list[tuple[str, Callable[[], object]]] = []
        for one, before in reversed(pairs):
            if before is None:
                acts.append((f"delete {label(one)}", partial(self.cluster.delete, one)))
            else:
                acts.append((f"bring back {label(one)}", partial(self.cluster.apply, before)))
        labels = self.former["labels"]
        acts.append(("take the labels of the nodes back", lambda: self._label(labels)))
        acts.append(("wait for the nodes", lambda: self._until(lambda: self._unpartitioned(labels))))
        for text, act in acts:
            self.report(text)
            try:
                act()
            except InputError as error:
                problems.append(f"{text}: {error}")
        outcome = UNRESTORED if problems else RESTORED
        self.forget(outcome)
        return ClusterOutcome(outcome=outcome, steps=steps, failure=failure, unrestored=tuple(problems))


def _text(labels: dict[str, str | None]) -> str:
    return " ".join(f"{name}-" if value is None else f"{name}={value}" for name, value in labels.items())
