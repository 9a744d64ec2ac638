"""The state of a cluster before a run. It is kept in the state directory, so that an interrupted run can be undone.

The labels of nodes that tell the GPU operator's MIG manager how to partition them, and the label by which it
answers.

Source: NVIDIA, GPU Operator, "MIG Support in Kubernetes".
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from provision.applier.cluster.api import Cluster, Object, authored
from provision.applier.cluster.wanted import Labels, Wanted, in_words
from provision.instances.files.files import FilePath, read_text, write_text
from provision.models.base.errors import InputError

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
