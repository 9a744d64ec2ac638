"""Changes of MIG modes and instances through NVML."""

from __future__ import annotations

import shutil
import subprocess
from ctypes import byref
from pathlib import Path
from typing import TYPE_CHECKING

import pynvml

from provision.applier.calls import DriverError
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from provision.applier.layout import Compute, SliceLayout
    from provision.applier.nvml import Driver

MINORS = Path("/proc/driver/nvidia-caps/mig-minors")


def set_mig_mode(driver: Driver, uuid: str, enabled: bool) -> None:
    """Turn MIG on or off at once; a mode that stays pending is an error."""
    status = driver.call("nvmlDeviceSetMigMode", driver.handle(uuid), int(enabled))
    driver.forget_handles()
    if status != pynvml.NVML_SUCCESS:
        raise DriverError("nvmlDeviceSetMigMode: activation", status)
    if driver.call("nvmlDeviceGetMigMode", driver.handle(uuid)) != [enabled, enabled]:
        raise InputError(f"{uuid}: the MIG mode is pending; reset the GPU (nvidia-smi --gpu-reset) or reboot")


def create_instance(driver: Driver, uuid: str, piece: SliceLayout) -> None:
    """Create a GPU instance at its place."""
    place = pynvml.c_nvmlGpuInstancePlacement_t(piece.start, piece.size)
    identity = driver.profile(uuid, piece).id
    driver.call("nvmlDeviceCreateGpuInstanceWithPlacement", driver.handle(uuid), identity, byref(place))


def create_compute(driver: Driver, uuid: str, piece: SliceLayout, compute: Compute) -> None:
    """Create a compute instance by its number of SMs.

    It is not looked up by slices, for the profile of one slice is not always all of a GPU instance of one slice.
    """
    instance, _, profile = driver.find(uuid, piece)
    offered = driver.offered_computes(instance, uuid, profile)
    fitting = next((one for one in offered if one.multiprocessorCount == compute.sms), None)
    if fitting is None:
        raise InputError(f"{uuid}: {piece.label}: no compute instance has {compute.sms} SMs; see nvidia-smi mig -lcip")
    if compute.sms == profile.sms:
        driver.call("nvmlGpuInstanceCreateComputeInstance", instance, fitting.id)
    else:
        place = pynvml.c_nvmlComputeInstancePlacement_t(compute.start, fitting.sliceCount)
        driver.call("nvmlGpuInstanceCreateComputeInstanceWithPlacement", instance, fitting.id, byref(place))


def destroy_compute(driver: Driver, uuid: str, piece: SliceLayout, compute: Compute) -> None:
    """Destroy a compute instance."""
    instance, _, profile = driver.find(uuid, piece)
    handles = [handle for handle, _, found in driver.computes(instance, uuid, profile) if found == compute]
    if not handles:
        raise InputError(f"{uuid}: {piece.label}: its compute instance is gone: something else changes this GPU")
    driver.call("nvmlComputeInstanceDestroy", handles[0])


def destroy_instance(driver: Driver, uuid: str, piece: SliceLayout) -> None:
    """Destroy a GPU instance that has no compute instances any more."""
    driver.call("nvmlGpuInstanceDestroy", driver.find(uuid, piece)[0])


def make_device_nodes() -> None:
    """Have the nodes in /dev/nvidia-caps made without which no process can open a new instance.

    The driver does not make them; any run of nvidia-smi does.
    """
    if MINORS.exists() and shutil.which("nvidia-smi"):
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise InputError(f"nvidia-smi -L: {done.stdout}{done.stderr}: makes no device nodes; run it by hand")
