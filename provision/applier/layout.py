"""The layouts that a run applies or goes back to, and the observed state of the GPUs.

A slice is identified by the NVML enumerator of its profile, which is the same on every GPU model, and by its first
memory slice. Names of profiles differ between drivers, so they are only labels. A slice that is a whole GPU has no
enumerator.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from pydantic import ConfigDict

from provision.models.base.fields import Count, Flag, Name, PositiveCount, Record, Text
from provision.models.hardware.gpu import WHOLE

INSTANCES, PROCESSES, CLIENTS = "MIG instances", "processes", "MPS clients"
"""The kinds of information about a GPU that a driver may not give."""
RATE, WORKLOAD, COMMAND = "PROVISION_RATE_RPS", "PROVISION_WORKLOAD", "PROVISION_COMMAND"

NAME_BASED = re.compile(r"MIG-(GPU-.*|.{8}-.{4}-[35].*)")
"""The UUIDs of MIG devices that are computed from names, so that a device that is made again may have the same."""

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
    """A slice: its compute instances, whether it has an MPS daemon, and its replicas. ``planned`` says that a plan asks
    for it, so that a run must have made it or taken it over.
    """

    profile: Name
    enumerator: Count | None = None
    start: Count = 0
    size: Count = 0
    computes: tuple[Compute, ...] = ()
    mps: Flag = False
    replicas: tuple[ReplicaLayout | None, ...] = ()
    planned: Flag = False

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
    """A MIG instance that the applier made or took over: its place, NVML's id of it, and its CUDA devices with their
    compute instances.

    ``epoch`` is the start of the driver in which it was made, which no instance outlives. ``mark`` tells it from one
    that is made again.
    """

    # Journals of earlier versions have more fields. They tell no epoch, so that nothing in them counts as made.
    model_config = ConfigDict(frozen=True, extra="ignore")

    gpu: Name
    enumerator: Count | None
    start: Count
    instance: Count | None = None
    devices: tuple[Name, ...] = ()
    computes: tuple[Compute, ...] = ()
    epoch: Text = ""
    mark: Text = ""

    @property
    def place(self) -> Place:
        """The place of the instance."""
        return self.gpu, self.enumerator, self.start

    @property
    def parts(self) -> set[tuple[str, Compute]]:
        """The CUDA devices with their compute instances."""
        return set(zip(self.devices, self.computes, strict=False))


class ObservedSlice(SliceLayout):
    """An observed slice.

    ``instance`` is NVML's id of the GPU instance, ``devices`` are its CUDA devices, and ``clients`` the processes that
    the applier did not start. ``foreign`` says that the applier of this state directory did not make the MIG instance,
    and ``foreign_computes`` are the compute instances in it that it did not make. ``unsure`` says that nobody can tell:
    it may have made a foreign instance all the same, or what it made may have been replaced by a twin. ``mark`` tells
    the instance from one that is made again. ``trouble`` says what is wrong with its MPS daemon.
    """

    instance: Count | None = None
    devices: tuple[Name, ...] = ()
    clients: tuple[Process, ...] = ()
    foreign: Flag = False
    foreign_computes: tuple[Compute, ...] = ()
    unsure: Flag = False
    mark: Text = ""
    trouble: Text | None = None

    @property
    def device(self) -> str | None:
        """The CUDA device for servers; None if the slice has no device or more than one."""
        return self.devices[0] if len(self.devices) == 1 else None

    @property
    def strange(self) -> bool:
        """Whether something else made the instance, or compute instances in it."""
        return self.foreign or bool(self.foreign_computes)

    @property
    def whose(self) -> str:
        """The maker of a foreign instance, as the end of a sentence."""
        return "provision or something else made" if self.unsure else "something else made"

    @property
    def strangers(self) -> tuple[Process, ...]:
        """The clients of a slice without replicas: nobody's servers of a plan."""
        return () if any(self.replicas) else self.clients

    def made(self, gpu: str, epoch: str) -> Made:
        """The record of this instance on a GPU, with the compute instances that are not foreign."""
        pairs = zip(self.devices, self.computes, strict=True)
        own = [(device, compute) for device, compute in pairs if compute not in self.foreign_computes]
        return Made(
            gpu=gpu, enumerator=self.enumerator, start=self.start, instance=self.instance, epoch=epoch,
            mark=self.mark, devices=tuple(device for device, _ in own), computes=tuple(compute for _, compute in own),
        )

    def judged(self, made: Made | None, known: bool | None, interrupted: bool, served: bool,
               adopt: bool | None) -> ObservedSlice:
        """The slice with ``foreign``, ``foreign_computes`` and ``unsure`` set. A whole GPU is never foreign.

        NVML reuses the ids of destroyed instances. So an instance counts as made by the applier only if one of the CUDA
        devices that it made is there, with the same compute instance. If the UUID of that device may come again, this
        is sure only if the mark is the same too, or if the applier's own servers are there, since an instance in use
        cannot be destroyed. An instance without any compute instance has nothing that tells it from another.

        Parameters
        ----------
        made
            What the applier recorded of an instance at this place in this start of the driver; None if nothing.
        known
            Whether the handle that this process has of its own instance here is still valid, which says more than any
            record; None if it has none.
        interrupted
            Whether a run was cut off that may have made or changed an instance here.
        served
            Whether servers or the MPS daemon of the applier have processes on the slice.
        adopt
            Whether an instance of which nobody can tell counts as made by the applier; None if that is open.
        """
        if self.enumerator is None:
            return self
        same = made is not None and made.instance in (None, self.instance)
        parts = made.parts if made and same else set()
        pairs = zip(self.devices, self.computes, strict=True)
        foreign = tuple(compute for device, compute in pairs if (device, compute) not in parts)
        ours = known if known is not None else len(foreign) < len(self.computes)
        unsure = interrupted or (same and not self.computes)
        if ours:
            proven = served or bool(self.mark and made and made.mark == self.mark)
            unsure = not proven and any(map(NAME_BASED.fullmatch, self.devices))
        else:
            foreign = self.computes
        unsure = unsure and known is None
        if unsure and adopt is not None:
            if not adopt:
                foreign = self.computes
            elif not ours:
                foreign = ()
            ours, unsure = adopt, False
        return self.model_copy(update={"foreign": not ours, "foreign_computes": foreign, "unsure": unsure})

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
