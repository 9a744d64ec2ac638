"""Assigns physical GPUs to the GPUs of a plan so that the fewest slices are destroyed (an assignment problem), and fits
the layout to them: to the driver's numbers of SMs, and to the room that other instances leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import scipy

from provision.applier.layout import (
    Compute,
    GpuIdentity,
    GpuLayout,
    MachineLayout,
    Observed,
    ObservedGpu,
    ObservedSlice,
    SliceLayout,
)
from provision.applier.steps import Step, exclude, gpu_steps
from provision.applier.target import Commands, check_plan, gpu_layout
from provision.models.base.errors import InputError
from provision.models.base.objects import known
from provision.models.hardware.gpu import GpuType, MigProfile, gpu_type, gpu_types, names_type
from provision.models.plans.plan import Plan


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
    """Yield, by GPU, a line for every profile whose slices have other numbers of SMs than the plan assumes."""
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


def least_moves(kind: GpuType, standing: Sequence[ObservedSlice],
                wanted: Sequence[SliceLayout]) -> list[tuple[ObservedSlice, int]]:
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


G = TypeVar("G", bound=GpuIdentity)


def target_layout(plan: Plan, present: Observed, commands: Commands,
                  chosen: Iterable[str] | None = None) -> MachineLayout:
    """The layout that a plan asks for on the observed GPUs.

    The assignment disturbs the fewest clients and MIG modes. Among such assignments it destroys the fewest instances,
    and among these it needs the fewest steps. GPUs that may be used but are not needed keep their instances, and lose
    the daemons and replicas that an earlier run of the applier put there.

    Parameters
    ----------
    plan
        The Plan.
    present
        The Observed state.
    commands
        The Commands that serve replicas.
    chosen
        The indices or UUIDs of the GPUs that may be used; by default all GPUs of the plan's types.

    Raises
    ------
    InputError
        If no GPU can take some part of the plan, or if there are not enough GPUs.
    """
    check_plan(plan)
    allowed = _allowed(present.gpus, chosen)
    goals, retired = [], []
    for name in sorted({gpu.gpu for gpu in plan.gpus}):
        wanted = [gpu for gpu in plan.gpus if gpu.gpu == name]
        there = [gpu for gpu in allowed if names_type(gpu.product, gpu_type(name))]
        if len(wanted) > len(there):
            least = f"the plan needs {len(wanted)} GPUs of type {name}, {len(there)} may be used"
            raise InputError(f"{least} ({_listed(allowed)}); free or name more with --gpus")
        taken = _assign([gpu_layout(gpu, "-", commands) for gpu in wanted], there)
        goals += taken
        retired += [gpu for gpu in there if gpu.uuid not in {goal.uuid for goal in taken}]
    _check_profiles(plan, present, goals)
    return MachineLayout(gpus=tuple(goals + [_without_services(gpu) for gpu in retired if _serves(gpu)]))


def candidates(plan: Plan, identities: Sequence[GpuIdentity], chosen: Iterable[str] | None = None) -> list[str]:
    """The UUIDs of the GPUs that a plan may use: GPUs of its types and, if ``chosen`` is given, only those. Raises
    InputError if a chosen GPU does not exist.
    """
    kinds = [gpu_type(name) for name in sorted({gpu.gpu for gpu in plan.gpus})]
    return [gpu.uuid for gpu in _allowed(identities, chosen) if any(names_type(gpu.product, kind) for kind in kinds)]


def _allowed(gpus: Sequence[G], chosen: Iterable[str] | None) -> tuple[G, ...]:
    """The GPUs that ``chosen`` names by index or UUID; all GPUs if it is None."""
    if chosen is None:
        return tuple(gpus)
    found = {}
    for name in chosen:
        gpu = next((gpu for gpu in gpus if name in (str(gpu.index), gpu.uuid)), None)
        if gpu is None:
            raise InputError(f"--gpus {name}: there is no such GPU; there are {_listed(gpus)}")
        found[gpu.uuid] = gpu
    return tuple(found.values())


def _listed(gpus: Sequence[GpuIdentity]) -> str:
    return ", ".join(f"{gpu.index} {gpu.product} {gpu.uuid}" for gpu in gpus) or "none"


def _assign(wanted: Sequence[GpuLayout], there: Sequence[ObservedGpu]) -> list[GpuLayout]:
    """Every wanted layout, with the UUID of the GPU that is assigned to it."""
    goals = [[fitted_gpu(goal.model_copy(update={"uuid": here.uuid}), here) for here in there] for goal in wanted]
    costs = np.array([[_cost(here, goal) for here, goal in zip(there, row, strict=True)] for row in goals])
    # The four numbers are weighted so that the sum of a later one over all GPUs never reaches the weight of an earlier
    # one.
    units = np.cumprod(np.r_[1, costs.reshape(-1, 4).max(axis=0, initial=0)[:0:-1] * len(wanted) + 1])[::-1]
    rows, columns = scipy.optimize.linear_sum_assignment(costs @ units)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return [wanted[row].model_copy(update={"uuid": there[column].uuid}) for row, column in pairs]


def _cost(here: ObservedGpu, goal: GpuLayout) -> tuple[int, int, int, int]:
    """What it costs to bring a GPU to a layout, most important first.

    The number of steps that disturb others (they end their processes, destroy or use what they made, or change a MIG
    mode) and of their processes beside which replicas would run; the number of destroyed instances; that of all steps;
    and that of the processes of others on the GPU.
    """
    steps = gpu_steps(here, goal)
    actions = [step.action for step in steps]
    disturbed = sum(len(piece.clients) for piece in here.slices) * ("set_mig_mode" in actions)
    disturbed += sum(step.foreign or step.action in ("adopt", "evict", "set_mig_mode") for step in steps)
    disturbed += sum(len(step.clients) for step in steps if step.action == "adopt")
    others = sum(len(piece.strangers) for piece in here.slices)
    return disturbed, actions.count("destroy_instance"), len(actions), others


def _check_profiles(plan: Plan, present: Observed, goals: Sequence[GpuLayout]) -> None:
    """Refuse a GPU whose driver does not know a profile of the plan."""
    for goal in goals:
        here = known(present.gpu(goal.uuid))
        offered = {profile.enumerator: profile for profile in here.profiles}
        for piece in goal.slices if offered else ():
            if piece.enumerator not in offered:
                raise InputError(f"GPU {here.index}: its driver has no profile {piece.profile}; update the driver")


def _serves(gpu: ObservedGpu) -> bool:
    return any(piece.mps or any(piece.replicas) for piece in gpu.slices)


def _without_services(gpu: ObservedGpu) -> GpuLayout:
    kept = gpu.layout()
    slices = tuple(piece.model_copy(update={"mps": False, "replicas": ()}) for piece in kept.slices)
    return kept.model_copy(update={"slices": slices})
