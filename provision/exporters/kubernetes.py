"""Exports to Kubernetes: manifests and a Helm chart with dynamic resource allocation, slice by slice or GPU by GPU, and
manifests for NVIDIA's device plugin.

``manifests`` have a claim template per kind of slice and a Deployment per slice. MIG is static: the GPU operator
partitions the nodes. Slices with several processes or with SM percentages are shared under MPS, by the configuration in
their claim. ``helm`` writes the same as a chart, with values that name the image of each model (source: Helm's
documentation of charts).

``dra`` has one claim for all slices of a GPU, and one Deployment. A constraint that all devices have the same parent
puts the slices of a claim on one GPU. If no slice needs MPS, the driver creates the MIG devices itself, at the
placements of the plan: a claim selects them by the memory slices that a device takes.

For the device plugin, MIG devices and whole GPUs are extended resources, each for one process. The plugin has no MPS on
MIG devices. On whole GPUs it has only equal shares, which any pod may get (source: NVIDIA/k8s-device-plugin).

With dynamic resource allocation, pods request slices from NVIDIA's DRA driver by claims. Source: resource.k8s.io/v1;
NVIDIA's DRA driver for GPUs: attributes and capacities of its devices, its resource.nvidia.com/v1beta1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any, NamedTuple, TypeAlias

from provision.draw.output import plural
from provision.exporters.common import Attachment, Exported, nodes, prefix, slugs, yaml_text
from provision.exporters.mig_parted import LABELLING, label_script, node_files, notes, operator_notes, pod_notes
from provision.exporters.pods import Pod, check_spread, containers, image_names, kustomization, slice_pods
from provision.exporters.routing import APPLIED, serving
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE, group_of
from provision.models.plans.plan import Plan, PlannedGpu, Slice
from provision.models.problem.instance import Instance
from provision.verification.deployment import needs_mps

DRIVER = "gpu.nvidia.com"
CAPACITIES = f"device.capacity['{DRIVER}']"
"""The expression for the capacities of a MIG device. They contain ``memorySlice4`` if the device takes memory slice 4.
"""
GATES = "Claims with MPS need the driver's feature gate MPSSupport (alpha), which excludes DynamicMIG"
NEEDS = "Needs Kubernetes 1.34 and NVIDIA's DRA driver for GPUs"


class Wanted(NamedTuple):
    """A slice as a request of a claim describes it.

    Attributes
    ----------
    profile
        The profile of the slice.
    start
        The first memory slice of the slice; None for any.
    percent
        The largest percentage of SMs that one of its processes may use under MPS; None without MPS.
    """

    profile: str
    start: int | None
    percent: int | None

    @property
    def name(self) -> str:
        """A name for slices like this one, without their start."""
        slug = slugs([self.profile])[self.profile]
        plain = "gpu" if self.profile == WHOLE else slug if group_of(self.profile) else f"mig-{slug}"
        return plain if self.percent is None else f"{plain}-mps-{self.percent}"


def wanted(piece: Slice, pinned: bool = False) -> Wanted:
    """The request for a slice of a plan. If ``pinned``, it asks for the placement of the plan."""
    largest = max(replica.sm_share for replica in piece.replicas)
    percent = ceil(100 * largest - 1e-9) if needs_mps(piece) else None
    return Wanted(piece.profile, None if group_of(piece.profile) or not pinned else piece.start, percent)


def template(name: str, requests: Mapping[str, Wanted]) -> dict[str, Any]:
    """A claim template with these requests; the keys of ``requests`` are their names."""
    return _resource("ResourceClaimTemplate", name, {"spec": {"devices": _devices(requests)}})


def claim(name: str, requests: Mapping[str, Wanted]) -> dict[str, Any]:
    """A claim with these requests, whose names are the keys. All pods that name the claim share it."""
    return _resource("ResourceClaim", name, {"devices": _devices(requests)})


def _resource(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _devices(requests: Mapping[str, Wanted]) -> dict[str, Any]:
    """The devices of a claim. If there are several, all are slices of one GPU."""
    devices: dict[str, Any] = {
        "requests": [{"name": name, "exactly": _request(one)} for name, one in requests.items()]
    }
    if len(requests) > 1 and not any(group_of(one.profile) for one in requests.values()):
        devices["constraints"] = [{"requests": list(requests), "matchAttribute": f"{DRIVER}/parentUUID"}]
    config = [
        {"requests": [name], "opaque": {"driver": DRIVER, "parameters": _sharing(one)}}
        for name, one in requests.items() if one.percent is not None
    ]
    return devices | ({"config": config} if config else {})


def _request(one: Wanted) -> dict[str, Any]:
    if gpus := group_of(one.profile):
        return {"deviceClassName": DRIVER} | ({"count": gpus} if gpus > 1 else {})
    conditions = [f"device.attributes['{DRIVER}'].profile == '{one.profile}'"]
    if one.start is not None:
        conditions.append(f"'memorySlice{one.start}' in {CAPACITIES}")
    if one.start:
        conditions.append(f"!('memorySlice{one.start - 1}' in {CAPACITIES})")
    selectors = [{"cel": {"expression": condition}} for condition in conditions]
    return {"deviceClassName": "mig.nvidia.com", "selectors": selectors}


def _sharing(one: Wanted) -> dict[str, Any]:
    """The driver's configuration for a device that processes share under MPS."""
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig" if group_of(one.profile) else "MigDeviceConfig",
        "sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": one.percent}},
    }


