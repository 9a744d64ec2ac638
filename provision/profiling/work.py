"""What a measurement needs: the device, the work that is measured, and a background load on a core.

The device is found from the environment: the GPU type, the MIG profile, the MPS percentage. The work is one of
torchvision's models, or any callable.
"""

import multiprocessing
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np
import pynvml

from provision.models.base.clock import Stopwatch
from provision.models.base.errors import InputError
from provision.models.base.objects import known
from provision.models.hardware.gpu import WHOLE, GpuType, gpu_types, names_type

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


IMAGE = (3, 224, 224)
LARGER = {"inception_v3": (3, 299, 299)}
"""The shapes of one input of those torchvision models whose input is not of the shape IMAGE. Models of other packages
are measured as callables.
"""


def load(name: str, device: str, batch: int) -> Callable[[], object]:
    """Return a function that runs one batch, and that returns when the work of the batch is submitted.

    Parameters
    ----------
    name
        ``torchvision:resnet50``, or ``package.module:factory``, where ``factory(device, batch)`` returns the function.
    device
        ``cuda`` or ``cpu``.
    batch
        The number of requests in the batch.

    Raises
    ------
    InputError
        If there is no such model, module or factory.
    """
    source, colon, what = name.partition(":")
    if not (source and colon and what):
        raise InputError(f"model {name!r}: write torchvision:resnet50 or package.module:factory")
    if source == "torchvision":
        return _torchvision(what, device, batch)
    try:
        factory = getattr(import_module(source), what)
    except (ImportError, AttributeError) as error:
        raise InputError(f"model {name!r}: cannot be loaded: {error}; is it on the Python path?") from None
    return factory(device, batch)


def _torchvision(name: str, device: str, batch: int) -> Callable[[], object]:
    """A torchvision classifier with random weights; it is as fast as one with trained weights."""
    try:
        import torch
        from torchvision import models
    except ImportError:
        raise InputError("torchvision is not installed; pip install 'gpu-provision[profile]'") from None
    if name not in models.list_models(module=models):
        raise InputError(f"model torchvision:{name}: torchvision has no such classifier")
    options = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
    model = models.get_model(name, weights=None, **options).eval().to(device)
    data = torch.randn(batch, *LARGER.get(name, IMAGE), device=device)

    def run() -> None:
        with torch.inference_mode():
            model(data)

    return run


STEP_BYTES = 4 * 2**20
PATIENCE_S = 60
UNKNOWN_L3_MIB = 512


@contextmanager
def background(level: float, core: int, l3_mib: float | None) -> Iterator[Callable[[], float] | None]:
    """Stream on a core for the fraction ``level`` of the time; yield a function that returns the mean GB/s so far.

    Parameters
    ----------
    level
        From 0 to 1; at 0 there is no process, and None is yielded.
    core
        The number of the core.
    l3_mib
        Size of the L3 cache; None if it is not known.
    """
    if level == 0:
        yield None
        return
    context = multiprocessing.get_context("spawn")
    copied, ready = context.Value("Q", 0), context.Event()
    half_bytes = int((l3_mib or UNKNOWN_L3_MIB) * 2**20)
    process = context.Process(target=_stream, args=(level, core, half_bytes, copied, ready), daemon=True)
    process.start()
    try:
        if not ready.wait(PATIENCE_S):
            raise InputError("profile-layers: the background load did not start; see what it printed")
        before, watch = copied.value, Stopwatch()
        yield lambda: 2 * (copied.value - before) / watch.elapsed_s / 1e9
    finally:
        process.kill()
        process.join()


def _stream(level: float, core: int, half_bytes: int, copied: Any, ready: Event) -> None:
    """Run in the process of the load, until the process that started it ends."""
    os.sched_setaffinity(0, {core})
    source, target = np.ones(half_bytes, np.uint8), np.zeros(half_bytes, np.uint8)
    ready.set()
    while known(multiprocessing.parent_process()).is_alive():
        for at in range(0, half_bytes, STEP_BYTES):
            start_s = time.thread_time()
            target[at : at + STEP_BYTES] = source[at : at + STEP_BYTES]
            copied.value += min(STEP_BYTES, half_bytes - at)
            time.sleep((time.thread_time() - start_s) * (1 / level - 1))
