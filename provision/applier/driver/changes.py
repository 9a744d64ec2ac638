"""Changes MIG modes and instances through NVML, and checks every change by observing the GPU again.

The check is needed because NVML may report success for a change that it did not make. A GPU may also be "in use" for a
moment after its last process has ended; calls that fail with that error are repeated. What may hold a GPU without being
a process on it is looked for too: open device files, the display module, monitoring agents.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from ctypes import byref
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from provision.applier.driver import nvml
from provision.applier.driver.calls import DriverError
from provision.applier.driver.nvml import Driver
from provision.applier.layout import Compute, Place, SliceLayout
from provision.instances.files.files import reason
from provision.models.base.clock import Deadline
from provision.models.base.errors import InputError

MINORS = Path("/proc/driver/nvidia-caps/mig-minors")
FREE_S = 2.0
"""The seconds within which a driver releases a device that no process uses any more."""
POLL_S = 0.1
AFTER_XID = "look at dmesg for Xid lines, reset the GPU (nvidia-smi --gpu-reset) and apply again"
NODES_S = 60.0
T = TypeVar("T")


def set_mig_mode(driver: Driver, uuid: str, enabled: bool) -> None:
    """Turn MIG on or off at once. A mode that stays pending is an error."""
    status = driver.call("nvmlDeviceSetMigMode", driver.handle(uuid), int(enabled))
    driver.forget_handles()
    if status == pynvml.NVML_ERROR_IN_USE:
        raise InputError(f"{uuid}: nvmlDeviceSetMigMode: activation: {holders()}")
    if status == pynvml.NVML_ERROR_RESET_REQUIRED:
        raise InputError(f"{uuid}: nvmlDeviceSetMigMode: activation: reset required, {_after_reset(uuid, enabled)}")
    if status != pynvml.NVML_SUCCESS:
        raise DriverError("nvmlDeviceSetMigMode: activation", status)
    current, pending = driver.call("nvmlDeviceGetMigMode", driver.handle(uuid))
    if (current, pending) == (int(enabled), int(enabled)):
        return
    if pending != int(enabled):
        raise InputError(f"{uuid}: NVML reports success, but the MIG mode is not changed; look at dmesg for Xid lines")
    raise InputError(f"{uuid}: the MIG mode is pending until a reset, {_after_reset(uuid, enabled)}")


def _after_reset(uuid: str, enabled: bool) -> str:
    mode = f"nvidia-smi -i {uuid} -mig {int(enabled)}"
    return f"which did not happen: {mode}, then nvidia-smi --gpu-reset -i {uuid} or reboot, then apply again"


def create_instance(driver: Driver, uuid: str, piece: SliceLayout) -> int:
    """Create a GPU instance at its start; return NVML's id of it."""
    place = pynvml.c_nvmlGpuInstancePlacement_t(piece.start, piece.size)
    identity = driver.profile(uuid, piece).id
    create = "nvmlDeviceCreateGpuInstanceWithPlacement"
    if (made := driver.call(create, driver.handle(uuid), identity, byref(place))) and driver.info(made):
        driver.own((uuid, *piece.key), made)
    return _seen(driver, lambda: driver.find(uuid, piece)[1], f"{uuid}: {piece.label}")


def create_compute(driver: Driver, uuid: str, piece: SliceLayout, compute: Compute) -> tuple[str, Compute]:
    """Create a compute instance; return its CUDA device and what it really is.

    The profile of the compute instance is found by its number of SMs. The number of slices does not identify it,
    because a compute profile of one slice may be less than a whole GPU instance of one slice. If a GPU instance has
    only one compute instance, that takes all SMs that the driver gives it, even if their number is not the planned one.
    """
    instance, fitting, real, whole = _offer(driver, uuid, piece, compute)
    if whole:
        driver.call("nvmlGpuInstanceCreateComputeInstance", instance, fitting.id)
    else:
        place = pynvml.c_nvmlComputeInstancePlacement_t(compute.start, fitting.sliceCount)
        driver.call("nvmlGpuInstanceCreateComputeInstanceWithPlacement", instance, fitting.id, byref(place))
    what = f"{uuid}: the compute instance of {piece.label}"
    return _seen(driver, lambda: driver.parts(uuid, piece).get(real), what), real


def created_compute(driver: Driver, uuid: str, piece: SliceLayout, compute: Compute) -> tuple[str, Compute] | None:
    """What ``create_compute`` would have returned, if the compute instance is there although the call failed."""
    *_, real, _ = _offer(driver, uuid, piece, compute)
    device = driver.parts(uuid, piece).get(real)
    return None if device is None else (device, real)


def _offer(driver: Driver, uuid: str, piece: SliceLayout, compute: Compute) -> tuple[Any, Any, Compute, bool]:
    """The GPU instance, the driver's profile for a compute instance, what that gives, and whether it takes all."""
    instance, _, profile = driver.find(uuid, piece)
    offered = driver.offered_computes(instance, uuid, profile)
    wanted = [compute.sms, profile.sms] if len(piece.computes) == 1 else [compute.sms]
    fitting = next((one for sms in wanted for one in offered if one.multiprocessorCount == sms), None)
    if fitting is None:
        raise InputError(f"{uuid}: {piece.label}: no compute instance has {compute.sms} SMs; see nvidia-smi mig -lcip")
    real = compute.model_copy(update={"sms": fitting.multiprocessorCount})
    return instance, fitting, real, real.sms == profile.sms


