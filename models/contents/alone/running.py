"""The running plan, seen from a new demand: how each slice could go on, and which states its GPUs can be brought to.

A slice can go on with its workload at another batch size without a restart, the only change that InSS's Algorithm 1
makes; any other change starts server processes. A GPU is brought to a maximal state of its geometry: its slices that
are in the state stay, the others are destroyed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from provision.models.base.errors import InputError, UnsupportedError
from provision.models.contents.alone.segments import Segments, best_point
from provision.models.hardware.geometry import geometry
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.plan import Plan, PlannedGpu, Slice
from provision.models.problem.instance import Instance

APART = "plan: a GPU holds slices that cannot stand together; provision verify says which"


class Going(NamedTuple):
    """What a slice of the running plan does: its kind and workload by index, its processes, and its model.

    ``kind`` is -1 where no kind of the new problem fits; ``workload`` is -1 where the slice is empty or its workload is
    not in the new problem. ``model`` is as in a Replica.
    """

    kind: int
    workload: int
    processes: int
    model: str | None


class Turn(NamedTuple):
    """A state that a GPU can be brought to: positions of its slices that stay, and (start, kind) places of new ones."""

    kept: tuple[int, ...]
    new: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class RunningPlan:
    """A running plan on an instance: per GPU its fleet entry (-1: not in the fleet), slices and possible turns.

    Where a type has several entries at different prices, its GPUs count for the first entry, and ``tiers`` maps that
    entry to all of them: which GPU is given back makes no difference to the cost. ``capacity`` maps every Going that
    keeps its latency budget to (throughput_rps, batch).
    """

    plan: Plan
    entry: list[int]
    tiers: dict[int, list[int]]
    going: list[tuple[Going, ...]]
    turns: list[tuple[Turn, ...]]
    capacity: dict[Going, tuple[float, int]]


def running(instance: Instance, segments: Segments, plan: Plan) -> RunningPlan:
    """Look at a running plan from an instance.

    Parameters
    ----------
    instance
        The new problem.
    segments
        Its Segments.
    plan
        The Plan that runs, made for the same or an earlier demand.

    Raises
    ------
    UnsupportedError
        When different workloads share a slice of the plan.
    InputError
        When a slice does not exist on its GPU.
    """
    rows = {workload.name: index for index, workload in enumerate(instance.workloads)}
    kinds = {(kind.entry, kind.profile): index for index, kind in enumerate(segments.kinds)}
    by_type: dict[tuple[str, bool], list[int]] = {}
    for index, one in enumerate(instance.fleet):
        by_type.setdefault((one.gpu, one.partitioned), []).append(index)
    entry = [by_type.get((gpu.gpu, gpu.mig), [-1])[0] for gpu in plan.gpus]
    going = [
        tuple(_going(piece, kinds.get((at, piece.profile), -1), rows) for piece in gpu.slices)
        for at, gpu in zip(entry, plan.gpus, strict=True)
    ]
    turns = [_turns(instance, segments, at, gpu) if at >= 0 else () for at, gpu in zip(entry, plan.gpus, strict=True)]
    known = {one: _capacity(instance, segments, one) for one in {one for gpu in going for one in gpu}}
    tiers = {indices[0]: indices for indices in by_type.values()}
    return RunningPlan(plan, entry, tiers, going, turns, {one: found for one, found in known.items() if found})


def _going(piece: Slice, kind: int, rows: Mapping[str, int]) -> Going:
    if len(piece.replicas) > 1 or any(replica.sm_share < 1 for replica in piece.replicas):
        raise UnsupportedError(
            f"replan: slice {piece.profile} at {piece.start} is shared by {len(piece.replicas)} replicas; "
            "replanning is for slices of one replica each"
        )
    if not piece.replicas:
        return Going(kind, -1, 0, None)
    replica = piece.replicas[0]
    return Going(kind, rows.get(replica.workload, -1), replica.processes, replica.model)


def _turns(instance: Instance, segments: Segments, entry: int, gpu: PlannedGpu) -> tuple[Turn, ...]:
    """Every Turn of one GPU; those that keep the most slices come first."""
    kinds, places = segments.of_entry(entry), {(piece.start, piece.profile) for piece in gpu.slices}
    if len(places) < len(gpu.slices) or not (gpu.mig or places <= {(0, WHOLE)}):
        raise InputError(APART)
    if not gpu.mig:
        whole = Turn((0,), ()) if gpu.slices else Turn((), ((0, kinds[0]),)) if kinds else None
        return (whole,) if whole else ()
    names = list(dict.fromkeys([segments.kinds[kind].profile for kind in kinds] + [one.profile for one in gpu.slices]))
    shape = geometry(instance.fleet[entry].type, tuple(names))
    known = {segments.kinds[kind].profile: kind for kind in kinds}
    here = {(piece.start, names.index(piece.profile)): at for at, piece in enumerate(gpu.slices)}
    if tuple(sorted(here)) not in shape.states:
        raise InputError(APART)
    found = set()
    for state in shape.maximal_states:
        kept = tuple(sorted(here[place] for place in state if place in here))
        new = tuple((start, known[names[at]]) for start, at in state if (start, at) not in here and names[at] in known)
        found.add(Turn(kept, new))
    return tuple(sorted(found, key=lambda turn: (-len(turn.kept), turn)))


def _capacity(instance: Instance, segments: Segments, going: Going) -> tuple[float, int] | None:
    """(throughput_rps, batch) of the best batch at which a slice can go on; None when no batch keeps the budget."""
    if going.kind < 0 or going.workload < 0:
        return None
    kind, workload = segments.kinds[going.kind], instance.workloads[going.workload]
    entry, model = instance.fleet[kind.entry], going.model or workload.model
    if model not in workload.models:
        return None
    throughput_rps, _, batch, _ = best_point(instance, entry, kind.profile, workload, model, going.processes)
    return (throughput_rps, batch) if throughput_rps else None
