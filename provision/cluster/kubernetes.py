"""Reads a Kubernetes cluster: its nodes with their GPUs, its pods, which device each pod has, and the budgets for their
disruption.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provision.cluster.devices import GPU, MIG, Device, Gpu, Pod, by_dra, by_labels
from provision.cluster.metrics import GpuSample
from provision.cluster.objects import Object
from provision.cluster.state import Budget, Values
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE

DRIVER = "gpu.nvidia.com"


@dataclass
class Found:
    """The GPUs and pods that were read from a cluster; ``notes`` are sentences on what was left out."""

    gpus: list[Gpu]
    pods: list[Pod]
    notes: list[str]
    budgets: Sequence[Budget] = ()


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
        here = list(by_dra(name, own, taken, notes)) if own else by_labels(node, seen, values, notes)
        _seat(name, here, [pod for pod in pods if pod.node == name], seen, values, notes)
        gpus += here
    if not gpus:
        raise InputError(notes[0] if notes else "kubernetes: no node has a GPU; read the cluster with the GPU "
                         "operator's labels (nvidia.com/gpu.product) or its ResourceSlices")
    return Found(gpus, pods, notes, tuple(budgets_of(by_kind.get("PodDisruptionBudget", []), by_kind.get("Pod", []))))


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


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether labels fit a selector of Kubernetes; an empty one fits all."""
    for one in selector.get("matchExpressions") or []:
        value, among = labels.get(one["key"]), one.get("values") or []
        fits = {"In": value in among, "NotIn": value not in among, "Exists": value is not None,
                "DoesNotExist": value is None}
        if not fits.get(one["operator"], False):
            return False
    return all(labels.get(name) == value for name, value in (selector.get("matchLabels") or {}).items())


def budgets_of(objects: Iterable[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]) -> Iterator[Budget]:
    """Yield the budgets among these objects, each with those of the pods that it protects."""
    metas = [one["metadata"] for one in pods]
    for one in objects:
        selector, namespace = one.get("spec", {}).get("selector"), one["metadata"].get("namespace", "default")
        held = tuple(f"{namespace}/{meta['name']}" for meta in metas if meta.get("namespace", "default") == namespace
                     and selector is not None and matches(selector, meta.get("labels") or {}))
        yield Budget(name=f"{namespace}/{one['metadata']['name']}", pods=held,
                     allowed=int((one.get("status") or {}).get("disruptionsAllowed", 0)))
