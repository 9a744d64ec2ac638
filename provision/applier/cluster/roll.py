"""Puts a plan on a cluster: the objects of its export are tried on the server, applied, awaited and checked.

Before anything is changed, the former state of the cluster is written to the state directory. So a run that was
interrupted can be rolled back too. After the change, the run waits until nodes are partitioned and pods are available.

Nodes have labels that tell the GPU operator's MIG manager how to partition them, and a label by which it answers.

Source: NVIDIA, GPU Operator, "MIG Support in Kubernetes".
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from provision.applier.cluster.api import Cluster, Object, authored, differing, label
from provision.applier.cluster.wanted import Labels, Wanted, in_words
from provision.applier.locks import locked_state
from provision.applier.outcome import APPLIED, DECLINED, RESTORED, UNRESTORED
from provision.instances.files.files import FilePath, read_text, write_text
from provision.models.base.clock import Deadline, end_if_asked
from provision.models.base.errors import InputError
from provision.models.base.fields import Record, Text
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

ASKED = "nvidia.com/mig.config"
"""The label that names the MIG configuration which a node is to have."""
STATE = "nvidia.com/mig.config.state"
"""The label by which the operator tells its progress."""


def labels_of(cluster: Cluster, node: str) -> dict[str, str]:
    """The present labels of a node."""
    found = cluster.get({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    if found is None:
        raise InputError(f"node {node}: the cluster has none of this name; see kubectl get nodes")
    labels: dict[str, str] = found["metadata"].get("labels", {})
    return labels


def label_nodes(cluster: Cluster, every: Labels, reconfigured: bool, report: Callable[[str], None]) -> None:
    """Label the nodes so that the operator partitions them where anything changes.

    The operator acts when the value of ``ASKED`` changes. If the value stays the same but the configuration that it
    names has other content (``reconfigured``), the label is first removed and then set again.
    """
    for name, labels in every.items():
        report(f"label node {name} {in_words(labels)}")
        same = ASKED in labels and labels_of(cluster, name).get(ASKED) == labels[ASKED]
        if same and reconfigured:
            cluster.labelled(name, {ASKED: None})
        stale: dict[str, str | None] = {STATE: None} if ASKED in labels and (reconfigured or not same) else {}
        cluster.labelled(name, labels | stale)


def unpartitioned(cluster: Cluster, every: Labels) -> str | None:
    """A sentence on a node that the operator has not partitioned yet; None if all nodes are done. Raises InputError if
    the operator has given up on a node.
    """
    for name, labels in every.items():
        if labels.get(ASKED) is None:
            continue
        state = labels_of(cluster, name).get(STATE)
        if state == "failed":
            raise InputError(f"node {name}: the GPU operator could not partition it; see the mig-manager's log")
        if state != "success":
            return f"node {name}: {STATE} is {state}"
    return None


FILE = "cluster.json"


@dataclass
class Former:
    """The state of a cluster before a run. Its fields are those of the file.

    Parameters
    ----------
    namespace
        The namespace of objects that name none.
    applied
        The objects that the run applies, in order.
    former
        For each of these, the object as it was before; None if there was none.
    labels
        The former values of the labels that the run sets.
    outcome
        How the run ended; None as long as it goes on.
    """

    namespace: str
    applied: list[Object]
    former: list[Object | None]
    labels: Labels
    outcome: str | None = None

    def write(self, state: FilePath) -> None:
        """Write this record to the state directory, in place of the record of an earlier run."""
        write_text(Path(state) / FILE, json.dumps(asdict(self), indent=1) + "\n", force=True)


def looked_up(cluster: Cluster, wanted: Wanted) -> Former:
    """The present state of everything on the cluster that a plan would change."""
    standing = [cluster.get(one) for one in wanted.every]
    objects = [None if found is None else authored(found) for found in standing]
    labels = {}
    for name, ours in wanted.labels.items():
        now = labels_of(cluster, name)
        labels[name] = {key: now.get(key) for key in ours}
    return Former(cluster.namespace, wanted.every, objects, labels)


def read_former(state: FilePath) -> Former:
    """Read the record of the last run on a cluster from the state directory. Raises InputError if there was no such
    run.
    """
    path = Path(state) / FILE
    if not path.exists():
        raise InputError(f"{path}: no run on a cluster is recorded there, so there is nothing to go back to")
    return Former(**json.loads(read_text(path)))


WITHIN_S = 900.0
"""The seconds that partitioning may take, and after it the start of the servers."""
POLL_S = 1.0
"""Seconds between two queries of the cluster."""


def wait_until_none(missing: Callable[[], str | None], within_s: float) -> None:
    """Wait until ``missing`` returns None. Until then it returns a sentence that says what is missing. Raises
    InputError if something is still missing after ``within_s`` seconds. The message has the sentence.
    """
    until = Deadline(within_s)
    while (what := missing()) is not None:
        end_if_asked()
        if until.over:
            raise InputError(f"{what} after {within_s:g} s; see kubectl describe")
        time.sleep(POLL_S)


def unavailable(cluster: Cluster, objects: Sequence[Object]) -> str | None:
    """A sentence on a Deployment whose pods are not all available yet; None if all are."""
    for one in objects:
        if one["kind"] != "Deployment":
            continue
        found = cluster.get(one) or {}
        status, replicas = found.get("status", {}), one["spec"]["replicas"]
        seen = status.get("observedGeneration", 0) >= found.get("metadata", {}).get("generation", 1)
        if not seen or status.get("availableReplicas", 0) < replicas or status.get("updatedReplicas", 0) < replicas:
            return f"{label(one)}: {status.get('availableReplicas', 0)} of {replicas} pods available"
    return None


class ClusterOutcome(Record):
    """How a run on a cluster ended: applied, restored, unrestored or declined. ``steps`` are the steps that were
    planned.
    """

    outcome: Text
    steps: tuple[Text, ...] = ()
    failure: Text | None = None
    unrestored: tuple[Text, ...] = ()


def apply(
    instance: Instance, plan: Plan, names: Sequence[str], state: FilePath, to: str = "kubernetes",
    namespace: str = "default", context: str | None = None, gpus_per_node: int = 8, within_s: float = WITHIN_S,
    confirm: Callable[[Sequence[str]], bool] | None = None, report: Callable[[str], None] = lambda line: None,
    wait: bool = False,
) -> ClusterOutcome:
    """Put a plan on a cluster. On failure, take back what was applied.

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
        The namespace of objects that name none, and the context of the kubeconfig; by default the current context.
    gpus_per_node
        The number of GPUs of a machine.
    within_s
        The seconds that partitioning may take, and after it the start of the servers.
    confirm
        Called with the steps. Unless it returns true, nothing is done. By default there is no question.
    report
        Called with every step before it is done.
    wait
        Whether to wait while another applier is at work.

    Raises
    ------
    InputError
        If nothing was done, because the plan has violations or the server refuses an object in a dry run.
    """
    wanted = Wanted(instance, plan, to, names, gpus_per_node)
    with locked_state(state, wait):
        cluster = Cluster(namespace, context)
        _try_out(cluster, wanted)
        steps = wanted.steps()
        if confirm and not confirm(steps):
            return ClusterOutcome(outcome=DECLINED, steps=steps)
        former = looked_up(cluster, wanted)
        former.write(state)
        run = _Run(cluster, former, state, within_s, report)
        try:
            run.carry_out(wanted)
        except InputError as error:
            return run.taken_back(steps, str(error))
        run.end(APPLIED)
    return ClusterOutcome(outcome=APPLIED, steps=steps)


def rollback(state: FilePath, context: str | None = None, confirm: Callable[[Sequence[str]], bool] | None = None,
             report: Callable[[str], None] = lambda line: None, wait: bool = False) -> ClusterOutcome:
    """Undo the last apply: former objects and labels come back, and other objects are deleted.

    Parameters and errors are those of ``apply``.
    """
    with locked_state(state, wait):
        former = read_former(state)
        cluster = Cluster(former.namespace, context)
        steps = tuple(f"take back {label(one)}" for one in former.applied)
        if confirm and not confirm(steps):
            return ClusterOutcome(outcome=DECLINED, steps=steps)
        return _Run(cluster, former, state, WITHIN_S, report).taken_back(steps, None)


def _try_out(cluster: Cluster, wanted: Wanted) -> None:
    """Let the server check every object and label in a dry run, which changes nothing."""
    for one in wanted.every:
        cluster.apply(one, dry_run=True)
    for name, labels in wanted.labels.items():
        cluster.labelled(name, labels, dry_run=True)


class _Run:
    """One run on a cluster: an apply or a rollback.

    Parameters
    ----------
    cluster
        The Cluster.
    former
        The state before the run.
    state
        The state directory.
    within_s
        The seconds that partitioning may take, and after it the start of the servers.
    report
        Called with every step before it is done.
    """

    def __init__(self, cluster: Cluster, former: Former, state: FilePath, within_s: float,
                 report: Callable[[str], None]) -> None:
        self.cluster, self.former, self.state = cluster, former, state
        self.within_s, self.report = within_s, report

    def carry_out(self, wanted: Wanted) -> None:
        """Apply everything in order, and wait until it works. Raises InputError if the server refuses something, or
        something does not work in time.
        """
        for one in wanted.configuration:
            self._apply(one)
        self._label(wanted.labels)
        self._wait_for_partitions(wanted.labels)
        for one in wanted.objects:
            self._apply(one)
        wait_until_none(lambda: unavailable(self.cluster, wanted.objects), self.within_s)
        for one in wanted.every:
            if (at := differing(one, self.cluster.get(one) or {})) is not None:
                raise InputError(f"{label(one)}: {at} is not what was applied: something else changes it")

    def taken_back(self, steps: tuple[str, ...], failure: str | None) -> ClusterOutcome:
        """Bring the former state back, in reverse order. If one step fails, the others are still done.

        ``steps`` and ``failure`` are those of the run, for its outcome.
        """
        problems = []
        for text, act in self._ways_back():
            self.report(text)
            try:
                act()
            except InputError as error:
                problems.append(f"{text}: {error}")
        outcome = UNRESTORED if problems else RESTORED
        self.end(outcome)
        return ClusterOutcome(outcome=outcome, steps=steps, failure=failure, unrestored=tuple(problems))

    def _ways_back(self) -> list[tuple[str, Callable[[], object]]]:
        """The steps that bring the former state back, each as a text and a call."""
        steps: list[tuple[str, Callable[[], object]]] = []
        for one, before in reversed(list(zip(self.former.applied, self.former.former, strict=True))):
            if before is None:
                steps.append((f"delete {label(one)}", partial(self.cluster.delete, one)))
            else:
                steps.append((f"bring back {label(one)}", partial(self.cluster.apply, before)))
        labels = self.former.labels
        steps.append(("take the labels of the nodes back", lambda: self._label(labels)))
        steps.append(("wait for the nodes", lambda: self._wait_for_partitions(labels)))
        return steps

    def end(self, outcome: str) -> None:
        """Record how the run ended."""
        self.former.outcome = outcome
        self.former.write(self.state)

    def _apply(self, one: Object) -> None:
        end_if_asked()
        self.report(f"apply {label(one)}")
        self.cluster.apply(one)

    def _label(self, every: Labels) -> None:
        label_nodes(self.cluster, every, self._reconfigured(), self.report)

    def _reconfigured(self) -> bool:
        """Whether the run changes a ConfigMap, which has the MIG configurations."""
        pairs = zip(self.former.former, self.former.applied, strict=True)
        maps = [(old, new) for old, new in pairs if new["kind"] == "ConfigMap"]
        return any(old is None or differing(new, old) is not None for old, new in maps)

    def _wait_for_partitions(self, every: Labels) -> None:
        wait_until_none(lambda: unpartitioned(self.cluster, every), self.within_s)
