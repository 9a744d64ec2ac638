"""What both Kubernetes targets share: Deployments, the GPU operator's MIG configuration, node labels.

A slice is one pod, each server process a container of it. Pods go to the machine of the plan through a node
label; which GPU of the machine a slice stands on, Kubernetes decides.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from provision.exporters.common import percentage, slice_name, slugs, uses_mps, yaml_text
from provision.exporters.mig_parted import configuration
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from provision.exporters.common import Attachment, Node
    from provision.models.plans.plan import Slice
    from provision.models.problem.instance import Instance

NODE_LABEL = "provision/node"
CONFIG_MAP = "provision-mig-config"


def check_spread(instance: Instance, machines: Sequence[Node]) -> None:
    """Refuse plans that depend on which GPU of a machine a pod gets, since Kubernetes chooses it.

    Raises
    ------
    InputError
        When a workload limits its share per GPU and a machine has several GPUs.
    """
    several = any(len(node.gpus) > 1 for node in machines)
    for workload in instance.workloads:
        if several and workload.max_share_per_gpu < 1:
            raise InputError(
                f"kubernetes: max_share_per_gpu of {workload.name} cannot be kept, Kubernetes chooses the GPU on a "
                "machine; use --gpus-per-node 1 or --to shell"
            )


def deployments(instance: Instance, machines: Sequence[Node], attach: Callable[[Slice], Attachment]) -> str:
    """A Deployment per slice that serves something.

    Parameters
    ----------
    instance, machines
        The Instance, and its plan's Nodes.
    attach
        Gives for a slice the ``resources`` of each container and further fields of the pod.
    """
    names = slugs(workload.name for workload in instance.workloads)
    images = slugs({model: None for workload in instance.workloads for model in workload.models})
    return yaml_text(
        *(
            _deployment(node, slice_name(index, position), piece, names, _containers(instance, piece, images), attach)
            for node in machines
            for index, gpu in node.gpus
            for position, piece in enumerate(gpu.slices)
            if piece.replicas
        )
    )


def _deployment(
    node: Node, name: str, piece: Slice, names: Mapping[str, str], containers: Iterable[dict[str, Any]],
    attach: Callable[[Slice], Attachment],
) -> dict[str, Any]:
    resources, pod = attach(piece)
    labels = {"provision/slice": name} | {
        f"workload.provision/{names[replica.workload]}": "true" for replica in piece.replicas
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            # A slice is free for the next pod only when the last one has gone.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"provision/slice": name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {NODE_LABEL: node.name},
                    "containers": [container | {"resources": resources} for container in containers],
                }
                | pod,
            },
        },
    }


def _containers(instance: Instance, piece: Slice, images: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """A container per server process of a slice, with what it serves in its environment."""
    processes = [replica for replica in piece.replicas for _ in range(replica.processes)]
    for number, replica in enumerate(processes):
        model = instance.model_of(replica)
        environment = {
            "PROVISION_WORKLOAD": replica.workload,
            "PROVISION_MODEL": model,
            "PROVISION_BATCH": replica.batch,
            "PROVISION_RATE_RPS": f"{replica.rate_rps / replica.processes:.6g}",
        }
        if uses_mps(piece):
            environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = percentage(replica)
        yield {
            "name": f"process-{number}",
            "image": images[model],
            # Kubernetes replaces $(NAME) in values, and takes $$ for a dollar sign.
            "env": [{"name": name, "value": str(value).replace("$", "$$")} for name, value in environment.items()],
        }


def node_files(machines: Sequence[Node]) -> dict[str, str]:
    """The MIG configurations of the machines and the script that labels them."""
    files = {"label-nodes.sh": _labels(machines)}
    if any(node.type.mig for node in machines):
        files["mig-config.yaml"] = yaml_text(_config_map(machines))
    return files


def _config_map(machines: Sequence[Node]) -> dict[str, Any]:
    """The ConfigMap that the GPU operator's mig-manager reads."""
    content = yaml_text(configuration([node for node in machines if node.type.mig]))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": "gpu-operator"},
        "data": {"config.yaml": content},
    }


LABELS = """\
#!/usr/bin/env bash
# Labels Kubernetes nodes as the machines of the plan, which starts their partitioning; cordon and drain them first.
# usage: label-nodes.sh {usage}
set -euo pipefail
[[ $# -eq {count} ]] || {{ echo "error: give {count} node names, in the order {usage} (got $#)" >&2; exit 1; }}
{lines}
"""


def _labels(machines: Sequence[Node]) -> str:
    lines = []
    for number, node in enumerate(machines, start=1):
        labels = [f"{NODE_LABEL}={node.name}", *([f"nvidia.com/mig.config={node.name}"] if node.type.mig else [])]
        lines += [
            f'echo "${{{number}}} becomes {node.name}: {len(node.gpus)} x {node.type.product}"',
            f'kubectl label node "${{{number}}}" --overwrite {shlex.join(labels)}',
        ]
    usage = " ".join(node.name for node in machines)
    return LABELS.format(usage=usage, count=len(machines), lines="\n".join(lines))


def kustomization(resources: Sequence[str]) -> str:
    """A kustomization of these files, where the image of each model can be set."""
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return yaml_text(head | {"resources": resources})


def notes(machines: Sequence[Node]) -> Iterator[str]:
    """What to do, in order."""
    if any(node.type.mig for node in machines):
        yield (
            "`kubectl apply -f mig-config.yaml`, and let the GPU operator use it (Helm: "
            f"migManager.config.name={CONFIG_MAP}, mig.strategy=mixed). It counts profiles; the driver places them."
        )
        yield (
            "The node label `nvidia.com/mig.config.state` tells how partitioning went. The operator acts on a changed "
            "value of `nvidia.com/mig.config` only: to try again set another one in between."
        )
    yield "`bash label-nodes.sh NODE...` tells which Kubernetes node is which machine; drain the nodes before it."
    yield (
        "Images are named after the models: `kustomize edit set image MODEL=REGISTRY/IMAGE` for each, then "
        "`kubectl apply -k .` starts a Deployment per slice and in it a container per server process."
    )
    yield "A label `workload.provision/NAME` marks the pods that serve a workload, for a Service to select."
