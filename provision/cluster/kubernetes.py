"""Reads a Kubernetes cluster: nodes with their GPUs, pods with what they serve, and which device each pod has.

The objects come from a file, as ``kubectl get ... -A -o json`` writes it, or from the API server. GPUs are known from
the labels of NVIDIA's GPU feature discovery and device plugin, or exactly from the ResourceSlices and ResourceClaims of
dynamic resource allocation. Sources: NVIDIA k8s-device-plugin and GPU operator documentation; resource.k8s.io/v1.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from provision.applier.cluster.api import Cluster, NotAllowedError
from provision.applier.products import names_type, type_of
from provision.cluster.budgets import budgets_of
from provision.instances.files.files import FilePath, read_text
from provision.models.base.errors import InputError
from provision.models.hardware.geometry import geometry
from provision.models.hardware.gpu import WHOLE, GpuType, gpu_types

if TYPE_CHECKING:
    from provision.cluster.metrics import GpuSample
    from provision.cluster.state import Budget, Values

Object = dict[str, Any]
READ = {
    "Node": ("v1",), "Pod": ("v1",), "ReplicaSet": ("apps/v1",),
    "ResourceSlice": ("resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1"),
    "ResourceClaim": ("resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1"),
    "PodDisruptionBudget": ("policy/v1",),
}
"""The kinds of objects that are read, with the versions known, newest first."""
OPTIONAL = {"ResourceSlice", "ResourceClaim", "PodDisruptionBudget"}
"""Kinds that a cluster need not know."""
DRIVER = "gpu.nvidia.com"
GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-"
MOST_GPUS = 16
"""The most GPUs that a machine is taken to have where its labels do not tell."""


@dataclass
class Device:
    """A slice of a GPU that pods can have: its profile, its start, its names in DRA, and the pods on it."""

    profile: str
    start: int
    names: set[str] = field(default_factory=set)
    pods: list[Pod] = field(default_factory=list)
    most: int = 1


@dataclass
class Gpu:
    """A GPU that was found."""

    node: str
    number: int
    kind: GpuType
    mig: bool
    devices: list[Device]
    uuid: str = ""
    sharing: str = "none"
    sample: GpuSample | None = None


@dataclass
class Pod:
    """A running pod that has GPUs: its owner, its containers, and how many slices of which profile it asks for."""

    namespace: str
    name: str
    node: str
    owner: str
    containers: list[Object]
    notes: Mapping[str, str]
    asked: Counter[str]
    claimed: list[tuple[str, str]]

    @property
    def label(self) -> str:
        """The namespace and the name."""
        return f"{self.namespace}/{self.name}"


@dataclass
class Found:
    """The GPUs and pods that were read from a cluster; ``notes`` are sentences on what was left out."""

    gpus: list[Gpu]
    pods: list[Pod]
    notes: list[str]
    budgets: Sequence[Budget] = ()


def objects_in(path: FilePath) -> list[Object]:
    """The objects in a file of ``kubectl get -o json`` or ``-o yaml``; a List counts as its items.

    Raises
    ------
    InputError
        If the file cannot be read, or has no objects of Kubernetes.
    """
    text = read_text(path)
    try:
        documents = [json.loads(text)] if Path(path).suffix == ".json" else list(
            yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: is no {'JSON' if Path(path).suffix == '.json' else 'YAML'}: {error}; write it anew "
                         "with kubectl get -o json") from None
    found: list[Object] = []
    for document in documents:
        items = document.get("items") if isinstance(document, dict) and "items" in document else [document]
        if not isinstance(items, list) or not all(isinstance(one, dict) and isinstance(one.get("kind"), str)
                                                  and isinstance(one.get("metadata"), dict) for one in items):
            raise InputError(f"{path}: has something that is no object of Kubernetes; write it with kubectl get "
                             "nodes,pods,replicasets,resourceslices,resourceclaims,poddisruptionbudgets -A -o json")
        found += items
    for one in found:
        known = READ.get(one["kind"], ())
        if known and one.get("apiVersion") not in known:
            raise InputError(f"{path}: {one['kind']} {one['metadata'].get('name')}: version {one.get('apiVersion')!r} "
                             f"is unknown; ask the server for {known[0]}, as in kubectl get {one['kind'].lower()}s."
                             f"{'.'.join(reversed(known[0].split('/')))}")
    return found


def objects_live(context: str | None, notes: list[str]) -> list[Object]:
    """The objects of the cluster that the kubeconfig names; adds a note if it does without a kind.

    Raises
    ------
    InputError
        If the server cannot be reached, or the user may not list one of the kinds.
    """
    cluster = Cluster("default", context)
    found: list[Object] = []
    for kind, versions in READ.items():
        try:
            listed = next((one for version in versions if (one := cluster.every(version, kind)) is not None), None)
        except NotAllowedError as error:
            if kind != "PodDisruptionBudget":
                raise
            notes.append(f"{error}; until then budgets are not known, and moves may break them")
            continue
        if listed is None and kind not in OPTIONAL:
            raise InputError(f"{kind}: the cluster knows no {versions[0]}; use one of version 1.29 or later")
        found += listed or []
    return found


def found_in(objects: Sequence[Object], samples: Sequence[GpuSample], values: Values) -> Found:
    """The GPUs of a cluster with the pods that have them.

    Parameters
    ----------
    objects
        The cluster's objects.
    samples
        What DCGM tells of its GPUs; it names the pod on each.
    values
        Where provenance and questions are kept.

    Raises
    ------
    InputError
        If there is no node with a GPU of a known type.
    """
    notes: list[str] = []
    by_kind: dict[str, list[Object]] = {}
    for one in objects:
        by_kind.setdefault(one["kind"], []).append(one)
    pods = list(_pods(by_kind, notes))
    slices = [one for one in by_kind.get("ResourceSlice", []) if one["spec"].get("driver") == DRIVER]
    taken = {name for pod in pods for name in pod.claimed}
    gpus: list[Gpu] = []
    for node in sorted(by_kind.get("Node", []), key=lambda one: str(one["metadata"]["name"])):
        name = node["metadata"]["name"]
        own = [one for one in slices if one["spec"].get("nodeName") == name]
        seen = [one for one in samples if name in (one.labels.get("Hostname"), one.labels.get("node"))]
        here = list(_by_dra(name, own, taken, notes)) if own else _by_labels(node, seen, values, notes)
        _seat(name, here, [pod for pod in pods if pod.node == name], seen, values, notes)
        gpus += here
    if not gpus:
        raise InputError(notes[0] if notes else "kubernetes: no node has a GPU; read the cluster with the GPU "
                         "operator's labels (nvidia.com/gpu.product) or its ResourceSlices")
    return Found(gpus, pods, notes, tuple(budgets_of(by_kind.get("PodDisruptionBudget", []), by_kind.get("Pod", []))))


def _by_dra(node: str, slices: Sequence[Object], taken: set[tuple[str, str]], notes: list[str]) -> Iterator[Gpu]:
    """Yield the GPUs of a node that its ResourceSlices list."""
    gpus: dict[str, Gpu] = {}
    parts: list[tuple[str, str, Object, Object]] = []
    for one in slices:
        pool = one["spec"]["pool"]["name"]
        for device in one["spec"].get("devices", []):
            body = device.get("basic", device)
            attributes = {key.rpartition("/")[2]: next(iter(value.values()), "")
                          for key, value in body.get("attributes", {}).items()}
            if attributes.get("type") == "gpu":
                kind = type_of(str(attributes.get("productName", "")).replace("_", "-"))
                if kind is None:
                    notes.append(_unknown(node, str(attributes.get("productName"))))
                    continue
                uuid = str(attributes.get("uuid", device["name"]))
                gpus[uuid] = Gpu(node, len(gpus), kind, False, [Device(WHOLE, 0, {f"{pool}/{device['name']}"})], uuid)
            elif attributes.get("type") == "mig":
                parts.append((pool, device["name"], body, attributes))
    for pool, name, body, attributes in parts:
        if body.get("consumesCounters") and (pool, name) not in taken:
            continue  # a device that could be made, not one that exists
        gpu = gpus.get(str(attributes.get("parentUUID")))
        profile = str(attributes.get("profile"))
        kind = gpu.kind if gpu else (
            next((one.kind for one in gpus.values() if profile in one.kind.profiles), None)
            or next((one for one in gpu_types().values() if profile in one.profiles
                     and names_type(str(attributes.get("productName", "")), one)), None))
        if kind is None or profile not in kind.profiles:
            notes.append(_unknown(node, f"{attributes.get('productName')} with {profile}"))
            continue
        if gpu is None:
            uuid = str(attributes.get("parentUUID"))
            gpu = gpus[uuid] = Gpu(node, len(gpus), kind, True, [], uuid)
        if not gpu.mig:
            gpu.mig, gpu.devices = True, []
        starts = [int(match[1]) for key in body.get("capacity", {}) if (match := re.search(r"memorySlice(\d+)$", key))]
        gpu.devices.append(Device(profile, min(starts, default=0), {f"{pool}/{name}"}))
    yield from gpus.values()


def _by_labels(node: Object, samples: Sequence[GpuSample], values: Values, notes: list[str]) -> list[Gpu]:
    """The GPUs of a node that its labels and capacity tell."""
    name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
    capacity = (node.get("status") or {}).get("capacity") or {}
    product = labels.get("nvidia.com/gpu.product", "")
    many = {key: int(value) for key, value in capacity.items() if key.startswith("nvidia.com/")
            and str(value).isdecimal() and int(value)}
    if not product:
        if many:
            notes.append(f"node {name}: offers {next(iter(many))} and has no label nvidia.com/gpu.product; run "
                         "NVIDIA's GPU feature discovery there; it is left out")
        return []
    plain, _, single = product.removesuffix("-SHARED").partition("-MIG-")
    kind = type_of(plain.replace("_", "-"))
    if kind is None:
        notes.append(_unknown(name, plain))
        return []
    replicas = labels.get("nvidia.com/gpu.replicas", "")
    shared = max(int(replicas), 1) if replicas.isdecimal() else 1
    counts = Counter({key.removeprefix(MIG).replace(".me", "+me").removesuffix(".shared"): number
                      for key, number in many.items() if key.startswith(MIG)})
    units = many.get(GPU, 0) + many.get(f"{GPU}.shared", 0)
    if single:
        counts[single] = units // shared
    unknown = [profile for profile in counts if profile not in kind.profiles]
    if unknown:
        notes.append(f"node {name}: {kind.name} has no profile {unknown[0]}; it is left out: see provision gpus")
        return []
    sharing = labels.get("nvidia.com/gpu.sharing-strategy", "none") if shared > 1 else "none"
    label = labels.get("nvidia.com/gpu.count", "")
    told = int(label) if label.isdecimal() else 0
    gpus: list[Gpu] = []
    if counts:
        gpus += _partitioned(name, kind, counts, told - (0 if single else units // shared), samples, values)
    whole = 0 if single else units // shared
    for number in range(len(gpus), len(gpus) + whole):
        gpus.append(Gpu(name, number, kind, False, [Device(WHOLE, 0, most=shared)], sharing=sharing))
    values.note(f"gpus.{name}", "observed", "labels and capacity of the node")
    return gpus


def _partitioned(name: str, kind: GpuType, counts: Counter[str], told: int, samples: Sequence[GpuSample], values: Values
                 ) -> list[Gpu]:
    """GPUs that have these MIG instances: as DCGM tells, or all alike, on as few GPUs as can have them."""
    shape = geometry(kind, kind.profiles)
    seen: dict[str, Counter[str]] = {}
    for one in samples:
        if profile := one.labels.get("GPU_I_PROFILE"):
            instances = seen.setdefault(one.labels.get("gpu", one.labels.get("UUID", "")), Counter())
            instances[profile] += 1
    if sum(seen.values(), Counter()) == counts:
        each = [seen[number] for number in sorted(seen)]
        values.note(f"placement.{name}", "observed", "DCGM's labels GPU_I_PROFILE; starts as first fit has them")
    else:
        alike = [many for many in range(1, MOST_GPUS + 1) if all(number % many == 0 for number in counts.values())
                 and shape.place([counts[profile] // many for profile in kind.profiles]) is not None]
        counted = float(told) if told in alike else None
        typed = values.number(f"gpus.{name}", counted, "observed", "nvidia.com/gpu.count")
        many = int(typed) if typed is not None and int(typed) in alike else min(alike, default=0)
        if not many:
            raise InputError(f"node {name}: its MIG devices fit on no number of equal GPUs; read DCGM's metrics too, "
                             "with --prometheus URL")
        if typed is None:
            values.asked(f"gpus.{name}", f"How many GPUs does {name} have?", many,
                         "the fewest GPUs that have its MIG devices, all alike")
        values.note(f"placement.{name}", "assumed", "MIG devices dealt evenly over the GPUs")
        each = [Counter({profile: number // many for profile, number in counts.items()})] * many
    gpus = []
    for number, own in enumerate(each):
        state = shape.place([own[profile] for profile in kind.profiles])
        if state is None:
            raise InputError(f"node {name}: DCGM tells of MIG instances that no {kind.name} can have; update its "
                             "exporter")
        devices = [Device(shape.profiles[index].name, start) for start, index in state]
        gpus.append(Gpu(name, number, kind, True, devices))
    return gpus


def _seat(node: str, gpus: Sequence[Gpu], pods: Sequence[Pod], samples: Sequence[GpuSample], values: Values,
          notes: list[str]) -> None:
    """Give every pod of a node its devices: those of its claims, those that DCGM names, or the first that are free."""
    devices = [(gpu, device) for gpu in gpus for device in gpu.devices]
    by_name = {name: device for _, device in devices for name in device.names}
    guessed = 0
    for sample in samples:
        for gpu in gpus:
            if str(gpu.number) == sample.labels.get("gpu") and not sample.labels.get("GPU_I_PROFILE"):
                gpu.sample, gpu.uuid = sample, gpu.uuid or sample.labels.get("UUID", "")
    for pod in pods:
        for pool, name in pod.claimed:
            if f"{pool}/{name}" in by_name:
                by_name[f"{pool}/{name}"].pods.append(pod)
        for profile, number in pod.asked.items():
            wanted = devices[0][1].profile if profile == "any" and devices else profile
            told = [device for gpu, device in devices if _told(pod, gpu, device, samples)]
            free = [device for _, device in devices if device.profile == wanted and len(device.pods) < device.most
                    and device not in told]
            seats = (told + free)[:number]
            if len(seats) < number:
                notes.append(f"pod {pod.label}: asks for {number} of {wanted}, and {node} has no more; its GPUs are "
                             "not known and it is left out")
                continue
            guessed += number > len(told) and len(free) > number - len(told)
            for device in seats:
                device.pods.append(pod)
    if guessed:
        values.note(f"placement.{node}", "assumed", "pods dealt to devices in the order of their names")
        notes.append(f"node {node}: neither claims nor DCGM tell which device each pod has; taken in the order of "
                     "their names (--prometheus URL with DCGM's metrics tells)")


def _told(pod: Pod, gpu: Gpu, device: Device, samples: Sequence[GpuSample]) -> bool:
    """Whether DCGM names a pod on a device that still has room."""
    return len(device.pods) < device.most and any((one.labels.get("exported_pod") or one.labels.get("pod")) == pod.name
        and (one.labels.get("exported_namespace") or one.labels.get("namespace")) == pod.namespace
        and one.labels.get("gpu") == str(gpu.number)
        and (one.labels.get("GPU_I_PROFILE") or WHOLE) == device.profile for one in samples)


def _pods(by_kind: Mapping[str, Sequence[Object]], notes: list[str]) -> Iterator[Pod]:
    """Yield the running pods that have GPUs, in the order of their names."""
    sets = {(one["metadata"].get("namespace"), one["metadata"]["name"]): one for one in by_kind.get("ReplicaSet", [])}
    claims = {(one["metadata"].get("namespace"), one["metadata"]["name"]): one
              for one in by_kind.get("ResourceClaim", [])}
    every = by_kind.get("Pod", [])
    for one in sorted(every, key=lambda pod: (pod["metadata"].get("namespace", ""), pod["metadata"]["name"])):
        meta, spec, status = one["metadata"], one.get("spec", {}), one.get("status", {})
        namespace = meta.get("namespace", "default")
        containers = spec.get("containers", [])
        asked: Counter[str] = Counter()
        for container in containers:
            for name, number in ((container.get("resources") or {}).get("limits") or {}).items():
                if name in (GPU, f"{GPU}.shared"):
                    asked["any"] += int(number)
                elif name.startswith(MIG):
                    asked[name.removeprefix(MIG).removesuffix(".shared").replace(".me", "+me")] += int(number)
        claimed = list(_claimed(namespace, spec, status, claims))
        if not asked and not claimed:
            continue
        if status.get("phase") != "Running" or "nodeName" not in spec:
            notes.append(f"pod {namespace}/{meta['name']}: is {status.get('phase', 'of no phase')}, and not counted")
            continue
        yield Pod(namespace, meta["name"], spec["nodeName"], _owner(namespace, meta, sets), containers,
                  (meta.get("annotations") or {}) | (meta.get("labels") or {}), asked, claimed)


def _claimed(namespace: str, spec: Object, status: Object, claims: Mapping[tuple[Any, Any], Object]
             ) -> Iterator[tuple[str, str]]:
    """Yield the devices (pool, name) that a pod's claims were given."""
    made = {one["name"]: one.get("resourceClaimName") for one in status.get("resourceClaimStatuses") or []}
    for one in spec.get("resourceClaims") or []:
        claim = claims.get((namespace, one.get("resourceClaimName") or made.get(one["name"])))
        allocation = ((claim or {}).get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or []:
            if result.get("driver") == DRIVER:
                yield result["pool"], result["device"]


def _owner(namespace: str, meta: Object, sets: Mapping[tuple[Any, Any], Object]) -> str:
    """The name of what made a pod, such as its Deployment; empty if nothing did."""
    owners = meta.get("ownerReferences") or []
    if not owners:
        return ""
    owner = next((one for one in owners if one.get("controller")), owners[0])
    if owner["kind"] != "ReplicaSet":
        return str(owner["name"])
    above = (sets.get((namespace, owner["name"])) or {"metadata": {}})["metadata"].get("ownerReferences") or []
    return str(above[0]["name"]) if above else re.sub(r"-[a-z0-9]{5,10}$", "", str(owner["name"]))


def _unknown(node: str, product: str) -> str:
    return (f"node {node}: no GPU type is called {product!r}; add one with provision gpus --add FILE; the node is left "
            "out")
