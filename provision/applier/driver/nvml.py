"""NVIDIA's driver through NVML: GPUs, MIG instances and processes, observed and changed.

Source: NVML API reference, "Multi Instance GPU Management". Every list is checked against another list, because an
instance that is missing from a list would be taken for absent.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ctypes import byref, c_uint
from itertools import count
from typing import Any, Self

import pynvml

from provision.applier.driver.calls import Calls, DriverError, mark
from provision.applier.layout import (
    CLIENTS,
    INSTANCES,
    PROCESSES,
    Compute,
    GpuIdentity,
    ObservedGpu,
    ObservedProfile,
    ObservedSlice,
    Place,
    Process,
    SliceLayout,
)
from provision.models.base.clock import Deadline
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE

ABSENT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT)
"""NVML's error codes for a profile that does not exist on this GPU."""
VANISHED = (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT)
"""NVML's error codes for an instance that was destroyed after it was listed."""
LOOKS, LOOK_AGAIN_S = 3, 0.1
"""How often a GPU is at least observed if its driver contradicts itself, and the seconds in between."""
SEEN_S = 10.0
"""The seconds within which a driver shows a change everywhere."""
UNTOLD = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
"""NVML's error codes for information that a driver does not give."""
LISTS = {
    "nvmlDeviceGetComputeRunningProcesses": PROCESSES,
    "nvmlDeviceGetMPSComputeRunningProcesses": CLIENTS,
}


