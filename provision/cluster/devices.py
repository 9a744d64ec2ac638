"""Finds the GPUs of a node and the slices that pods can have there: exactly, from the ResourceSlices of dynamic
resource allocation, or from the labels of NVIDIA's GPU feature discovery, device plugin and GPU operator.

Sources: NVIDIA k8s-device-plugin and GPU operator documentation; resource.k8s.io/v1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from provision.cluster.metrics import GpuSample
from provision.cluster.objects import Object
from provision.cluster.state import Values
from provision.models.base.errors import InputError
from provision.models.hardware.geometry import geometry
from provision.models.hardware.gpu import WHOLE, GpuType, gpu_types, names_type, type_of

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


def by_dra(node: str, slices: Sequence[Object], taken: set[tuple[str, str]], notes: list[str]) -> Iterator[Gpu]:
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


def by_labels(node: Object, samples: Sequence[GpuSample], values: Values, notes: list[str]) -> list[Gpu]:
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


def _unknown(node: str, product: str) -> str:
    return (f"node {node}: no GPU type is called {product!r}; add one with provision gpus --add FILE; the node is left "
            "out")
