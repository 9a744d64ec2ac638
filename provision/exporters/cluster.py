"""Files that prepare the nodes of a cluster: the GPU operator's MIG configuration, node labels, and notes."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from provision.exporters.common import Node, yaml_text
from provision.exporters.mig_parted import configuration
from provision.exporters.pods import NODE_LABEL

LABELLING = "`bash label-nodes.sh NODE...` tells which Kubernetes node is which machine; drain the nodes before it."


def node_files(machines: Sequence[Node], prefix: str) -> dict[str, str]:
    """The MIG configurations of the machines and the script that labels them."""
    files = {"label-nodes.sh": label_script(machines)}
    if any(node.can_mig for node in machines):
        files["mig-config.yaml"] = yaml_text(_config_map(machines, prefix))
    return files


def _config_map(machines: Sequence[Node], prefix: str) -> dict[str, Any]:
    """The ConfigMap that the GPU operator's mig-manager reads."""
    content = yaml_text(configuration([node for node in machines if node.can_mig]))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _config_name(prefix), "namespace": "gpu-operator"},
        "data": {"config.yaml": content},
    }


def _config_name(prefix: str) -> str:
    return f"{prefix}-mig-config"


def node_labels(node: Node, partitioned: bool) -> dict[str, str]:
    """The labels of the cluster's node that is to be a machine of the plan."""
    mig = {"nvidia.com/mig.config": node.name} if partitioned and node.can_mig else {}
    return {NODE_LABEL: node.name} | mig


LABELS = """\
#!/usr/bin/env bash
# Labels Kubernetes nodes as the machines of the plan{starts}; cordon and drain them first.
# usage: label-nodes.sh {usage}
set -euo pipefail
[[ $# -eq {count} ]] || {{ echo "error: give {count} node names, in the order {usage} (got $#)" >&2; exit 1; }}
{lines}
"""


def label_script(machines: Sequence[Node], partitioned: bool = True) -> str:
    """The script that labels nodes. If ``partitioned``, the labels make the GPU operator partition the nodes."""
    lines = []
    for number, node in enumerate(machines, start=1):
        labels = [f"{name}={value}" for name, value in node_labels(node, partitioned).items()]
        lines += [
            f'echo "${{{number}}} becomes {node.name}: {node.devices}"',
            f'kubectl label node "${{{number}}}" --overwrite {shlex.join(labels)}',
        ]
    usage = " ".join(node.name for node in machines)
    starts = ", which starts their partitioning" if partitioned else ""
    return LABELS.format(usage=usage, count=len(machines), lines="\n".join(lines), starts=starts)


def notes(machines: Sequence[Node], prefix: str) -> Iterator[str]:
    """Yield notes that say, in order, what to do if nodes are partitioned beforehand."""
    yield from operator_notes(machines, prefix)
    yield from pod_notes()


def operator_notes(machines: Sequence[Node], prefix: str) -> Iterator[str]:
    """Yield notes on how to make the GPU operator partition the nodes."""
    if any(node.can_mig for node in machines):
        yield (
            "`kubectl apply -f mig-config.yaml`, and let the GPU operator use it (Helm: "
            f"migManager.config.name={_config_name(prefix)}, mig.strategy=mixed). It counts profiles; the driver "
            "places them. The operator reads one such ConfigMap: put the configurations of several plans into one."
        )
        yield (
            "The node label `nvidia.com/mig.config.state` tells how partitioning went. The operator acts on a changed "
            "value of `nvidia.com/mig.config` only: to try again set another one in between."
        )


def pod_notes() -> Iterator[str]:
    """Yield notes that say, in order, what to do with nodes and pods."""
    yield LABELLING
    yield (
        "Images are named after the models: `kustomize edit set image MODEL=REGISTRY/IMAGE` for each, then "
        "`kubectl apply -k .` starts the Deployments, with a container per server process."
    )
    yield "A label `workload.provision/NAME` marks the pods that serve a workload, for a Service to select."
