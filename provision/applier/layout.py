"""The layouts that a run applies or goes back to, and the observed state of the GPUs.

A slice is identified by the NVML enumerator of its profile, which is the same on every GPU model, and by its first
memory slice. Names of profiles differ between drivers, so they are only labels. A slice that is a whole GPU has no
enumerator.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from provision.models.base.fields import Count, Flag, Name, PositiveCount, Record, Text
from provision.models.hardware.gpu import WHOLE

INSTANCES, PROCESSES, CLIENTS = "MIG instances", "processes", "MPS clients"
"""The kinds of information about a GPU that a driver may not give."""
RATE, WORKLOAD, COMMAND = "PROVISION_RATE_RPS", "PROVISION_WORKLOAD", "PROVISION_COMMAND"

Place: TypeAlias = tuple[Name, Count | None, Count]
"""The place of a slice: the GPU's UUID, and the enumerator and start that identify the slice on it."""


class Compute(Record):
    """A compute instance: its SMs, and its first compute slice inside the GPU instance."""

    sms: PositiveCount
    start: Count = 0


class ReplicaLayout(Record):
    """A replica: its environment variables, except those that depend on the device, and how many of its servers run."""

    environment: dict[Name, Text]
    running: Count = 0

    @property
    def workload(self) -> str:
        """The workload that the replica serves."""
        return self.environment.get(WORKLOAD, "")

    @property
    def rate_rps(self) -> float:
        """The rate that is routed to the replica, in requests/s."""
        return float(self.environment.get(RATE, 0))


class SliceLayout(Record):
    """A slice: its compute instances, whether it has an MPS daemon, and its replicas."""

    profile: Name
    enumerator: Count | None = None
    start: Count = 0
    size: Count = 0
    computes: tuple[Compute, ...] = ()
    mps: Flag = False
    replicas: tuple[ReplicaLayout | None, ...] = ()

    @property
    def key(self) -> tuple[int | None, int]:
        """The enumerator and the start, which identify the slice on its GPU."""
        return self.enumerator, self.start

    @property
    def label(self) -> str:
        """A name of the slice, for messages."""
        return WHOLE if self.enumerator is None else f"{self.profile} at {self.start}"


class GpuLayout(Record):
    """A GPU: its UUID, its MIG mode, the mode after its next reset, and its slices."""

    uuid: Name
    mig: Flag
    mig_pending: Flag
    slices: tuple[SliceLayout, ...] = ()


class MachineLayout(Record):
    """The layouts of the GPUs that a run concerns."""

    gpus: tuple[GpuLayout, ...]


class Process(Record):
    """A process on a slice."""

    pid: Count
    name: Text = ""


class Made(Record):
    """A MIG instance that the applier made: its place, NVML's id of it, and its CUDA devices.

    ``instance`` and ``devices`` are None if a call was announced and its result is unknown. ``whole`` is false if
    something else made the instance and the applier made compute instances in it. ``emptied`` says that the applier has
    begun to destroy its compute instances.
    """

    gpu: Name
    enumerator: Count | None
    start: Count
    instance: Count | None = None
    devices: tuple[Name, ...] | None = None
    whole: Flag = True
    emptied: Flag = False

    @property
    def place(self) -> Place:
        """The place of the instance."""
        return self.gpu, self.enumerator, self.start


class ObservedSlice(SliceLayout):
    """An observed slice.

    ``instance`` is NVML's id of the GPU instance, ``devices`` are its CUDA devices, and ``clients`` the processes that
    the applier did not start. ``foreign`` says that something other than this state directory's applier made the MIG
    instance, and ``foreign_computes`` are the compute instances in it that something else made. ``trouble`` says what
    is wrong with its MPS daemon.
    """

    instance: Count | None = None
    devices: tuple[Name, ...] = ()
    clients: tuple[Process, ...] = ()
    foreign: Flag = False
    foreign_computes: tuple[Compute, ...] = ()
    trouble: Text | None = None

    @property
    def device(self) -> str | None:
        """The CUDA device for servers; None if the slice has no device or more than one."""
        return self.devices[0] if len(self.devices) == 1 else None

    @property
    def strange(self) -> bool:
        """Whether something else made the instance, or compute instances in it."""
        return self.foreign or bool(self.foreign_computes)

    def made_as(self, made: Made, gpu: str) -> bool:
        """Whether this is the instance that the applier made.

        NVML reuses the ids of destroyed instances. So one of the CUDA devices that the applier made must be there too,
        unless it made none or has begun to destroy them.
        """
        if made.place != (gpu, *self.key) or made.instance not in (None, self.instance):
            return False
        return not made.devices or made.emptied or not set(made.devices).isdisjoint(self.devices)

    def judged(self, gpu: str, owned: Collection[Made]) -> ObservedSlice:
        """The slice with ``foreign`` and ``foreign_computes`` set, given the instances that the applier made.

        A whole GPU is never foreign.
        """
        if self.enumerator is None:
            return self
        made = next((one for one in owned if self.made_as(one, gpu)), None)
        if made is None:
            return self.model_copy(update={"foreign": True, "foreign_computes": self.computes})
        pairs = zip(self.computes, self.devices, strict=True)
        strange = tuple(one for one, device in pairs if made.devices is not None and device not in made.devices)
        return self.model_copy(update={"foreign": not made.whole, "foreign_computes": strange})

    def layout(self) -> SliceLayout:
        """The layout that a rollback would restore. Replicas whose environment file is lost are left out."""
        fields = {name: getattr(self, name) for name in SliceLayout.model_fields}
        known = (one if one and one.environment else None for one in self.replicas)
        return SliceLayout(**fields | {"replicas": tuple(known)})


class ObservedProfile(Record):
    """A GPU-instance profile as the driver describes it. Its ``id`` is valid only on this GPU, which can have ``most``
    instances of it.
    """

    enumerator: Count
    id: Count
    name: Text
    sms: PositiveCount
    most: PositiveCount


class GpuIdentity(Record):
    """The identity of a GPU: its index, which a reboot may change; its UUID; and the product name that the driver
    gives.
    """

    index: Count
    uuid: Name
    product: Text


class ObservedGpu(GpuIdentity):
    """An observed GPU. ``unknown`` names what its driver does not tell: INSTANCES, PROCESSES, CLIENTS."""

    mig_capable: Flag
    mig: Flag
    mig_pending: Flag
    profiles: tuple[ObservedProfile, ...] = ()
    slices: tuple[ObservedSlice, ...] = ()
    unknown: tuple[Text, ...] = ()

    def layout(self) -> GpuLayout:
        """The layout that a rollback would restore."""
        slices = tuple(piece.layout() for piece in self.slices)
        return GpuLayout(uuid=self.uuid, mig=self.mig, mig_pending=self.mig_pending, slices=slices)


class Observed(Record):
    """All GPUs of the machine, and the devices that no longer exist but left daemons, servers or files behind."""

    gpus: tuple[ObservedGpu, ...]
    leftovers: tuple[Name, ...] = ()

    def gpu(self, uuid: str) -> ObservedGpu | None:
        """The GPU with this UUID; None if it is not there."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)
