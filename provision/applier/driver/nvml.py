"""NVIDIA's driver through NVML: GPUs, MIG instances and processes, observed and changed.

Source: NVML API reference, "Multi Instance GPU Management". Every list is checked against another list, because an
instance that is missing from a list would be taken for absent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from ctypes import byref, c_uint
from typing import TYPE_CHECKING, Any, Self

import pynvml

from provision.applier.driver.calls import Calls, DriverError
from provision.applier.layout import (
    CLIENTS,
    INSTANCES,
    PROCESSES,
    Compute,
    GpuIdentity,
    ObservedGpu,
    ObservedProfile,
    ObservedSlice,
    Process,
)
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE

if TYPE_CHECKING:
    from provision.applier.layout import SliceLayout

ABSENT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT)
"""NVML's error codes for a profile that does not exist on this GPU."""
VANISHED = (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT)
"""NVML's error codes for an instance that was destroyed after it was listed."""
LOOKS, LOOK_AGAIN_S = 3, 0.1
"""How often a GPU is observed again if it changes meanwhile, and the seconds in between."""
UNTOLD = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
"""NVML's error codes for information that a driver does not give."""
LISTS = {
    "nvmlDeviceGetComputeRunningProcesses": PROCESSES,
    "nvmlDeviceGetMPSComputeRunningProcesses": CLIENTS,
}


