"""Dynamo: a DynamoGraphDeployment per language model, of a front end and its vLLM workers.

Source: ai-dynamo/dynamo, the types of ``nvidia.com/v1alpha1`` of its operator.
"""

from __future__ import annotations

from typing import Any

from provision.exporters.cluster import LABELLING, node_files, operator_notes
from provision.exporters.common import Exported, prefix, slugs, yaml_text
from provision.exporters.language_models.servers import Servers, left_out, memory_notes, servers
from provision.exporters.pods import NODE_LABEL, kustomization
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

IMAGE = "nvcr.io/nvidia/ai-dynamo/vllm-runtime"
GRAPHS = "graphs.yaml"
WHOLE_GPUS = "nvidia.com/gpu"
PREFILL = "--is-prefill-worker"
NOTES = (
    f"`kubectl apply -k .` needs Dynamo's operator, and its image `{IMAGE}`: `kustomize edit set image "
    f"{IMAGE}={IMAGE}:VERSION`.",
    "Every worker group says its requests/s in the annotation `provision/rate-rps`; Dynamo's router sends each request "
    "where there is least to do.",
)


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """``graphs.yaml``, its kustomization, and what prepares the nodes."""
    notes, name = left_out(instance, "dynamo"), prefix(plan)
    machines, found = servers(plan, instance, gpus_per_node)
    graphs: dict[str, list[Servers]] = {}
    for one in found:
        graphs.setdefault(one.application, []).append(one)
    names = slugs(graphs)
    files = {GRAPHS: yaml_text(*(_graph(f"{name}-{names[key]}", several) for key, several in graphs.items())),
             "kustomization.yaml": kustomization([GRAPHS])}
    return Exported(files | node_files(machines, name),
                    (*operator_notes(machines, name), LABELLING, *NOTES, *memory_notes(plan, instance), *notes))


def _graph(name: str, several: list[Servers]) -> dict[str, Any]:
    front = {"componentType": "frontend", "replicas": 1, "extraPodSpec": {"mainContainer": {"image": IMAGE}}}
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": name},
        "spec": {
            "backendFramework": "vllm",
            "services": {"Frontend": front} | {f"Worker{at}": _worker(one) for at, one in enumerate(several)},
        },
    }


def _worker(one: Servers) -> dict[str, Any]:
    """The workers of a group; those of prefill say so."""
    limits = {"gpu": str(one.devices)} | ({} if one.resource == WHOLE_GPUS else {"gpuType": one.resource})
    return {
        "componentType": "worker",
        "subComponentType": one.pool or "decode",
        "replicas": one.replicas,
        "annotations": {"provision/rate-rps": f"{one.rate_rps:.6g}"},
        "resources": {"limits": limits},
        "extraPodSpec": {
            "nodeSelector": {NODE_LABEL: one.node.name},
            "mainContainer": {
                "image": IMAGE,
                "command": ["python3", "-m", "dynamo.vllm"],
                "args": [f"--model={one.model}", *one.arguments, *([PREFILL] if one.pool == "prefill" else [])],
            },
        },
    }
