"""Export to Kubernetes with dynamic resource allocation, GPU by GPU: each GPU has one claim for all its slices, and one
Deployment.

A constraint that all devices have the same parent puts the slices of a claim on one GPU. If no slice needs MPS, the
driver creates the MIG
devices itself, at the placements of the plan: a claim selects them by the memory slices that a device takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from provision.exporters.claims import GATES, NEEDS, Wanted, template, wanted
from provision.exporters.cluster import label_script, node_files, notes, pod_notes
from provision.exporters.common import Exported, nodes, prefix, yaml_text
from provision.exporters.pods import Pod, check_spread, containers, kustomization
from provision.exporters.routing.routes import APPLIED, serving
from provision.models.plans.plan import Plan, PlannedGpu
from provision.models.problem.instance import Instance
from provision.verification.deployment import needs_mps

Requests: TypeAlias = tuple[tuple[str, Wanted], ...]
"""The requests in the claim of a GPU, each with the name of its slice."""

DYNAMIC = (
    f"{NEEDS} with its feature gate DynamicMIG (alpha): it makes the MIG devices where the claims pin them. Nodes have "
    "MIG mode on and no partitions. DynamicMIG excludes MPSSupport, which this plan does not need."
)
STATIC = (
    f"{NEEDS}. {GATES}: the GPU operator partitions the nodes beforehand, and where the slices of a GPU start is left "
    "to it."
)


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """The claim templates, the Deployments, their kustomization, and the files that prepare the nodes."""
    name = prefix(plan)
    machines = nodes(plan, gpus_per_node, name)
    check_spread(instance, machines)
    shared = any(needs_mps(piece) for gpu in plan.gpus for piece in gpu.slices)
    asked = {index: _requests(gpu, pinned=not shared) for index, gpu in enumerate(plan.gpus)}
    kinds = {kind: f"{name}-{number}" for number, kind in enumerate(dict.fromkeys(filter(None, asked.values())))}
    pods = [
        Pod(f"{name}-gpu{index:03d}", node, tuple(_containers(instance, gpu)), {
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": kinds[asked[index]]}]
        })
        for node in machines for index, gpu in node.gpus if asked[index]
    ]
    served = serving(instance, pods, name)
    files = {
        "claims.yaml": yaml_text(*(template(kinds[kind], dict(kind)) for kind in kinds)),
        "kustomization.yaml": kustomization(["claims.yaml", *APPLIED]),
    } | served.files
    if shared:
        return Exported(files | node_files(machines, name), (*notes(machines, name), *served.notes, STATIC))
    label = {"label-nodes.sh": label_script(machines, partitioned=False)}
    return Exported(files | label, (*pod_notes(), *served.notes, DYNAMIC))


def _requests(gpu: PlannedGpu, pinned: bool) -> Requests:
    """The requests in the claim of a GPU; empty if the GPU is idle."""
    served = [(f"slice{position}", piece) for position, piece in enumerate(gpu.slices) if piece.replicas]
    return tuple((name, wanted(piece, pinned)) for name, piece in served)


def _containers(instance: Instance, gpu: PlannedGpu) -> Iterator[dict[str, Any]]:
    """Yield the containers of all slices of a GPU, each with its slice of the claim."""
    for position, piece in enumerate(gpu.slices):
        name = f"slice{position}"
        yield from containers(instance, piece, {"claims": [{"name": "gpu", "request": name}]}, f"{name}-process")
