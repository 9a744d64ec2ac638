"""The running plan under a new demand: how each slice could go on, and to which states its GPUs can be brought.

A replica goes on without a restart as long as its workload, model, processes and SM share stay. Its batch size and rate
may change (InSS's Algorithm 1 changes nothing else). Any other change starts server processes. A GPU is brought to a
maximal state of its geometry: slices that are part of the state stay, and the others are destroyed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from provision.formulations.search.segments import Segments
from provision.models.base.errors import InputError
from provision.models.hardware.geometry import geometry
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance

APART = "plan: a GPU holds slices that cannot stand together; provision verify says which"
SPELLED_OUT = -1
"""The model index in a Key if a plan names the workload's own model explicitly. Plans made by this package never do."""


class Key(NamedTuple):
    """The properties of a running replica that must not change if it is to go on without a restart.

    They are the indices of its workload and model, its number of processes, and its SM share.
    """

    workload: int
    model: int
    processes: int
    sm_share: float


class Going(NamedTuple):
    """A slice of the running plan: its slice type and the keys of its replicas, in ascending order.

    ``slice_type`` is -1 if no slice type of the new problem fits. Replicas that the new problem cannot have are left
    out.
    """

    slice_type: int
    keys: tuple[Key, ...]


class Turn(NamedTuple):
    """A state to which a GPU can be brought.

    ``kept`` are the positions of its slices that stay; ``new`` are places (start, slice type) for new slices.
    """

    kept: tuple[int, ...]
    new: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class RunningPlan:
    """A running plan. For each of its GPUs: the index of its fleet entry (-1 if the GPU is not in the fleet), its
    slices, and the states to which it can be brought (``turns``).

    If a GPU type has several fleet entries with different prices, ``entry`` has the first of them for all GPUs of this
    type, and ``tiers`` maps the first to all of them. The plan does not say which of its GPUs has which price; when a
    GPU is given back, it does not matter which one.
    """

    plan: Plan
    entry: list[int]
    tiers: dict[int, list[int]]
    going: list[tuple[Going, ...]]
    turns: list[tuple[Turn, ...]]


def running(instance: Instance, segments: Segments, plan: Plan) -> RunningPlan:
    """The RunningPlan of a plan for an instance.

    Parameters
    ----------
    instance
        The new problem.
    segments
        The Segments of the problem.
    plan
        The running plan, made for the same or an earlier demand.

    Raises
    ------
    InputError
        If the slices of a GPU cannot stand together.
    """
    rows = {workload.name: index for index, workload in enumerate(instance.workloads)}
    slice_types = {
        (slice_type.entry, slice_type.profile): index for index, slice_type in enumerate(segments.slice_types)
    }
    by_type: dict[tuple[str, bool], list[int]] = {}
    for index, one in enumerate(instance.fleet):
        by_type.setdefault((one.gpu, one.partitioned), []).append(index)
    entry = [by_type.get((gpu.gpu, gpu.mig), [-1])[0] for gpu in plan.gpus]
    going = [
        tuple(_going(instance, piece, slice_types.get((at, piece.profile), -1), rows) for piece in gpu.slices)
        for at, gpu in zip(entry, plan.gpus, strict=True)
    ]
    turns = [_turns(instance, segments, at, gpu) if at >= 0 else () for at, gpu in zip(entry, plan.gpus, strict=True)]
    return RunningPlan(plan, entry, {indices[0]: indices for indices in by_type.values()}, going, turns)


def _going(instance: Instance, piece: Slice, slice_type: int, rows: Mapping[str, int]) -> Going:
    keys = (
        _key(instance, one, rows[one.workload]) for one in piece.replicas if slice_type >= 0 and one.workload in rows
    )
    return Going(slice_type, tuple(sorted(key for key in keys if key is not None)))


def _key(instance: Instance, replica: Replica, workload: int) -> Key | None:
    """The Key of a running replica; None if its workload no longer has its model."""
    names = instance.workloads[workload].models
    if replica.model is not None and replica.model not in names:
        return None
    model = 0 if replica.model is None else names.index(replica.model) or SPELLED_OUT
    return Key(workload, model, replica.processes, replica.sm_share)


def _turns(instance: Instance, segments: Segments, entry: int, gpu: PlannedGpu) -> tuple[Turn, ...]:
    """Every Turn of one GPU. Turns that keep the most slices come first."""
    slice_types, places = segments.of_entry(entry), {(piece.start, piece.profile) for piece in gpu.slices}
    if len(places) < len(gpu.slices) or not (gpu.mig or places <= {(0, WHOLE)}):
        raise InputError(APART)
    if not gpu.mig:
        whole = Turn((0,), ()) if gpu.slices else Turn((), ((0, slice_types[0]),)) if slice_types else None
        return (whole,) if whole else ()
    names = list(
        dict.fromkeys(
            [segments.slice_types[slice_type].profile for slice_type in slice_types]
            + [one.profile for one in gpu.slices]
        )
    )
    shape = geometry(instance.fleet[entry].type, tuple(names))
    known = {segments.slice_types[slice_type].profile: slice_type for slice_type in slice_types}
    here = {(piece.start, names.index(piece.profile)): at for at, piece in enumerate(gpu.slices)}
    if tuple(sorted(here)) not in shape.states:
        raise InputError(APART)
    found = set()
    for state in shape.maximal_states:
        kept = tuple(sorted(here[place] for place in state if place in here))
        new = tuple((start, known[names[at]]) for start, at in state if (start, at) not in here and names[at] in known)
        found.add(Turn(kept, new))
    return tuple(sorted(found, key=lambda turn: (-len(turn.kept), turn)))
