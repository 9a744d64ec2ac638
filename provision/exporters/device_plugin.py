"""Export to Kubernetes with NVIDIA's device plugin: MIG devices and whole GPUs are extended resources, each for one
process.

The plugin has no MPS on MIG devices. On whole GPUs it has only equal shares, which any pod may get. Source:
NVIDIA/k8s-device-plugin.
"""

from __future__ import annotations

from provision.exporters.cluster import node_files, notes
from provision.exporters.common import Attachment, Exported, nodes, prefix
from provision.exporters.pods import check_spread, kustomization, slice_pods
from provision.exporters.routing.routes import APPLIED, serving
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import group_of
from provision.models.plans.plan import Plan, Slice
from provision.models.problem.instance import Instance
from provision.verification.deployment import needs_mps


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """The Deployments, their kustomization, and the files that prepare the nodes."""
    name = prefix(plan)
    machines = nodes(plan, gpus_per_node, name)
    check_spread(instance, machines)
    for index, gpu in enumerate(plan.gpus):
        for position, piece in enumerate(gpu.slices):
            _check(f"kubernetes-device-plugin: GPU {index}, slice {position}", piece)
    served = serving(instance, slice_pods(instance, machines, name, _attach), name)
    files = {"kustomization.yaml": kustomization(APPLIED)}
    return Exported(files | served.files | node_files(machines, name), (*notes(machines, name), *served.notes))


def _check(where: str, piece: Slice) -> None:
    if not needs_mps(piece):
        return
    if group_of(piece.profile) is None:
        raise InputError(f"{where}: the device plugin has no MPS on MIG devices, which this needs; use --to kubernetes "
                         "or plan with mps: false in the fleet")
    raise InputError(
        f"{where}: the device plugin's MPS deals equal shares, on any GPU, to any pod, which is not what is planned; "
        "use --to kubernetes"
    )


def _attach(piece: Slice) -> Attachment:
    gpus = group_of(piece.profile)
    name = "gpu" if gpus else "mig-" + piece.profile.replace("+", ".")
    return {"limits": {f"nvidia.com/{name}": gpus or 1}}, {}
