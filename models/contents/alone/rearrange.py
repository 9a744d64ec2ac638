"""From the choices of replanning to a plan: slices that stay where they are, new ones placed, rates shared out."""

import numpy as np

from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice


class _Slot:
    """A slice that is or may be: where it stands, whether it is there already, and what runs in it.

    That is (workload, throughput_rps, batch, processes, model), the last as in a Replica, or None.
    """

    def __init__(self, kind, profile, start, kept=False, replica=None):
        self.kind, self.profile, self.start, self.kept, self.replica = kind, profile, start, kept, replica


def rearranged(instance, segments, partitions, running, choice):
    """The Plan of a ``Replanned`` choice.

    Kept slices that serve nobody stay, empty, for later; new ones are made only where a replica starts. GPUs that
    run come first, in their order.
    """
    slots, heads = [], []
    for gpu, turn in sorted(choice.turns):
        heads.append(running.plan.gpus[gpu])
        slots.append([_kept(running, gpu, at, choice.stays) for at in turn.kept] + _new(segments, turn.new))
    for partition in np.repeat(np.arange(len(choice.opened)), choice.opened):
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
    return Plan(version=1, instance=instance.name, digest=instance.digest, method="replan",
                gpus=tuple(gpu for gpu in gpus if gpu.slices))


def _kept(running, gpu, position, stays):
    """The slot of a slice that is kept."""
    piece, going = running.plan.gpus[gpu].slices[position], running.going[gpu][position]
    slot = _Slot(going.kind, piece.profile, piece.start, kept=True)
    if (gpu, position) in stays:
        throughput_rps, batch = running.capacity[going]
        slot.replica = (going.workload, throughput_rps, batch, going.processes, going.model)
    return slot


def _new(segments, places):
    """Slots at places (start, kind) where there is no slice yet."""
    return [_Slot(kind, segments.kinds[kind].profile, start) for start, kind in places]


def _places(segments, instance, partitions, partition):
    """(start, kind) of every slot of a new GPU."""
    entry = int(partitions.entry[partition])
    geometry, kinds = segments.geometry(instance, entry), segments.of_entry(entry)
    if geometry is None:
        return [(0, kinds[0])]
    state = geometry.place(partitions.slots[partition][kinds])
    return [(start, kinds[at]) for start, at in state]


def _start(instance, segments, slots, started):
    """Put the replicas that start into free slots of their kind, existing slices first, then running GPUs."""
    free, idle = {}, [slot for held in slots for slot in held if slot.replica is None]
    for slot in sorted(idle, key=lambda one: not one.kept):
        free.setdefault(slot.kind, []).append(slot)
    for workload, kind in zip(*np.nonzero(started), strict=True):
        at, model = (workload, kind), instance.workloads[workload].named(segments.model[workload, kind])
        for _ in range(started[at]):
            found = (segments.throughput_rps[at], segments.batch[at], segments.processes[at])
            free[kind].pop(0).replica = (int(workload), float(found[0]), int(found[1]), int(found[2]), model)


def _rates(instance, slots):
    """Per workload: its planned rate over the throughput of all its replicas, at most 1 where rounding says more."""
    total = np.zeros(len(instance.workloads))
    for held in slots:
        for slot in held:
            if slot.replica:
                total[slot.replica[0]] += slot.replica[1]
    planned = np.array([instance.planned_rps(workload) for workload in instance.workloads])
    return np.minimum(np.divide(planned, total, out=np.zeros_like(total), where=total > 0), 1)


def _slice(instance, slot, rates):
    if slot.replica is None:
        return Slice(profile=slot.profile, start=slot.start)
    workload, throughput_rps, batch, processes, model = slot.replica
    replica = Replica(workload=instance.workloads[workload].name, batch=batch, processes=processes,
                      rate_rps=float(throughput_rps * rates[workload]), model=model)
    return Slice(profile=slot.profile, start=slot.start, replicas=(replica,))
