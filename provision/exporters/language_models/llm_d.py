"""llm-d: values of its model service's Helm chart, a release per machine, model and size of replica.

Source: llm-d-incubation/llm-d-modelservice, ``values.schema.json``.
"""

from __future__ import annotations

import shlex
from typing import Any

from provision.exporters.cluster import LABELLING, node_files, operator_notes
from provision.exporters.common import Exported, prefix, slugs, yaml_text
from provision.exporters.language_models.servers import Servers, left_out, memory_notes, servers
from provision.exporters.pods import NODE_LABEL
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

IMAGE = "vllm/vllm-openai:latest"
PORT, BEHIND_PROXY = 8000, 8200
"""Where servers listen, and where they do behind the sidecar that brings them KV caches."""
ROLES = ("prefill", "decode")
NOTES = (
    "`bash install.sh` installs a release per file of values with the chart llm-d-modelservice of "
    "https://llm-d-incubation.github.io/llm-d-modelservice/ (`helm repo add llm-d-modelservice URL` before).",
    "Pods of one workload have the label `llm-d.ai/model`, by which the InferencePool of llm-d's scheduler selects "
    "them. It sends each request where there is least to do; the plan deals them by the rates in the first lines.",
)
INSTALL = """\
#!/usr/bin/env bash
# Installs the releases of the plan.
set -euo pipefail
{lines}
"""


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """Files for llm-d: ``RELEASE.yaml`` for every Helm release, ``install.sh``, and what prepares the nodes; and notes
    for the user.
    """
    notes, name = left_out(instance, "llm-d"), prefix(plan)
    machines, found = servers(plan, instance, gpus_per_node)
    labels = slugs(one.application for one in found)
    files, lines = {}, []
    for one in found:
        release = f"{name}-{one.name}"
        files[f"{release}.yaml"] = (f"# {one.replicas} x {one.rate_rps / one.replicas:.6g} requests/s\n"
                                    + yaml_text(_values(one, labels[one.application])))
        lines.append(f"helm upgrade --install {release} llm-d-modelservice/llm-d-modelservice --values "
                     f"{shlex.quote(release + '.yaml')}")
    files["install.sh"] = INSTALL.format(lines="\n".join(lines))
    return Exported(files | node_files(machines, name),
                    (*operator_notes(machines, name), LABELLING, *NOTES, *memory_notes(plan, instance), *notes))


def _values(one: Servers, label: str) -> dict[str, Any]:
    """The chart's values for one release, which has pods of one role only."""
    role = one.pool or "decode"
    return {
        "modelArtifacts": {"name": one.model, "uri": f"hf://{one.model}", "size": "500Gi",
                           "labels": {"llm-d.ai/inference-serving": "true", "llm-d.ai/model": label}},
        "accelerator": {"type": "nvidia", "resources": {"nvidia": one.resource}},
        "routing": {"servicePort": PORT, "proxy": {"enabled": one.pool == "decode", "targetPort": BEHIND_PROXY}},
        role: {
            "create": True,
            "replicas": one.replicas,
            "nodeSelector": {NODE_LABEL: one.node.name},
            "parallelism": {"tensor": one.devices, "data": 1},
            "containers": [_container(one)],
        },
    } | {other: {"create": False} for other in ROLES if other != role}


def _container(one: Servers) -> dict[str, Any]:
    """The server's container; the chart adds model, port, tensor parallelism and devices."""
    added = ("--served-model-name", "--tensor-parallel-size")
    port = BEHIND_PROXY if one.pool == "decode" else PORT
    return {
        "name": "vllm",
        "image": IMAGE,
        "modelCommand": "vllmServe",
        "args": [argument for argument in one.arguments if not argument.startswith(added)],
        "ports": [{"name": "metrics", "containerPort": port, "protocol": "TCP"}],
        "mountModelVolume": True,
    }
