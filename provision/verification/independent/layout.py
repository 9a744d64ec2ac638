"""Checks whether GPUs can be partitioned and shared as planned: MIG placements, SM shares, processes, memory."""

from collections import Counter
from collections.abc import Iterator

from .kinds.gpulets import parts
from .kinds.service import data_for, kind_of, services
from .nvidia import MOST_MPS_CLIENTS, WHOLE, gpu_type, has_mig, node_of, slice_gib
from .records import Instance, PlannedGpu, Slice, UndescribedError

ROUNDING = 1e-9


def layout_faults(instance: Instance, plan: tuple[PlannedGpu, ...]) -> Iterator[str]:
    """Yield a line for everything that is impossible on the GPUs."""
    for index, gpu in enumerate(plan):
        known = gpu_type(gpu.gpu_type)
        if known is None:
            yield f"GPU {index}: type {gpu.gpu_type} is not known"
        elif gpu.mig:
            yield from _partition_faults(index, gpu)
        else:
            yield from _whole_faults(index, gpu)
        for piece in gpu.slices:
            yield from _sharing_faults(instance, piece)


def _partition_faults(index: int, gpu: PlannedGpu) -> Iterator[str]:
    """Yield a line for MIG instances at wrong starts, for overlapping instances, and for too many of a profile."""
    if not has_mig(gpu.gpu_type):
        yield f"GPU {index}: {gpu.gpu_type} has no MIG"
        return
    profiles = gpu_type(gpu.gpu_type).profiles  # type: ignore[union-attr]
    taken: dict[int, str] = {}
    for piece in gpu.slices:
        profile = profiles.get(piece.profile)
        if profile is None or piece.start not in profile.starts:
            yield f"{piece.place}: no such profile or placement on {gpu.gpu_type}"
            continue
        for memory in range(piece.start, piece.start + profile.memory):
            if memory in taken:
                yield f"{piece.place}: memory slice {memory} is taken by {taken[memory]}"
            taken[memory] = piece.profile
    many = Counter(piece.profile for piece in gpu.slices if piece.profile in profiles)
    yield from (f"GPU {index}: {count} of {name}, at most {profiles[name].most}"
                for name, count in many.items() if count > profiles[name].most)
    if sum(profiles[name].compute * count for name, count in many.items()) > max(p.compute for p in profiles.values()):
        yield f"GPU {index}: more compute slices than it has"


def _whole_faults(index: int, gpu: PlannedGpu) -> Iterator[str]:
    """Yield what is wrong on a GPU without MIG, whose only slice is the whole GPU, or on a node of several GPUs.

    The slices of a node are groups of 1, 2, 4 or 8 of its GPUs; groups must not overlap.
    """
    many, _ = node_of(gpu.gpu_type)
    if many == 1:
        if [piece.profile for piece in gpu.slices] not in ([], [WHOLE]) or any(piece.start for piece in gpu.slices):
            yield f"GPU {index}: without MIG the only slice is the whole GPU"
        return
    taken: set[int] = set()
    for piece in gpu.slices:
        grouped = piece.profile.removesuffix("gpu")
        size = int(grouped) if grouped.isdigit() else 0
        group = set(range(piece.start, piece.start + size))
        if size not in (1, 2, 4, 8) or piece.start % size or max(group) >= many or group & taken:
            yield f"{piece.place}: {piece.profile} at {piece.start} does not fit a node of {many}"
        taken |= group


def _sharing_faults(instance: Instance, piece: Slice) -> Iterator[str]:
    """Yield what is wrong with SM shares, processes and memory of the replicas on one slice."""
    entries = [one for one in instance.fleet if one.gpu == piece.gpu_type and one.mig == piece.mig]
    processes = sum(one.processes for one in piece.replicas)
    if processes > 1 and entries and not any(one.mps for one in entries):
        yield f"{piece.place}: {processes} processes on a slice without MPS"
    if processes > MOST_MPS_CLIENTS:
        yield f"{piece.place}: {processes} processes, an MPS server takes {MOST_MPS_CLIENTS}"
    if not piece.replicas:
        return
    try:
        data = data_for(instance.performance, piece)
    except UndescribedError as error:
        yield f"{piece.place}: no data describes it: {error}"
        return
    kind = kind_of(data)
    if len(piece.replicas) > 1 and kind.together and not instance.policy.share_slices:
        yield f"{piece.place}: replicas share a slice, and the policy does not say share_slices"
    if kind.language:
        if len(piece.replicas) > 1:
            yield f"{piece.place}: language models do not share a slice"
        for one in piece.replicas:
            if one.processes != 1 or one.share != 1 or one.turn is not None:
                yield f"{piece.place}: {one.workload} is a language model, one process with the slice to itself"
        return
    if kind.divided:
        yield from _share_faults(kind.turns, float(data.get("unit_share") or data.get("hardware", {}).get(
            "unit_share") or 0), piece)
    if kind.turns:
        yield from (f"{piece.place}: {one.workload} has batches of {one.batch}, which this data does not list"
                    for one in piece.replicas if one.batch not in data["batches"])
    else:
        yield from (f"{piece.place}: {one.workload} takes turns, which this data does not describe"
                    for one in piece.replicas if one.turn is not None)
    yield from _memory_faults(instance, piece)


def _share_faults(turns: bool, unit: float, piece: Slice) -> Iterator[str]:
    """Yield what is wrong with SM shares: not a multiple of the unit, more than 1 in sum, or different within a turn.
    """
    if turns:
        sides = parts(piece).values()
        for members in sides:
            if len({piece.replicas[at].share for at in members}) > 1:
                yield f"{piece.place}: replicas of one turn have different SM shares"
        total = sum(piece.replicas[members[0]].share for members in sides)
    else:
        total = sum(one.share for one in piece.replicas)
        for one in piece.replicas:
            if abs(one.share / unit - round(one.share / unit)) > 1e-6:
                yield f"{piece.place}: SM share {one.share} of {one.workload} is no multiple of {unit}"
    if total > 1 + ROUNDING:
        yield f"{piece.place}: SM shares add up to {total:.4g}"


def _memory_faults(instance: Instance, piece: Slice) -> Iterator[str]:
    """Yield a line if the memory does not suffice, where the data states it."""
    needs = [one.memory_gib for one in services(instance.performance, piece)]
    has = slice_gib(piece.gpu_type, piece.profile)
    told = sum(one for one in needs if one is not None)
    if has is not None and told > has + ROUNDING:
        yield f"{piece.place}: {told:.4g} GiB of memory, the slice has {has:.4g}"