class Driver:
    """A session with the driver, for use as a context manager.

    GPUs are named by UUID, and slices by their layout. The handle of an instance becomes invalid when the instance is
    destroyed, so it tells an instance from a later one at the same place, and from what a late list says.
    """

    def __init__(self) -> None:
        self._handles: dict[str, Any] = {}
        self._profiles: dict[str, tuple[ObservedProfile, ...]] = {}
        self._compute_profiles: dict[tuple[str, int], list[Any]] = {}
        self._untold: set[str] = set()
        self._seen: dict[Place, Any] = {}
        """The handles of the instances that were there at the last look."""
        self._own: dict[Place, Any] = {}
        """The handles of the instances that the applier made."""

    def __enter__(self) -> Self:
        self.call = Calls()
        try:
            self.call("nvmlInit")
        except InputError:
            self.call.end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        if self.call.hung or self.call.waiting:
            return
        # An error here changes nothing of what was done in the session; told as the outcome, it would say the contrary.
        with suppress(InputError):
            self.call("nvmlShutdown")
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
        """Observe a GPU; repeat this if something changes between one answer of the driver and the next, or if its
        lists are late.
        """
        until = Deadline(SEEN_S)
        for attempt in count(1):
            last = attempt >= LOOKS and until.over
            try:
                return self._observed(index)
            except DriverError as error:
                if error.code not in VANISHED or last:
                    raise InputError(f"GPU {index}: {error}") from None
            except ContradictionError:
                if last:
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

    def _told_slices(self, handle: Any, uuid: str, profiles: Sequence[ObservedProfile]) -> tuple[ObservedSlice, ...]:
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
        self._seen = {place: one for place, one in self._seen.items() if place[0] != uuid}
        slices = [piece for profile in profiles for piece in self._of_profile(handle, uuid, profile, devices)]
        if devices:
            raise ContradictionError(f"{uuid}: MIG devices without instances")
        listed = {(uuid, *piece.key) for piece in slices}
        if any(place[0] == uuid and place not in listed and self.stands(place) for place in list(self._own)):
            raise ContradictionError(f"{uuid}: an instance that was made is not listed")
        return tuple(sorted(slices, key=lambda piece: piece.start))

    def _of_profile(self, handle: Any, uuid: str, profile: ObservedProfile,
                    devices: dict[tuple[int, int], Any]) -> Iterator[ObservedSlice]:
        for instance, info in self._instances(handle, profile):
            self._seen[uuid, profile.enumerator, info.placement.start] = instance
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
                mark=mark(self.call, handle, info.id),
                devices=uuids,
                clients=clients,
            )

    def _instances(self, handle: Any, profile: ObservedProfile) -> list[tuple[Any, Any]]:
        """The GPU instances of a profile, as pairs of handle and info."""
        found, number = (pynvml.c_nvmlGpuInstance_t * profile.most)(), c_uint(profile.most)
        self.call("nvmlDeviceGetGpuInstances", handle, profile.id, found, byref(number))
        if not all(found[: number.value]):
            raise UntoldError(f"{profile.name}: the driver counts {number.value} instances without telling which")
        return [(one, self.call("nvmlGpuInstanceGetInfo", one)) for one in found[: number.value]]

    def computes(self, instance: Any, uuid: str, profile: ObservedProfile) -> list[tuple[Any, Any, Compute]]:
        """The compute instances of a GPU instance as (handle, info, Compute), sorted by start."""
        every = []
        for offered in self.offered_computes(instance, uuid, profile):
            most = offered.instanceCount
            found, number = (pynvml.c_nvmlComputeInstance_t * most)(), c_uint(most)
            self.call("nvmlGpuInstanceGetComputeInstances", instance, offered.id, found, byref(number))
            for one in found[: number.value]:
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

    def stands(self, place: Place) -> bool | None:
        """Whether the instance at a place that the applier made still exists; None if this session knows of none."""
        return None if place not in self._own else self.info(self._own[place]) is not None

    def own(self, place: Place, handle: Any = None) -> None:
        """Remember that the applier made the instance at a place: the one with this handle, or the one that was seen
        there.
        """
        if handle:
            self._own[place] = self._seen[place] = handle
        else:
            self._own.setdefault(place, self._seen.get(place))

    def disown(self, place: Place) -> None:
        """Forget the instance at a place, which is destroyed."""
        self._own.pop(place, None)
        self._seen.pop(place, None)

    def info(self, instance: Any) -> Any:
        """What NVML tells about a GPU instance by its handle; None if it twice says that it does not exist."""
        function = "nvmlGpuInstanceGetInfo"
        return self.told(function, instance) or self.told(function, instance)

    def told(self, function: str, handle: Any) -> Any:
        """What NVML tells about an instance by its handle; None if it no longer exists."""
        try:
            return self.call(function, handle)
        except DriverError as error:
            if error.code in VANISHED:
                return None
            raise

    def listed(self, place: Place) -> bool:
        """Whether the driver lists an instance at a place."""
        uuid, enumerator, start = place
        profile = next((one for one in self._offered(self.handle(uuid), uuid) if one.enumerator == enumerator), None)
        if profile is None:
            return False
        try:
            return any(info.placement.start == start for _, info in self._instances(self.handle(uuid), profile))
        except DriverError as error:
            if error.code in VANISHED:
                return True
            raise

    def find(self, uuid: str, piece: SliceLayout) -> tuple[Any, int, ObservedProfile]:
        """The handle, the id and the profile of a GPU instance: of the one that was seen or made there. Raises
        InputError if it no longer exists.
        """
        profile = self.profile(uuid, piece)
        if seen := self._seen.get((uuid, *piece.key)):
            if info := self.info(seen):
                return seen, info.id, profile
        else:
            for instance, info in self._instances(self.handle(uuid), profile):
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
        self._seen.clear()
        self._own.clear()

    def devices(self, uuid: str, piece: SliceLayout) -> tuple[tuple[str, ...], tuple[Process, ...]]:
        """The UUIDs of the CUDA devices of a slice, and its processes."""
        if piece.enumerator is None:
            return (uuid,), self._processes(self.handle(uuid))
        return self._described([device for device, _ in self._parts(uuid, piece)])

    def parts(self, uuid: str, piece: SliceLayout) -> dict[Compute, str]:
        """The compute instances of a slice with the UUIDs of their CUDA devices."""
        return {compute: self.call("nvmlDeviceGetUUID", device) for device, compute in self._parts(uuid, piece)}

    def _parts(self, uuid: str, piece: SliceLayout) -> list[tuple[Any, Compute]]:
        """The CUDA devices of a slice, as pairs of handle and compute instance."""
        instance, identity, profile = self.find(uuid, piece)
        keys = {(identity, info.id): compute for _, info, compute in self.computes(instance, uuid, profile)}
        mine = []
        for key, device in self._mig_devices(self.handle(uuid)):
            if key in keys:
                mine.append((device, keys[key]))
            if len(mine) == len(keys):
                break
        if len(mine) < len(keys):
            raise ContradictionError(f"{uuid}: {piece.label}: compute instances without MIG devices")
        return mine


class UntoldError(InputError):
    """Raised when the driver counts MIG instances but does not list them."""


class ContradictionError(InputError):
    """Raised when answers of the driver contradict each other."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: NVML's answers contradict each other; try again when nothing else changes the GPUs")
