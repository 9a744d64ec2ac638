"""From the choice of replanning to a plan: kept slices stay where they are, new ones get places, replicas rates."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.contents.alone.partitions import Partitions
from provision.models.contents.alone.running import RunningPlan, Turn
from provision.models.contents.alone.segments import Segments
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance


class Choice(NamedTuple):
    """What replanning decides.

    ``turns`` are pairs (GPU of the running plan, its Turn) for the GPUs that stay; ``stays`` are the slices (GPU,
    position) whose replicas go on; ``started`` is (workloads, kinds) replicas to start; ``opened`` is (partitions,)
    new GPUs.
    """

    turns: list[tuple[int, Turn]]
    stays: set[tuple[int, int]]
    started: Ints
    opened: Ints


class Server(NamedTuple):
    """What runs in a slice: the index of its workload, its operating point, and ``model`` as in a Replica."""

    workload: int
    throughput_rps: float
    batch: int
    processes: int
    model: str | None


class _Slot:
    """A slice of the new plan: its kind and place, whether it exists already, and its Server, None while it is free."""

    def __init__(self, kind: int, profile: str, start: int, kept: bool = False, replica: Server | None = None) -> None:
        self.kind, self.profile, self.start, self.kept, self.replica = kind, profile, start, kept, replica


def rearranged(
    instance: Instance, segments: Segments, partitions: Partitions, running: RunningPlan, choice: Choice
) -> Plan:
    """The Plan of a Choice.

    Kept slices without a replica stay in the plan, empty; new ones are made only where a replica starts. GPUs of the
    running plan come first, in their order.
    """
    slots, heads = [], []
    for gpu, turn in sorted(choice.turns):
        heads.append(running.plan.gpus[gpu])
        slots.append([_kept(running, gpu, at, choice.stays) for at in turn.kept] + _new(segments, turn.new))
    for partition in np.repeat(np.arange(len(choice.opened)), choice.opened).tolist():
        entry = instance.fleet[partitions.entry[partition]]
        heads.append(PlannedGpu(gpu=entry.gpu, mig=entry.partitioned, slices=()))
        slots.append(_new(segments, _places(segments, instance, partitions, partition)))
    _start(instance, segments, slots, choice.started)
    rates = _rates(instance, slots)
    gpus = [
        head.model_copy(update={"slices": tuple(
            _slice(instance, slot, rates) for slot in sorted(held, key=lambda one: one.start)
            if slot.replica or slot.kept
        )})
        for head, held in zip(heads, slots, strict=True)
    ]
    return instance.plan_of("replan", (gpu for gpu in gpus if gpu.slices))


def _kept(running: RunningPlan, gpu: int, position: int, stays: Iterable[tuple[int, int]]) -> _Slot:
    """The slot of a slice that is kept."""
    piece, going = running.plan.gpus[gpu].slices[position], running.going[gpu][position]
    slot = _Slot(going.kind, piece.profile, piece.start, kept=True)
    if (gpu, position) in stays:
        throughput_rps, batch = running.capacity[going]
        slot.replica = Server(going.workload, throughput_rps, batch, going.processes, going.model)
    return slot


def _new(segments: Segments, places: Iterable[tuple[int, int]]) -> list[_Slot]:
    """Slots at places (start, kind) where there is no slice yet."""
    return [_Slot(kind, segments.kinds[kind].profile, start) for start, kind in places]


def _places(segments: Segments, instance: Instance, partitions: Partitions, partition: int) -> list[tuple[int, int]]:
    """(start, kind) of every slot of a new GPU."""
    entry = int(partitions.entry[partition])
    geometry, kinds = segments.geometry(instance, entry), segments.of_entry(entry)
    if geometry is None:
        return [(0, kinds[0])]
    state = geometry.state_of(partitions.slots[partition][kinds])
    return [(start, kinds[at]) for start, at in state]


def _start(instance: Instance, segments: Segments, slots: Sequence[list[_Slot]], started: Ints) -> None:
    """Put the replicas that start into free slots of their kind, existing slices first, then running GPUs."""
    free: dict[int, list[_Slot]] = {}
    idle = [slot for held in slots for slot in held if slot.replica is None]
    for slot in sorted(idle, key=lambda one: not one.kept):
        free.setdefault(slot.kind, []).append(slot)
    for workload, kind in zip(*np.nonzero(started), strict=True):
        at, model = (workload, kind), instance.workloads[workload].named(segments.model[workload, kind])
        for _ in range(started[at]):
            found = (segments.throughput_rps[at], segments.batch[at], segments.processes[at])
            free[kind].pop(0).replica = Server(int(workload), float(found[0]), int(found[1]), int(found[2]), model)


def _rates(instance: Instance, slots: Sequence[list[_Slot]]) -> Floats:
    """(workloads,) planned rate over the throughput of all its replicas; at most 1, as rounding may exceed it."""
    total = np.zeros(len(instance.workloads))
    for held in slots:
        for slot in held:
            if slot.replica:
                total[slot.replica.workload] += slot.replica.throughput_rps
    planned = np.array([instance.planned_rps(workload) for workload in instance.workloads])
    return np.minimum(np.divide(planned, total, out=np.zeros_like(total), where=total > 0), 1)


def _slice(instance: Instance, slot: _Slot, rates: Floats) -> Slice:
    if slot.replica is None:
        return Slice(profile=slot.profile, start=slot.start)
    workload, throughput_rps, batch, processes, model = slot.replica
    replica = Replica(workload=instance.workloads[workload].name, batch=batch, processes=processes,
                      rate_rps=float(throughput_rps * rates[workload]), model=model)
    return Slice(profile=slot.profile, start=slot.start, replicas=(replica,))
