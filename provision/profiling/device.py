"""Finds the device to measure on from the environment: the GPU type, the MIG profile, the MPS percentage."""

import os
import re
from dataclasses import dataclass
from typing import Any

import pynvml

from provision.applier.products import names_type
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE, GpuType, gpu_types

DEVICE = re.compile(r"\d{1,4}|(?:GPU|MIG)-\S+")


@dataclass(frozen=True)
class Device:
    """A GPU type, a profile, and the percentage of the profile's SMs that a client may use under MPS."""

    gpu: str
    profile: str
    sm_percent: float = 100.0


def device_of_environment() -> Device:
    """Return the device that CUDA programs use in this environment.

    ``CUDA_VISIBLE_DEVICES`` names the device (by default the first GPU), and ``CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`` its
    percentage of the SMs. Raises InputError if there is no NVIDIA driver or GPU, or the GPU's type is unknown, or the
    GPU is partitioned but no slice is named.
    """
    name, sm_percent = _visible(), _sm_percent()
    try:
        pynvml.nvmlInit()
        try:
            return Device(*_type_and_profile(name), sm_percent)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise InputError(f"profile: no NVIDIA GPU can be measured here: {error}; run it where one is") from None


def _visible() -> str:
    """The first visible device: its index, its UUID or its MIG UUID."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    first = names.split(",")[0].strip()
    if not DEVICE.fullmatch(first):
        raise InputError(f"CUDA_VISIBLE_DEVICES={names}: should begin with an index, GPU-... or MIG-...; correct it")
    return first


def _sm_percent() -> float:
    percent = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")
    try:
        sm_percent = float(percent)
    except ValueError:
        sm_percent = 0.0
    if not 0 < sm_percent <= 100:
        raise InputError(f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percent}: should be above 0 and at most 100; correct it")
    return sm_percent


def _type_and_profile(name: str) -> tuple[str, str]:
    """The names of the GPU type and the profile of a device."""
    by_index, by_uuid = pynvml.nvmlDeviceGetHandleByIndex, pynvml.nvmlDeviceGetHandleByUUID
    device = by_index(int(name)) if name.isdigit() else by_uuid(name)
    if name.startswith("MIG-"):
        kind = _type(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device))
        return kind.name, profile_of(kind, pynvml.nvmlDeviceGetAttributes_v2(device))
    kind = _type(device)
    if kind.mig and pynvml.nvmlDeviceGetMigMode(device)[0]:
        raise InputError(f"profile: GPU {name} is in MIG mode; set CUDA_VISIBLE_DEVICES to one of its MIG-...")
    return kind.name, WHOLE


def profile_of(kind: GpuType, held: Any) -> str:
    """Return the name of the profile of a MIG instance with the NVML attributes ``held``.

    Profiles that differ only in media engines count as equal, since media engines do not affect measurements.
    """
    compute, sms, memory_gib = held.gpuInstanceSliceCount, held.multiprocessorCount, held.memorySizeMB / 1024
    plain = [one for one in kind.profiles.values() if one.variant != "media"]
    alike = [one for one in plain if (one.compute, one.sms) == (compute, sms)]
    if not alike:
        raise InputError(f"profile: no profile of {kind.name} has {compute} compute slices and {sms} SMs, as this one")
    return min(alike, key=lambda one: abs(one.memory_gib - memory_gib)).name


def _type(device: Any) -> GpuType:
    """The GPU type of an NVML device."""
    product = pynvml.nvmlDeviceGetName(device)
    for kind in gpu_types().values():
        if names_type(product, kind):
            return kind
    raise InputError(f"profile: {product} is no GPU type that ships; known: {', '.join(gpu_types())}")