class Driver:
    """A session with the driver, for use as a context manager.

    GPUs are named by UUID, and slices by their layout. Handles of instances become stale, so they are looked up each
    time.
    """

    def __init__(self) -> None:
        self._handles: dict[str, Any] = {}
        self._profiles: dict[str, tuple[ObservedProfile, ...]] = {}
        self._compute_profiles: dict[tuple[str, int], list[Any]] = {}
        self._untold: set[str] = set()

    def __enter__(self) -> Self:
        self.call = Calls()
        try:
            self.call("nvmlInit")
        except InputError:
            self.call.end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if self.call.hung or self.call.waiting:
            return
        try:
            self.call("nvmlShutdown")
        except InputError:
            # The exception that ended the session tells more than this one.
            if kind is None:
                raise
        finally:
            self.call.end()

    def observe(self) -> tuple[ObservedGpu, ...]:
        """Observe every GPU of the machine."""
        return tuple(self._observe(index) for index in range(self.call("nvmlDeviceGetCount")))

    def identities(self) -> tuple[GpuIdentity, ...]:
        """The index, UUID and product of every GPU of the machine."""
        return tuple(self._identity(index)[1] for index in range(self.call("nvmlDeviceGetCount")))

    def _identity(self, index: int) -> tuple[Any, GpuIdentity]:
        """The handle of a GPU, and its identity."""
        try:
            handle = self.call("nvmlDeviceGetHandleByIndex", index)
            uuid, product = self.call("nvmlDeviceGetUUID", handle), self.call("nvmlDeviceGetName", handle)
        except DriverError as error:
            raise InputError(f"GPU {index}: {error}") from None
        return handle, GpuIdentity(index=index, uuid=uuid, product=product)

    def _observe(self, index: int) -> ObservedGpu:
        """Observe a GPU; repeat this if something changes between one answer of the driver and the next."""
        for attempt in range(1, LOOKS + 1):
            try:
                return self._observed(index)
            except DriverError as error:
                if error.code not in VANISHED or attempt == LOOKS:
                    raise InputError(f"GPU {index}: {error}") from None
            except ContradictionError:
                if attempt == LOOKS:
                    raise
            time.sleep(LOOK_AGAIN_S)
        raise AssertionError("the last look returns or raises")

    def _observed(self, index: int) -> ObservedGpu:
        self._untold.clear()
        handle, identity = self._identity(index)
        uuid = identity.uuid
        mode = self._optional("nvmlDeviceGetMigMode", handle)
        current, pending = (bool(one) for one in mode or (0, 0))
        if not current:
            # Some drivers report a largest number of MIG devices although MIG is off.
            if mode is not None and any(self._mig_devices(handle)):
                raise ContradictionError(f"{uuid}: MIG devices with MIG off")
            whole = ObservedSlice(profile=WHOLE, devices=(uuid,), clients=self._processes(handle))
            slices: tuple[ObservedSlice, ...] = (whole,)
            profiles: tuple[ObservedProfile, ...] = ()
        else:
            profiles = self._offered(handle, uuid)
            slices = self._told_slices(handle, uuid, profiles)
        return ObservedGpu(
            **identity.model_dump(),
            mig_capable=mode is not None,
            mig=current,
            mig_pending=pending,
            profiles=profiles,
            slices=slices,
            unknown=tuple(sorted(self._untold)),
        )

    def _optional(self, function: str, *arguments: Any) -> Any:
        """The result of a call; None if the GPU does not have what is asked for."""
        try:
            return self.call(function, *arguments)
        except DriverError as error:
            if error.code in ABSENT:
                return None
            raise

    def _offered(self, handle: Any, uuid: str) -> tuple[ObservedProfile, ...]:
        """The GPU-instance profiles of a GPU; cached."""
        if uuid not in self._profiles:
            found = (self._profile(handle, at) for at in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT))
            self._profiles[uuid] = tuple(profile for profile in found if profile)
        return self._profiles[uuid]

    def _profile(self, handle: Any, enumerator: int) -> ObservedProfile | None:
        info = self._optional("nvmlDeviceGetGpuInstanceProfileInfo", handle, enumerator)
        return info and ObservedProfile(
            enumerator=enumerator,
            id=info.id,
            name=info.name.removeprefix("MIG "),
            sms=info.multiprocessorCount,
            most=info.instanceCount,
        )

    def _told_slices(
        self, handle: Any, uuid: str, profiles: Sequence[ObservedProfile]
    ) -> tuple[ObservedSlice, ...]:
        """The slices of a GPU. If the driver does not list them, return none and note that they are unknown."""
        try:
            if profiles:
                return self._slices(handle, uuid, profiles)
        except UntoldError:
            pass
        self._untold.add(INSTANCES)
        return ()

    def _slices(self, handle: Any, uuid: str, profiles: Sequence[ObservedProfile]) -> tuple[ObservedSlice, ...]:
        devices = dict(self._mig_devices(handle))
        slices = [piece for profile in profiles for piece in self._of_profile(handle, uuid, profile, devices)]
        if devices:
            raise ContradictionError(f"{uuid}: MIG devices without instances")
        return tuple(sorted(slices, key=lambda piece: piece.start))

    def _of_profile(
        self, handle: Any, uuid: str, profile: ObservedProfile, devices: dict[tuple[int, int], Any]
    ) -> Iterator[ObservedSlice]:
        for instance, info in self._instances(handle, profile):
            computes = self.computes(instance, uuid, profile)
            keys = [(info.id, compute_info.id) for _, compute_info, _ in computes]
            if not all(key in devices for key in keys):
                raise ContradictionError(f"{uuid}: compute instances without MIG devices")
            uuids, clients = self._described([devices.pop(key) for key in keys])
            yield ObservedSlice(
                profile=profile.name,
                enumerator=profile.enumerator,
                start=info.placement.start,
                size=info.placement.size,
                computes=tuple(compute for _, _, compute in computes),
                instance=info.id,
                devices=uuids,
                clients=clients,
            )

    def _instances(self, handle: Any, profile: ObservedProfile) -> list[tuple[Any, Any]]:
        """The GPU instances of a profile, as pairs of handle and info."""
        found, count = (pynvml.c_nvmlGpuInstance_t * profile.most)(), c_uint(profile.most)
        self.call("nvmlDeviceGetGpuInstances", handle, profile.id, found, byref(count))
        if not all(found[: count.value]):
            raise UntoldError(f"{profile.name}: the driver counts {count.value} instances without telling which")
        return [(one, self.call("nvmlGpuInstanceGetInfo", one)) for one in found[: count.value]]

    def computes(self, instance: Any, uuid: str, profile: ObservedProfile) -> list[tuple[Any, Any, Compute]]:
        """The compute instances of a GPU instance as (handle, info, Compute), sorted by start."""
        every = []
        for offered in self.offered_computes(instance, uuid, profile):
            most = offered.instanceCount
            found, count = (pynvml.c_nvmlComputeInstance_t * most)(), c_uint(most)
            self.call("nvmlGpuInstanceGetComputeInstances", instance, offered.id, found, byref(count))
            for one in found[: count.value]:
                info = self.call("nvmlComputeInstanceGetInfo", one)
                every.append((one, info, Compute(sms=offered.multiprocessorCount, start=info.placement.start)))
        return sorted(every, key=lambda found: found[2].start)

    def offered_computes(self, instance: Any, uuid: str, profile: ObservedProfile) -> list[Any]:
        """The compute-instance profiles of a GPU-instance profile; cached."""
        key = uuid, profile.enumerator
        if key not in self._compute_profiles:
            shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
            self._compute_profiles[key] = [
                offered
                for at in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
                if (offered := self._optional("nvmlGpuInstanceGetComputeInstanceProfileInfo", instance, at, shared))
            ]
        return self._compute_profiles[key]

    def _mig_devices(self, handle: Any) -> Iterator[tuple[tuple[int, int], Any]]:
        """Yield the MIG devices as ((GPU instance id, compute instance id), handle)."""
        for at in range(self._optional("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            try:
                device = self.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, at)
            except DriverError as error:
                if error.code in (pynvml.NVML_ERROR_NOT_FOUND, *ABSENT):
                    continue
                raise
            ids = (self.call(f"nvmlDeviceGet{kind}InstanceId", device) for kind in ("Gpu", "Compute"))
            yield tuple(ids), device

    def _described(self, devices: Sequence[Any]) -> tuple[tuple[str, ...], tuple[Process, ...]]:
        """The UUIDs of CUDA devices, and the processes on these devices."""
        uuids = tuple(self.call("nvmlDeviceGetUUID", device) for device in devices)
        return uuids, tuple(process for device in devices for process in self._processes(device))

    def _processes(self, device: Any) -> tuple[Process, ...]:
        pids = {process.pid for function in LISTS for process in self._list(function, device)}
        return tuple(Process(pid=pid) for pid in sorted(pids))

    def _list(self, function: str, device: Any) -> Sequence[Any]:
        """A list of processes. If the driver does not list them, return none and note that they are unknown."""
        try:
            listed: Sequence[Any] = self.call(function, device)
        except DriverError as error:
            if error.code not in UNTOLD:
                raise
            self._untold.add(LISTS[function])
            return ()
        return listed

    def find(self, uuid: str, piece: SliceLayout) -> tuple[Any, int, ObservedProfile]:
        """The handle, the id and the profile of a GPU instance.

        Raises
        ------
        InputError
            If it no longer exists.
        """
        handle = self.handle(uuid)
        profile = self.profile(uuid, piece)
        for instance, info in self._instances(handle, profile):
            if info.placement.start == piece.start:
                return instance, info.id, profile
        raise InputError(f"{uuid}: {piece.label} is gone: something else changes this GPU; see provision status")

    def profile(self, uuid: str, piece: SliceLayout) -> ObservedProfile:
        """The profile of a slice, as this GPU's driver describes it."""
        for profile in self._offered(self.handle(uuid), uuid):
            if profile.enumerator == piece.enumerator:
                return profile
        raise InputError(f"{uuid}: its driver has no profile {piece.profile}; update the driver")

    def handle(self, uuid: str) -> Any:
        """The handle of a GPU; cached."""
        if uuid not in self._handles:
            self._handles[uuid] = self.call("nvmlDeviceGetHandleByUUID", uuid)
        return self._handles[uuid]

    def forget_handles(self) -> None:
        """Forget all cached handles, which a change of MIG mode makes stale."""
        self._handles.clear()

    def devices(self, uuid: str, piece: SliceLayout) -> tuple[tuple[str, ...], tuple[Process, ...]]:
        """The UUIDs of the CUDA devices of a slice, and its processes."""
        if piece.enumerator is None:
            return (uuid,), self._processes(self.handle(uuid))
        instance, identity, profile = self.find(uuid, piece)
        keys = {(identity, info.id) for _, info, _ in self.computes(instance, uuid, profile)}
        mine = []
        for key, device in self._mig_devices(self.handle(uuid)):
            if key in keys:
                mine.append(device)
            if len(mine) == len(keys):
                break
        if len(mine) < len(keys):
            raise ContradictionError(f"{uuid}: {piece.label}: compute instances without MIG devices")
        return self._described(mine)


class UntoldError(InputError):
    """Raised when the driver counts MIG instances but does not list them."""


class ContradictionError(InputError):
    """Raised when answers of the driver contradict each other."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: NVML's answers contradict each other; try again when nothing else changes the GPUs")
