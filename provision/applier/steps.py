"""From the present state to a layout: the ordered steps, each with what it disturbs.

Only what differs is touched, so the set of instances destroyed on a GPU is the smallest there is: those whose profile
and start the layout does not have. Order keeps replicas up as long as possible: first everything that needs no room
to be made for it, on all GPUs; then, one GPU after another, what has to give way followed by what takes its place;
last what is merely no longer wanted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from provision.applier.layout import Compute, Process, SliceLayout
from provision.models.base.fields import Count, Flag, Name, NonNegative, Record
from provision.models.base.known import known

if TYPE_CHECKING:
    from provision.applier.layout import GpuLayout, MachineLayout, Observed, ObservedGpu, ObservedSlice, ReplicaLayout

MEDIA = {0x7, 0x8, 0xF, 0x10}
"""Enumerators of profiles with media extensions: a GPU has one set of engines for them."""

Action = Literal[
    "clear_leftovers", "set_mig_mode", "evict", "remove_replica", "stop_mps", "destroy_compute", "destroy_instance",
    "create_instance", "create_compute", "start_mps", "add_replica",
]

WORDS: dict[Action, str] = {
    "clear_leftovers": "clear what the device {device} left behind, which no longer exists",
    "set_mig_mode": "turn MIG {mode}",
    "evict": "end {clients} on {slice}",
    "remove_replica": "remove replica {replica} ({workload}) from {slice}",
    "stop_mps": "stop the MPS daemon of {slice}",
    "destroy_compute": "destroy the compute instance with {sms} SMs of {slice}",
    "destroy_instance": "destroy {slice}",
    "create_instance": "create {slice}",
    "create_compute": "create a compute instance with {sms} SMs in {slice}",
    "start_mps": "start an MPS daemon for {slice}",
    "add_replica": "add replica {replica} ({workload}) to {slice}",
}


class Shortfall(Record):
    """A workload whose replicas in place take less than its demand once a step is done."""

    workload: Name
    in_place_rps: NonNegative
    demand_rps: NonNegative


class Step(Record):
    """One change; ``gpu`` is a UUID."""

    action: Action
    gpu: Name | None = None
    slice: SliceLayout | None = None
    compute: Compute | None = None
    replica: Count | None = None
    mig: Flag | None = None
    device: Name | None = None
    clients: tuple[Process, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()

    @property
    def place(self) -> tuple[str, SliceLayout]:
        """The GPU and the slice that change; only actions on slices have both."""
        return known(self.gpu), known(self.slice)

    @property
    def served(self) -> ReplicaLayout:
        """The replica that is added or removed."""
        return known(known(self.slice).replicas[known(self.replica)])

    @property
    def text(self) -> str:
        """The change in words, without the GPU."""
        return WORDS[self.action].format(
            device=self.device,
            mode="on" if self.mig else "off",
            clients=", ".join(f"process {one.pid} {one.name}".strip() for one in self.clients),
            slice=self.slice and self.slice.label,
            sms=self.compute and self.compute.sms,
            replica=self.replica,
            workload=self.replica is not None and self.served.workload,
        )

    def described(self, present: Observed) -> dict[str, Any]:
        """The step as a JSON object; ``present`` tells the index of its GPU."""
        return {
            "gpu": known(present.gpu(self.gpu)).index if self.gpu else None,
            "uuid": self.gpu,
            "action": self.action,
            "text": self.text,
            "processes": [one.pid for one in self.clients],
            "below_demand": [one.model_dump(mode="json") for one in self.shortfalls],
        }


def steps_between(present: Observed, target: MachineLayout) -> list[Step]:
    """The steps that turn the observed state into a layout, in order; none when it is that already.

    Every GPU of the layout must be there.
    """
    phases = [_gpu_steps(known(present.gpu(goal.uuid)), goal) for goal in target.gpus]
    ordered = [Step(action="clear_leftovers", device=device) for device in present.leftovers]
    ordered += [step for make, _, _ in phases for step in make]
    ordered += [step for _, swap, _ in phases for step in swap]
    ordered += [step for _, _, rest in phases for step in rest]
    return _with_shortfalls(ordered, present, target)


def gpu_steps(here: ObservedGpu, goal: GpuLayout) -> list[Step]:
    """The steps for one GPU."""
    return [step for phase in _gpu_steps(here, goal) for step in phase]


def _gpu_steps(here: ObservedGpu, goal: GpuLayout) -> tuple[list[Step], list[Step], list[Step]]:
    """Steps that need no room made, steps that make room and use it, steps that only tear down."""
    if here.mig != goal.mig:
        torn = [step for old in here.slices for step in _break(here, old)]
        built = [step for new in goal.slices for step in _make(here, new)]
        return [], [*torn, _mode(goal), *built], []
    there, wanted = {old.key: old for old in here.slices}, {new.key: new for new in goal.slices}
    doomed = [old for key, old in there.items() if key not in wanted]
    # A mode that was pending once is not made pending again.
    make: list[Step] = []
    swap = [_mode(goal)] if here.mig_pending != goal.mig_pending == goal.mig else []
    for key, new in wanted.items():
        if key in there:
            swap += _change(here, there[key], new)
    for new in (new for key, new in wanted.items() if key not in there):
        in_the_way = [old for old in doomed if _exclude(old, new)]
        phase = swap if in_the_way else make
        for old in in_the_way:
            if there.pop(old.key, None):
                phase += _break(here, old)
        phase += _make(here, new)
    rest = [step for old in doomed if old.key in there for step in _break(here, old)]
    return make, swap, rest


def _exclude(old: ObservedSlice, new: SliceLayout) -> bool:
    """Whether two instances cannot stand beside each other."""
    if old.enumerator in MEDIA and new.enumerator in MEDIA:
        return True
    return old.start < new.start + new.size and new.start < old.start + old.size


def _mode(goal: GpuLayout) -> Step:
    return Step(action="set_mig_mode", gpu=goal.uuid, mig=goal.mig)


def _break(here: ObservedGpu, old: ObservedSlice) -> list[Step]:
    steps = _services_off(here, old)
    steps += [Step(action="destroy_compute", gpu=here.uuid, slice=old, compute=one) for one in old.computes]
    if old.enumerator is not None:
        steps.append(Step(action="destroy_instance", gpu=here.uuid, slice=old))
    return steps


def _make(here: ObservedGpu, new: SliceLayout) -> list[Step]:
    steps = [Step(action="create_instance", gpu=here.uuid, slice=new)] if new.enumerator is not None else []
    steps += [Step(action="create_compute", gpu=here.uuid, slice=new, compute=one) for one in new.computes]
    return steps + _services_on(here, new)


def _change(here: ObservedGpu, old: ObservedSlice, new: SliceLayout) -> list[Step]:
    """The steps for what differs on a slice that stays."""
    gone = [one for one in old.computes if one not in new.computes]
    added = [one for one in new.computes if one not in old.computes]
    if gone or added or old.mps != new.mps:
        steps = _services_off(here, old, tears_down=bool(gone) or old.mps)
        steps += [Step(action="destroy_compute", gpu=here.uuid, slice=old, compute=one) for one in gone]
        steps += [Step(action="create_compute", gpu=here.uuid, slice=new, compute=one) for one in added]
        return steps + _services_on(here, new)
    return _change_replicas(here, old, new)


def _change_replicas(here: ObservedGpu, old: ObservedSlice, new: SliceLayout) -> list[Step]:
    steps = []
    for number in range(max(len(old.replicas), len(new.replicas))):
        before, after = _replica(old, number), _replica(new, number)
        if before == after:
            continue
        if before and (after is None or before.environment != after.environment or before.running > after.running):
            steps.append(Step(action="remove_replica", gpu=here.uuid, slice=old, replica=number))
        if after:
            steps.append(Step(action="add_replica", gpu=here.uuid, slice=new, replica=number))
    return steps


def _replica(piece: SliceLayout, number: int) -> ReplicaLayout | None:
    return piece.replicas[number] if number < len(piece.replicas) else None


def _services_off(here: ObservedGpu, old: ObservedSlice, tears_down: bool = True) -> list[Step]:
    steps = [
        Step(action="remove_replica", gpu=here.uuid, slice=old, replica=number)
        for number, replica in enumerate(old.replicas)
        if replica
    ]
    if old.clients and tears_down:
        steps.append(Step(action="evict", gpu=here.uuid, slice=old, clients=old.clients))
    if old.mps:
        steps.append(Step(action="stop_mps", gpu=here.uuid, slice=old))
    return steps


def _services_on(here: ObservedGpu, new: SliceLayout) -> list[Step]:
    steps = [Step(action="start_mps", gpu=here.uuid, slice=new)] if new.mps else []
    return steps + [
        Step(action="add_replica", gpu=here.uuid, slice=new, replica=number)
        for number, replica in enumerate(new.replicas)
        if replica
    ]


def _with_shortfalls(steps: Sequence[Step], present: Observed, target: MachineLayout) -> list[Step]:
    """Steps that say which workloads are served below their demand once they are done."""
    goals = {goal.uuid for goal in target.gpus}
    in_place = {
        (gpu.uuid, piece.key, number): replica
        for gpu in present.gpus if gpu.uuid in goals
        for piece in gpu.slices
        for number, replica in enumerate(piece.replicas) if replica
    }
    demand = _rates(replica for goal in target.gpus for piece in goal.slices for replica in piece.replicas if replica)
    before = _rates(in_place.values())
    due = {workload: min(rate, before[workload]) for workload, rate in demand.items()}
    told = []
    for step in steps:
        if step.action in ("add_replica", "remove_replica"):
            uuid, piece = step.place
            place = uuid, piece.key, known(step.replica)
            in_place.pop(place, None)
            if step.action == "add_replica":
                in_place[place] = step.served
        now = _rates(in_place.values())
        short = tuple(
            Shortfall(workload=workload, in_place_rps=now[workload], demand_rps=demand[workload])
            for workload, rate in due.items()
            if now[workload] < rate * (1 - 1e-9)
        )
        told.append(step.model_copy(update={"shortfalls": short}))
    return told


def _rates(replicas: Iterable[ReplicaLayout]) -> defaultdict[str, float]:
    rates: defaultdict[str, float] = defaultdict(float)
    for replica in replicas:
        rates[replica.workload] += replica.rate_rps
    return rates
