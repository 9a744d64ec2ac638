"""What a plan needs from its GPUs: room for the slices, and MPS where processes share a slice.

The verifier, the applier and the exporters all use this module, so that they never disagree.
Source: NVIDIA MIG user guide (placements, media engines), NVIDIA MPS documentation (active thread percentage).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from provision.models.hardware.gpu import WHOLE, GpuType, gpu_type
from provision.models.plans.plan import PlannedGpu, Replica, Slice
from provision.models.plans.report import Kind


class Misfit(NamedTuple):
    """A reason why a GPU cannot take what is planned for it.

    Attributes
    ----------
    kind
        The kind of rule that is broken, as in a Violation.
    message
        What is wrong, without naming GPU and slice.
    position
        The index of the slice on the GPU; None if the GPU as a whole is concerned.
    value, limit
        The wrong number and its limit; None if the rule has no numbers.
    """

    kind: Kind
    message: str
    position: int | None = None
    value: float | None = None
    limit: float | None = None


def needs_mps(piece: Slice) -> bool:
    """Whether a slice needs an MPS daemon: it has several processes, or a process that may use only a part of the SMs.
    """
    return sum(replica.processes for replica in piece.replicas) > 1 or any(
        replica.sm_share < 1 for replica in piece.replicas
    )


def percentage(replica: Replica) -> str:
    """The active thread percentage of each process of a replica, as text for MPS."""
    return f"{100 * replica.sm_share:.6g}"


def has_profile(gpu: PlannedGpu, piece: Slice) -> bool:
    """Whether the GPU, in its MIG mode, offers slices of this profile."""
    kind = gpu_type(gpu.gpu)
    return piece.profile in kind.profiles if gpu.mig and kind.mig else piece.profile == WHOLE


def misfits(gpu: PlannedGpu) -> Iterator[Misfit]:
    """Yield every reason why the slices of a planned GPU cannot stand on it together: profiles, starts, overlaps,
    capacity. Raises InputError if there is no such GPU type.
    """
    kind = gpu_type(gpu.gpu)
    if gpu.mig and not kind.mig:
        yield Misfit("profile", f"{gpu.gpu} has no MIG; set mig to false")
    for position, piece in enumerate(gpu.slices):
        yield from _profile_misfits(gpu, kind, position, piece)
    yield from _overlaps(gpu, kind)
    yield from _excesses(gpu, kind)


def too_many_clients(kind: GpuType, piece: Slice, mps: bool = True) -> Misfit | None:
    """The misfit if a slice has more processes than may share it, else None. Without MPS, only one process may run."""
    clients, limit = sum(replica.processes for replica in piece.replicas), 1
    if mps:
        limit = kind.slice_mps_clients(piece.profile)
    if clients <= limit:
        return None
    why = f"MPS serves at most {limit} on {piece.profile}" if mps else "without MPS a slice runs one"
    return Misfit("clients", f"{clients} processes, {why}", value=clients, limit=limit)


def _profile_misfits(gpu: PlannedGpu, kind: GpuType, position: int, piece: Slice) -> Iterator[Misfit]:
    """Yield what is wrong with a slice's profile, or with its start."""
    if not has_profile(gpu, piece):
        if gpu.mig and kind.mig:
            message = f"{gpu.gpu} has no MIG profile {piece.profile!r}; it has {', '.join(kind.profiles)}"
        else:
            message = f"profile {piece.profile} needs MIG, which is off; use whole"
        yield Misfit("profile", message, position)
    elif piece.profile == WHOLE:
        if piece.start:
            yield Misfit("start", f"a whole GPU starts at memory slice 0, not {piece.start}", position, piece.start)
    elif piece.start not in (starts := kind.profiles[piece.profile].starts):
        message = f"{piece.profile} cannot start at memory slice {piece.start}; it can at {', '.join(map(str, starts))}"
        yield Misfit("start", message, position, piece.start)


def _overlaps(gpu: PlannedGpu, kind: GpuType) -> Iterator[Misfit]:
    """Yield a misfit for every slice that overlaps an earlier slice in memory."""
    taken: dict[int, int] = {}
    for position, piece in enumerate(gpu.slices):
        if not has_profile(gpu, piece):
            continue
        slots = memory_slices(kind, piece)
        for other in sorted({taken[slot] for slot in slots if slot in taken}):
            shared = [slot for slot in slots if taken.get(slot) == other]
            message = (
                f"{piece.profile} at {piece.start} overlaps {gpu.slices[other].profile} at "
                f"{gpu.slices[other].start} (slice {other}) on memory slices {', '.join(map(str, shared))}"
            )
            yield Misfit("overlap", message, position, len(shared), 0)
        taken |= {slot: position for slot in slots if slot not in taken}


def memory_slices(kind: GpuType, piece: Slice) -> range:
    """The memory slices that a slice takes; a whole GPU counts as one."""
    if piece.profile == WHOLE:
        return range(1)
    return range(piece.start, piece.start + kind.profiles[piece.profile].memory)


def _excesses(gpu: PlannedGpu, kind: GpuType) -> Iterator[Misfit]:
    """Yield where slices exceed the GPU: compute slices, memory slices, instances of a profile, media engines."""
    names = [piece.profile for piece in gpu.slices if piece.profile != WHOLE and has_profile(gpu, piece)]
    if not names or kind.mig is None:
        return
    profiles, media = [kind.profiles[name] for name in names], kind.with_media(dict.fromkeys(names))
    checks = [
        ("compute slices", sum(profile.compute for profile in profiles), kind.mig.compute_slices),
        ("memory slices", sum(profile.memory for profile in profiles), kind.mig.memory_slices),
        *((f"instances of {name}", n, kind.profiles[name].max) for name, n in Counter(names).items()),
        (f"sets of media engines ({' and '.join(media)})", len(media), 1),
    ]
    for what, value, limit in checks:
        if value > limit:
            yield Misfit("capacity", f"{value} {what}, the GPU has {limit}", None, value, limit)
