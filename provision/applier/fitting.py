"""Fits a layout to the real GPUs: to the driver's numbers of SMs, and to the room that other instances leave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from provision.applier.layout import Compute, MachineLayout
from provision.applier.products import names_type
from provision.applier.steps import exclude
from provision.models.hardware.gpu import gpu_types

if TYPE_CHECKING:
    from provision.applier.layout import GpuLayout, Observed, ObservedGpu, ObservedSlice, SliceLayout
    from provision.applier.steps import Step
    from provision.models.hardware.gpu import GpuType, MigProfile


def fitted(layout: MachineLayout, present: Observed) -> MachineLayout:
    """The layout of a plan with the driver's numbers of SMs, which may differ from those of data sheets."""
    return layout.model_copy(update={"gpus": tuple(fitted_gpu(goal, present.gpu(goal.uuid)) for goal in layout.gpus)})


def fitted_gpu(goal: GpuLayout, here: ObservedGpu | None) -> GpuLayout:
    """The layout of a planned GPU with the driver's numbers of SMs, if the driver tells them."""
    offered = {profile.enumerator: profile.sms for profile in here.profiles} if here else {}
    slices = tuple(
        piece.model_copy(update={"computes": (Compute(sms=offered[piece.enumerator]),)})
        if piece.enumerator in offered and len(piece.computes) == 1
        else piece
        for piece in goal.slices
    )
    return goal.model_copy(update={"slices": slices})


def other_sms(layout: MachineLayout, present: Observed) -> Iterator[str]:
    """Yield a line on every slice that has another number of SMs on these GPUs than the plan assumes."""
    for planned, real in zip(layout.gpus, fitted(layout, present).gpus, strict=True):
        here = present.gpu(planned.uuid)
        differing = {
            (one.profile, one.computes[0].sms, other.computes[0].sms)
            for one, other in zip(planned.slices, real.slices, strict=True) if one.computes != other.computes
        }
        for profile, counted, sms in sorted(differing):
            yield (
                f"GPU {here.index if here else planned.uuid}: {profile} has {sms} SMs here, the plan counts on "
                f"{counted}: latencies will differ; measure on this GPU and plan again"
            )


def room_for(piece: SliceLayout, here: ObservedGpu, steps: Sequence[Step]) -> str:
    """The end of a sentence: the fewest instances that would have to move, and where to, so that slices have room.

    Parameters
    ----------
    piece
        The slice that is to be created, or a slice that is in the way of slices which ``steps`` create.
    here
        The observed GPU.
    steps
        The steps that were planned for the GPU.
    """
    kind = next((kind for kind in gpu_types().values() if names_type(here.product, kind)), None)
    wanted = [known for step in steps if step.gpu == here.uuid and step.action == "create_instance"
              if (known := step.slice)] or [piece]
    gone = {step.slice.key for step in steps
            if step.gpu == here.uuid and step.action == "destroy_instance" and step.slice and not step.foreign}
    standing = [old for old in here.slices if old.enumerator is not None and old.key not in gone]
    if kind is None or not standing or not (moves := least_moves(kind, standing, wanted)):
        return ""
    told = ", ".join(f"{old.profile} from {old.start} to {start}" for old, start in moves)
    return f"; the fewest moves that make room: {told}"


def least_moves(
    kind: GpuType, standing: Sequence[ObservedSlice], wanted: Sequence[SliceLayout]
) -> list[tuple[ObservedSlice, int]]:
    """The fewest instances that must be moved so that the wanted ones have room, each with its new start.

    Backtracking over all starts of all instances finds them. The list is empty if there is room already, or if moves
    cannot make room.
    """
    profiles = {profile.nvml_profile: profile for profile in kind.profiles.values()}
    if any(old.enumerator not in profiles for old in standing):
        return []
    best: list[tuple[ObservedSlice, int]] | None = None

    def place(at: int, placed: list[SliceLayout], moves: list[tuple[ObservedSlice, int]]) -> None:
        nonlocal best
        if best is not None and len(moves) >= len(best):
            return
        if at == len(standing):
            best = moves
            return
        old = standing[at]
        for start in _starts(profiles[old.enumerator or 0], old):
            moved = old if start == old.start else old.model_copy(update={"start": start})
            if not any(exclude(other, moved) for other in placed):
                place(at + 1, [*placed, moved], moves if moved is old else [*moves, (old, start)])

    place(0, list(wanted), [])
    return best or []


def _starts(profile: MigProfile, old: ObservedSlice) -> list[int]:
    """The starts that an instance may have; its present start comes first."""
    return [old.start, *(start for start in profile.starts if start != old.start)]

