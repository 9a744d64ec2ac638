"""Claims of dynamic resource allocation, by which pods request slices from NVIDIA's DRA driver.

Source: resource.k8s.io/v1; NVIDIA's DRA driver for GPUs: attributes and capacities of its devices, its
resource.nvidia.com/v1beta1.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

from provision.exporters.common import slugs
from provision.models.hardware.gpu import WHOLE, group_of
from provision.models.plans.plan import Slice
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
