"""The labels of nodes that tell the GPU operator's MIG manager how to partition them, and the label by which it
answers.

Source: NVIDIA, GPU Operator, "MIG Support in Kubernetes".
"""

from collections.abc import Callable

from provision.applier.cluster.api import Cluster
from provision.applier.cluster.wanted import Labels, in_words
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