def destroy_compute(driver: Driver, uuid: str, piece: SliceLayout, compute: Compute) -> None:
    """Destroy a compute instance, and see that it is gone."""
    instance, _, profile = driver.find(uuid, piece)

    def handles() -> list[Any]:
        return [handle for handle, _, found in driver.computes(instance, uuid, profile) if found == compute]

    listed = handles()
    if not listed:
        raise InputError(f"{uuid}: {piece.label}: its compute instance is gone: something else changes this GPU")
    what = f"{uuid}: the compute instance of {piece.label}"
    _destroy(driver, "nvmlComputeInstanceDestroy", listed[0], lambda: not handles(), what)


def destroy_instance(driver: Driver, uuid: str, piece: SliceLayout, identity: int | None) -> None:
    """Destroy a GPU instance that has no compute instances any more, and see that it is gone.

    Parameters
    ----------
    driver, uuid, piece
        The Driver, the GPU's UUID and the slice.
    identity
        NVML's id of the instance, if known. Raises InputError if the instance at this start has another id.
    """
    instance, found, _ = driver.find(uuid, piece)
    if identity is not None and identity != found:
        raise InputError(f"{uuid}: {piece.label} is another instance by now: something else changes this GPU")
    place: Place = (uuid, *piece.key)
    _destroy(driver, "nvmlGpuInstanceDestroy", instance, lambda: not driver.listed(place), f"{uuid}: {piece.label}")
    driver.disown(place)


def _destroy(driver: Driver, function: str, handle: Any, unlisted: Callable[[], bool], what: str) -> None:
    """Destroy an instance. If the driver says that it is in use, repeat for FREE_S seconds, because no process is on
    it. The instance is gone when its handle is invalid or ``unlisted`` says so.
    """
    until = Deadline(FREE_S)
    while True:
        try:
            driver.call(function, handle)
            break
        except DriverError as error:
            if error.code != pynvml.NVML_ERROR_IN_USE:
                raise
            if until.over:
                raise InputError(f"{function}: {holders()}") from None
        time.sleep(POLL_S)
    told = function.replace("Destroy", "GetInfo")
    until = Deadline(nvml.SEEN_S)
    while driver.told(told, handle) is not None and not unlisted():
        if until.over:
            raise InputError(f"{what}: NVML reports success, but it is still there; {AFTER_XID}")
        time.sleep(POLL_S)


def _seen(driver: Driver, look: Callable[[], T | None], what: str) -> T:
    """Call ``look`` until it finds something, and return that. Raises InputError if it finds nothing within SEEN_S, or
    if the driver hangs.
    """
    until = Deadline(nvml.SEEN_S)
    while True:
        try:
            if (found := look()) is not None:
                return found
            why = "it is not there"
        except InputError as error:
            if driver.call.hung:
                raise
            why = str(error)
        if until.over:
            raise InputError(f"{what}: NVML reports success, but {why}; {AFTER_XID}")
        time.sleep(POLL_S)


def make_device_nodes() -> None:
    """Create the device nodes in /dev/nvidia-caps, without which no process can open a new instance.

    The driver does not create them, but every run of nvidia-smi does. So nvidia-smi is run.
    """
    if not (MINORS.exists() and shutil.which("nvidia-smi")):
        return
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=NODES_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"nvidia-smi -L: {reason(error)}: makes no device nodes; run it by hand") from None
    if done.returncode:
        raise InputError(f"nvidia-smi -L: {done.stdout}{done.stderr}: makes no device nodes; run it by hand")


PROC = Path("/proc")
DEVICES = "/dev/nvidia"
MODULE = "nvidia_drm"
MOST_NAMED = 5


def holders() -> str:
    """A sentence: what may hold a GPU that is in use although no process is listed on it, and what to do."""
    own = os.getpid()
    named = [f"{pid} {name}" for pid, name in _with_open_devices() if pid != own]
    shown = ", ".join(named[:MOST_NAMED]) + (" and more" if len(named) > MOST_NAMED else "")
    what = f"{DEVICES}* is open in process {shown}: end or stop it" if named else f"none has {DEVICES}* open here"
    module = f"; the module {MODULE} is loaded: modprobe -r {MODULE}" if _loaded() else ""
    return (
        f"in use although no process is listed; {what}{module}; then stop monitors (systemctl stop nvidia-dcgm "
        "nvidia-persistenced), or reset the GPU (nvidia-smi --gpu-reset), and apply again"
    )


def _with_open_devices() -> Iterator[tuple[int, str]]:
    """Yield (pid, name) of every process with an open device file of NVIDIA's driver, if this user may see it."""
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            opened = any(os.readlink(link).startswith(DEVICES) for link in (entry / "fd").iterdir())
            name = (entry / "comm").read_text().strip() if opened else ""
        except OSError:
            continue
        if opened:
            yield int(entry.name), name


def _loaded() -> bool:
    try:
        return any(line.startswith(f"{MODULE} ") for line in (PROC / "modules").read_text().splitlines())
    except OSError:
        return False
