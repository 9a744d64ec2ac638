"""Kubernetes with dynamic resource allocation: a claim template per kind of slice, a Deployment per slice.

MIG is static: the GPU operator partitions the nodes. Slices with several processes or with SM percentages are
shared under MPS by their claim's configuration. Source: resource.k8s.io/v1; NVIDIA's DRA driver for GPUs, its
resource.nvidia.com/v1beta1.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from provision.exporters.common import Exported, nodes, slugs, uses_mps, yaml_text
from provision.exporters.pods import check_spread, deployments, kustomization, node_files, notes
from provision.models.hardware.gpu import WHOLE

if TYPE_CHECKING:
    from provision.exporters.common import Attachment
    from provision.models.plans.plan import Plan, Slice
    from provision.models.problem.instance import Instance

DRIVER = "gpu.nvidia.com"


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """Claim templates, Deployments, their kustomization, and what prepares the nodes."""
    machines = nodes(plan, gpus_per_node)
    check_spread(instance, machines)
    pieces = {_kind(piece): piece for gpu in plan.gpus for piece in gpu.slices if piece.replicas}
    names = {kind: _name(*kind) for kind in pieces}
    files = {
        "claims.yaml": yaml_text(*(_template(names[kind], *kind) for kind in pieces)),
        "deployments.yaml": deployments(instance, machines, lambda piece: _attach(names[_kind(piece)])),
        "kustomization.yaml": kustomization(["claims.yaml", "deployments.yaml"]),
    }
    return Exported(files | node_files(machines), (*notes(machines), *NOTES))


NOTES = (
    "Needs Kubernetes 1.34 and NVIDIA's DRA driver for GPUs; the driver sees new MIG devices after a restart of its "
    "kubelet plugin.",
    "Claims with MPS need the driver's feature gate MPSSupport (alpha), which excludes DynamicMIG.",
)


def _kind(piece: Slice) -> tuple[str, int | None]:
    """What a claim asks for: the profile, and the largest thread percentage under MPS or None."""
    largest = max(replica.sm_share for replica in piece.replicas) if piece.replicas else 1
    return piece.profile, ceil(100 * largest - 1e-9) if uses_mps(piece) else None


def _name(profile: str, percent: int | None) -> str:
    plain = "gpu" if profile == WHOLE else "mig-" + slugs([profile])[profile]
    return plain if percent is None else f"{plain}-mps-{percent}"


def _attach(template: str) -> Attachment:
    resources = {"claims": [{"name": "slice"}]}
    return resources, {"resourceClaims": [{"name": "slice", "resourceClaimTemplateName": template}]}


def _template(name: str, profile: str, percent: int | None) -> dict[str, Any]:
    whole = profile == WHOLE
    request: dict[str, Any] = {"deviceClassName": DRIVER if whole else "mig.nvidia.com"}
    if not whole:
        expression = f"device.attributes['{DRIVER}'].profile == '{profile}'"
        request["selectors"] = [{"cel": {"expression": expression}}]
    devices: dict[str, Any] = {"requests": [{"name": "slice", "exactly": request}]}
    if percent is not None:
        shared = _mps("GpuConfig" if whole else "MigDeviceConfig", percent)
        devices["config"] = [{"requests": ["slice"], "opaque": shared}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": devices}},
    }


def _mps(kind: str, percent: int) -> dict[str, Any]:
    """The driver's configuration of a device that processes share under MPS."""
    sharing = {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": percent}}
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, "sharing": sharing}
    return {"driver": DRIVER, "parameters": parameters}
