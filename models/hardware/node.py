"""Nodes: machines with several GPUs of one type, where one replica may run on a group of GPUs (tensor parallelism).

A node of N GPUs is modelled as a GPU type named ``NxTYPE``, such as ``8xh100-80gb``. It is partitioned as MIG
partitions a GPU: its slices are groups of 1, 2, 4 or 8 neighbouring GPUs (``1gpu``, ``2gpu``, ...), and a group starts
at a multiple of its size. Performance data for groups names the node as its GPU type.
"""

from __future__ import annotations

from collections.abc import Iterable

from provision.models.hardware.gpu import WHOLE, GpuType, Mig, MigProfile, gpu_types

SIZES = (2, 4, 8)
"""Numbers of GPUs that a node may have."""
UNIT = "gpu"
"""The end of a group's name."""


def split(name: str) -> tuple[int, str]:
    """Split a type's name into the number of GPUs and the name of their GPU type: ``8xh100-80gb`` is (8, h100-80gb)."""
    many, times, kind = name.partition("x")
    node = times and many in map(str, SIZES) and kind in gpu_types()
    return (int(many), kind) if node else (1, name)


def node_type(name: str) -> GpuType | None:
    """The type of a node of shipped GPUs; None when the name is not that of such a node."""
    many, kind = split(name)
    return _node(name, many, gpu_types()[kind]) if many > 1 else None


def group_of(profile: str) -> int | None:
    """The number of whole GPUs in a slice of this profile; None for a MIG instance."""
    if profile == WHOLE:
        return 1
    size = profile.removesuffix(UNIT)
    return int(size) if profile.endswith(UNIT) and size.isdecimal() else None


def gpus_in(names: Iterable[str]) -> int:
    """The number of GPUs in a list of type names; a node counts as all of its GPUs."""
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
    """The profile of groups of ``size`` GPUs in a node of ``many``."""
    return MigProfile(
        name=f"{size}{UNIT}", compute=size * _compute(gpu), memory=size, sms=size * gpu.sms,
        memory_gib=size * gpu.memory_gib, max=many // size, starts=tuple(range(0, many, size)), profile_id=0,
        nvml_profile=0,
    )  # fmt: skip


def _compute(gpu: GpuType) -> int:
    """Compute slices of one GPU: those of MIG, or 1 when the type has no MIG."""
    return gpu.compute_slices or 1
