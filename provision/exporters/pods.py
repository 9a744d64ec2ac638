"""Pods of Kubernetes: Deployments, containers and their environment.

A slice, or a GPU, is one pod, and each of its server processes is a container. A node label brings a pod to the machine
that the plan gives it. Kubernetes decides which GPU of the machine it gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from provision.exporters.common import Attachment, Node, slice_name, slugs, yaml_text
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import group_of
from provision.models.plans.plan import Replica, Slice
from provision.models.problem.instance import Instance
from provision.verification.deployment import needs_mps, percentage

NODE_LABEL = "provision/node"
WORKLOAD, RATE = "PROVISION_WORKLOAD", "PROVISION_RATE_RPS"


def check_spread(instance: Instance, machines: Sequence[Node]) -> None:
    """Refuse plans that depend on which GPU of a machine a pod gets, because Kubernetes chooses the GPU. Raises
    InputError if a workload limits its share per GPU and a machine has several GPUs.
    """
    several = any(len(node.gpus) > 1 for node in machines)
    for workload in instance.workloads:
        if several and workload.max_share_per_gpu < 1:
            raise InputError(
                f"kubernetes: max_share_per_gpu of {workload.name} cannot be kept, Kubernetes chooses the GPU on a "
                "machine; use --gpus-per-node 1 or --to shell"
            )


class Pod(NamedTuple):
    """A pod of the plan.

    Attributes
    ----------
    name
        The name of the pod and of its Deployment.
    node
        The machine on which the pod is to run.
    containers
        Its containers.
    fields
        Further fields of its specification, such as its claims.
    labels
        Further labels, such as those that Services select.
    """

    name: str
    node: Node
    containers: tuple[dict[str, Any], ...]
    fields: dict[str, Any]
    labels: Mapping[str, str] = MappingProxyType({})

    @property
    def served(self) -> list[tuple[str, str]]:
        """The workload of every container, and its rate in requests/s as text, both from the container's environment.
        """
        told = [{one["name"]: one["value"] for one in each["env"]} for each in self.containers]
        return [(one[WORKLOAD].replace("$$", "$"), one[RATE]) for one in told]

    @property
    def workloads(self) -> list[str]:
        """The workloads that the pod serves."""
        return list(dict.fromkeys(workload for workload, _ in self.served))


def slice_pods(instance: Instance, machines: Sequence[Node], prefix: str,
               attach: Callable[[Slice], Attachment]) -> Iterator[Pod]:
    """Yield a pod for every slice with replicas.

    Parameters
    ----------
    instance, machines
        The Instance, and its plan's Nodes.
    prefix
        The prefix of the pods' names.
    attach
        Returns, for a slice, the ``resources`` of each container and further fields of the pod.
    """
    for node in machines:
        for index, gpu in node.gpus:
            for position, piece in enumerate(gpu.slices):
                if piece.replicas:
                    resources, fields = attach(piece)
                    name = f"{prefix}-{slice_name(index, position)}"
                    yield Pod(name, node, tuple(containers(instance, piece, resources)), fields)


def deployments(instance: Instance, pods: Iterable[Pod]) -> str:
    """The YAML text of a Deployment per pod."""
    names = slugs(workload.name for workload in instance.workloads)
    return yaml_text(*(_deployment(pod, names) for pod in pods))


def _deployment(pod: Pod, names: Mapping[str, str]) -> dict[str, Any]:
    labels = {"provision/pod": pod.name} | {f"workload.provision/{names[one]}": "true" for one in pod.workloads}
    labels |= pod.labels
    specification = {"nodeSelector": {NODE_LABEL: pod.node.name}, "containers": list(pod.containers)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": pod.name, "labels": labels},
        "spec": {
            "replicas": 1,
            # A slice is free for a new pod only after the old pod has ended.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"provision/pod": pod.name}},
            "template": {"metadata": {"labels": labels}, "spec": specification | pod.fields},
        },
    }


def containers(instance: Instance, piece: Slice, resources: dict[str, Any],
               name: str = "process") -> Iterator[dict[str, Any]]:
    """Yield a container per server process of a slice. Its environment says what it serves, and its name begins with
    ``name``.
    """
    images = image_names(instance)
    processes = [replica for replica in piece.replicas for _ in range(replica.processes)]
    for number, replica in enumerate(processes):
        yield {
            "name": f"{name}-{number}",
            "image": images[instance.model_of(replica)],
            "env": environment(instance, piece, replica),
            "resources": resources,
        }


def image_names(instance: Instance) -> dict[str, str]:
    """The name of each model's container image."""
    return slugs({model: None for workload in instance.workloads for model in workload.models})


def environment(instance: Instance, piece: Slice, replica: Replica) -> list[dict[str, str]]:
    """The environment of a server process of a replica."""
    values: dict[str, Any] = {
        WORKLOAD: replica.workload,
        "PROVISION_MODEL": instance.model_of(replica),
        "PROVISION_BATCH": replica.batch,
        RATE: f"{replica.rate_rps / replica.processes:.6g}",
    }
    if (gpus := group_of(piece.profile) or 1) > 1:
        values["PROVISION_TENSOR_PARALLEL"] = gpus
    tokens = instance.workload[replica.workload].tokens
    if tokens is not None and tokens.pool is not None:
        values["PROVISION_POOL"] = tokens.pool
    if needs_mps(piece):
        values["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = percentage(replica)
    # Kubernetes replaces $(NAME) in values, and reads $$ as a dollar sign.
    return [{"name": name, "value": str(value).replace("$", "$$")} for name, value in values.items()]


def kustomization(resources: Sequence[str]) -> str:
    """A kustomization of these files, in which the image of each model can be set."""
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return yaml_text(head | {"resources": resources})
