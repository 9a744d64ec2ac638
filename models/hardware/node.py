"""Nodes: several GPUs of one type in a machine, of which a replica may hold a group (tensor parallelism).

A node of n GPUs of a type is a GPU type of its own, called ``NxTYPE`` (``8xh100-80gb``). It is partitioned as MIG
partitions a GPU: its slices are groups of 1, 2, 4 or 8 GPUs that stand side by side (``1gpu``, ``2gpu``, ...), each
at a multiple of its own size. Performance data for groups names the node as its GPU type.
"""

from __future__ import annotations

from collections.abc import Iterable

from provision.models.hardware.gpu import WHOLE, GpuType, Mig, MigProfile, gpu_types

SIZES = (2, 4, 8)
"""Numbers of GPUs that a node may have."""
UNIT = "gpu"
"""What the names of groups end in."""


def split(name: str) -> tuple[int, str]:
    """The number of GPUs of a type, and the name of the GPU type that each of them is."""
    many, times, kind = name.partition("x")
    node = times and many in map(str, SIZES) and kind in gpu_types()
    return (int(many), kind) if node else (1, name)


def node_type(name: str) -> GpuType | None:
    """The type of a node of shipped GPUs; None where the name is none of such a node."""
    many, kind = split(name)
    return _node(name, many, gpu_types()[kind]) if many > 1 else None


def group_of(profile: str) -> int | None:
    """How many whole GPUs a slice of this profile is; None for a MIG instance."""
    if profile == WHOLE:
        return 1
    size = profile.removesuffix(UNIT)
    return int(size) if profile.endswith(UNIT) and size.isdecimal() else None


def gpus_in(names: Iterable[str]) -> int:
    """How many GPUs these are, by the names of their types: nodes count all of theirs."""
    return sum(split(name)[0] for name in names)


def _node(name: str, many: int, gpu: GpuType) -> GpuType:
    groups = tuple(_group(size, many, gpu) for size in (1, *SIZES) if size <= many)
    mig = Mig(compute_slices=many * _compute(gpu), memory_slices=many, min_driver="", profiles=groups)
    return GpuType(
        version=1, name=name, product=f"{many} x {gpu.product}", architecture=gpu.architecture, gpus=many,
        sms=many * gpu.sms, memory_gib=many * gpu.memory_gib, l2_mib=many * gpu.l2_mib,
        memory_bandwidth_gb_s=many * gpu.memory_bandwidth_gb_s, power_cap_w=many * gpu.power_cap_w,
        max_clock_mhz=gpu.max_clock_mhz, mps_clients=many * gpu.mps_clients, mig=mig,
    )  # fmt: skip


def _group(size: int, many: int, gpu: GpuType) -> MigProfile:
    """The profile of groups of so many GPUs."""
    return MigProfile(
        name=f"{size}{UNIT}", compute=size * _compute(gpu), memory=size, sms=size * gpu.sms,
        memory_gib=size * gpu.memory_gib, max=many // size, starts=tuple(range(0, many, size)), profile_id=0,
        nvml_profile=0,
    )  # fmt: skip


def _compute(gpu: GpuType) -> int:
    """Compute slices that a GPU counts: those of MIG, or itself."""
    return gpu.compute_slices or 1