IMAGE = re.compile(r'^( +image: )"?([a-z0-9-]+)"?$', re.MULTILINE)
TEMPLATES = ("claims.yaml", "deployments.yaml", "services.yaml", "mig-config.yaml")
ROUTES = ("gateway", "istio")
"""The values of ``routing`` that name a template of routes."""
HELM_NOTES = (
    f"`--set routing=` {' or '.join(ROUTES)} adds the routes of gateway.yaml or istio.yaml.",
    "`helm install NAME . --set images.MODEL=REGISTRY/IMAGE` for each model of values.yaml, or name them there.",
)
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


def manifests(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """The claim templates, the Deployments, their kustomization, and the files that prepare the nodes."""
    name = prefix(plan)
    machines = nodes(plan, gpus_per_node, name)
    check_spread(instance, machines)
    kinds = dict.fromkeys(wanted(piece) for gpu in plan.gpus for piece in gpu.slices if piece.replicas)

    def attach(piece: Slice) -> Attachment:
        claims = [{"name": "slice", "resourceClaimTemplateName": f"{name}-{wanted(piece).name}"}]
        return {"claims": [{"name": "slice"}]}, {"resourceClaims": claims}

    served = serving(instance, slice_pods(instance, machines, name, attach), name)
    files = {
        "claims.yaml": yaml_text(*(template(f"{name}-{kind.name}", {"slice": kind}) for kind in kinds)),
        "kustomization.yaml": kustomization(["claims.yaml", *APPLIED]),
    }
    return Exported(files | served.files | node_files(machines, name), (*notes(machines, name), *served.notes, *STEPS))


STEPS = (f"{NEEDS}; the driver sees new MIG devices after a restart of its kubelet plugin.", f"{GATES}.")


def helm(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """``Chart.yaml``, ``values.yaml``, templates of the manifests, and the script that labels the nodes."""
    name, served = prefix(plan), manifests(plan, instance, gpus_per_node)
    plain = served.files
    chart = {
        "apiVersion": "v2", "name": name, "version": "1.0.0", "type": "application",
        "description": f"{plural(plan.gpu_count, 'GPU')} for {plan.instance}",
    }
    files = {
        "Chart.yaml": yaml_text(chart),
        "values.yaml": yaml_text({"images": {one: one for one in image_names(instance).values()}, "routing": "none"}),
        "label-nodes.sh": plain["label-nodes.sh"],
    } | {f"templates/{file}": _template(plain[file]) for file in TEMPLATES if file in plain}
    files |= {f"templates/{one}.yaml": _chosen(one, plain[f"{one}.yaml"]) for one in ROUTES if f"{one}.yaml" in plain}
    before = operator_notes(nodes(plan, gpus_per_node, name), name)
    return Exported(files, (*before, LABELLING, *HELM_NOTES, *STEPS))


def _template(text: str) -> str:
    """A manifest as a template. Braces in it are escaped, and images come from the values."""
    plain = text.replace("{{", "{{ `{{` }}")
    return IMAGE.sub(r"\1{{ index .Values.images `\2` | quote }}", plain)


def _chosen(routing: str, text: str) -> str:
    """A template that Helm renders only if the values choose this routing."""
    return f'{{{{- if eq .Values.routing "{routing}" }}}}\n{_template(text)}{{{{- end }}}}\n'


def dra(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
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


def device_plugin(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
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
