"""The steps, in order, from the present state to a layout, each with what it disturbs.

Only differences are changed. So the fewest instances of every GPU are destroyed: those whose profile and start are not
in the layout. The order keeps replicas running as long as possible. First, everything that has room already is created
on all GPUs. Then, one GPU after another, instances that are in the way are destroyed, and the instances that take their
place are created. Last, whatever is no longer wanted is removed.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from provision.applier.layout import (
    Compute,
    GpuLayout,
    MachineLayout,
    Observed,
    ObservedGpu,
    ObservedSlice,
    Process,
    ReplicaLayout,
    SliceLayout,
)
from provision.models.base.fields import Count, Flag, Name, NonNegative, Record
from provision.models.base.objects import known

MEDIA = {0x7, 0x8, 0xF, 0x10}
"""The enumerators of profiles with media extensions. A GPU has a single set of media engines."""

Action = Literal[
    "clear_leftovers", "set_mig_mode", "adopt", "evict", "remove_replica", "stop_mps", "destroy_compute",
    "destroy_instance", "create_instance", "create_compute", "start_mps", "add_replica",
]

WORDS: dict[Action, str] = {
    "clear_leftovers": "clear what the device {device} left behind, which no longer exists",
    "set_mig_mode": "turn MIG {mode}",
    "adopt": "use {slice}{whose}{beside}",
    "evict": "end {clients} on {slice}",
    "remove_replica": "remove replica {replica} ({workload}) from {slice}",
    "stop_mps": "stop the MPS daemon of {slice}",
    "destroy_compute": "destroy the compute instance with {sms} SMs of {slice}{whose}",
    "destroy_instance": "destroy {slice}{whose}",
    "create_instance": "create {slice}",
    "create_compute": "create a compute instance with {sms} SMs in {slice}",
    "start_mps": "start an MPS daemon for {slice}",
    "add_replica": "add replica {replica} ({workload}) to {slice}",
}


class Shortfall(Record):
    """A workload whose replicas carry less than its demand after a step."""

    workload: Name
    in_place_rps: NonNegative
    demand_rps: NonNegative


class Step(Record):
    """One change. ``gpu`` is a UUID. ``foreign`` says that the step destroys or uses something that this applier did
    not make. ``adopt`` takes over a foreign instance, or begins to share a slice with processes of others, ``clients``.
    """

    action: Action
    gpu: Name | None = None
    slice: SliceLayout | None = None
    compute: Compute | None = None
    replica: Count | None = None
    mig: Flag | None = None
    device: Name | None = None
    clients: tuple[Process, ...] = ()
    foreign: Flag = False
    shortfalls: tuple[Shortfall, ...] = ()

    @property
    def place(self) -> tuple[str, SliceLayout]:
        """The GPU and the slice that change; only for actions on slices."""
        return known(self.gpu), known(self.slice)

    @property
    def served(self) -> ReplicaLayout:
        """The replica that is added or removed."""
        return known(known(self.slice).replicas[known(self.replica)])

    @property
    def text(self) -> str:
        """The change as text, without the GPU."""
        clients = ", ".join(f"process {one.pid} {one.name}".strip() for one in self.clients)
        return WORDS[self.action].format(
            device=self.device,
            mode="on" if self.mig else "off",
            clients=clients,
            beside=f", beside {clients}" if clients else "",
            slice=self.slice and self.slice.label,
            whose=f", which {self.maker}" if self.foreign else "",
            sms=self.compute and self.compute.sms,
            replica=self.replica,
            workload=self.replica is not None and self.served.workload,
        )

    @property
    def maker(self) -> str:
        """Who made the foreign thing that the step destroys or uses, as the end of a sentence."""
        return known(self.observed).whose

    @property
    def observed(self) -> ObservedSlice | None:
        """The slice as it was observed; None if the step is on a slice that does not exist yet."""
        return self.slice if isinstance(self.slice, ObservedSlice) else None

    def described(self, present: Observed) -> dict[str, Any]:
        """The step as a JSON object. ``present`` gives the index of its GPU."""
        return {
            "gpu": known(present.gpu(self.gpu)).index if self.gpu else None,
            "uuid": self.gpu,
            "action": self.action,
            "text": self.text,
            "processes": [one.pid for one in self.clients],
            "foreign": self.foreign,
            "below_demand": [one.model_dump(mode="json") for one in self.shortfalls],
        }


def steps_between(present: Observed, target: MachineLayout) -> list[Step]:
    """The steps, in order, that turn the observed state into a layout; none if the two are equal.

    Every GPU of the layout must exist.
    """
    phases = [_phases(known(present.gpu(goal.uuid)), goal) for goal in target.gpus]
    ordered = [Step(action="clear_leftovers", device=device) for device in present.leftovers]
    for phase in ("make", "swap", "clear"):
        ordered += [step for one in phases for step in getattr(one, phase)]
    return _with_shortfalls(ordered, present, target)


def gpu_steps(here: ObservedGpu, goal: GpuLayout) -> list[Step]:
    """The steps for one GPU."""
    return [step for phase in _phases(here, goal) for step in phase]


class _Phases(NamedTuple):
    """The steps for one GPU: ``make`` creates what has room, ``swap`` destroys and creates in its place, ``clear``
    removes.
    """

    make: list[Step]
    swap: list[Step]
    clear: list[Step]


def _phases(here: ObservedGpu, goal: GpuLayout) -> _Phases:
    """The steps for one GPU, by phase."""
    if here.mig != goal.mig:
        return _Phases([], _switch(here, goal), [])
    standing, wanted = {old.key: old for old in here.slices}, {new.key: new for new in goal.slices}
    missing = [new for key, new in wanted.items() if key not in standing]
    doomed = [old for key, old in standing.items() if key not in wanted and not _left_alone(old, missing)]
    make, swap, rest = _replaced(here, missing, doomed)
    changed = [step for key, new in wanted.items() if key in standing for step in _change(here, standing[key], new)]
    return _Phases(make, [*_pending(here, goal), *changed, *swap], [step for old in rest for step in broken(here, old)])


def _switch(here: ObservedGpu, goal: GpuLayout) -> list[Step]:
    """The steps that turn MIG on or off: first everything is removed, and afterwards everything wanted is created."""
    torn = [step for old in here.slices for step in broken(here, old)]
    built = [step for new in goal.slices for step in _make(here, new)]
    return [*torn, _mode(goal), *built]


def _pending(here: ObservedGpu, goal: GpuLayout) -> list[Step]:
    """The step that revokes a pending change of MIG mode, if there is one. A pending mode is never restored."""
    return [_mode(goal)] if here.mig_pending != goal.mig_pending == goal.mig else []


def _left_alone(old: ObservedSlice, missing: Iterable[SliceLayout]) -> bool:
    """Whether an instance that is not wanted stays: something else made it for sure, and it is not in the way."""
    return old.strange and not old.unsure and not any(exclude(old, new) for new in missing)


def _replaced(here: ObservedGpu, missing: Iterable[SliceLayout],
              doomed: Sequence[ObservedSlice]) -> tuple[list[Step], list[Step], list[ObservedSlice]]:
    """The steps that create missing slices: those that have room, and those for which doomed slices are destroyed
    first.

    Also returns the doomed slices that were not in the way.
    """
    make: list[Step] = []
    swap: list[Step] = []
    left = list(doomed)
    for new in missing:
        in_the_way = [old for old in doomed if exclude(old, new)]
        phase = swap if in_the_way else make
        for old in in_the_way:
            if old in left:
                left.remove(old)
                phase += broken(here, old)
        phase += _make(here, new)
    return make, swap, left


def exclude(old: SliceLayout, new: SliceLayout) -> bool:
    """Whether two instances cannot stand on a GPU at the same time."""
    if old.enumerator in MEDIA and new.enumerator in MEDIA:
        return True
    return old.start < new.start + new.size and new.start < old.start + old.size


def _mode(goal: GpuLayout) -> Step:
    return Step(action="set_mig_mode", gpu=goal.uuid, mig=goal.mig)


def broken(here: ObservedGpu, old: ObservedSlice) -> list[Step]:
    """The steps that remove a slice and everything on it."""
    steps = _services_off(here, old)
    steps += [_destroy_compute(here, old, one) for one in old.computes]
    if old.enumerator is not None:
        steps.append(Step(action="destroy_instance", gpu=here.uuid, slice=old, foreign=old.foreign or old.unsure))
    return steps


def _destroy_compute(here: ObservedGpu, old: ObservedSlice, compute: Compute) -> Step:
    foreign = old.unsure or compute in old.foreign_computes
    return Step(action="destroy_compute", gpu=here.uuid, slice=old, compute=compute, foreign=foreign)


def _make(here: ObservedGpu, new: SliceLayout) -> list[Step]:
    steps = [Step(action="create_instance", gpu=here.uuid, slice=new)] if new.enumerator is not None else []
    steps += [Step(action="create_compute", gpu=here.uuid, slice=new, compute=one) for one in new.computes]
    return steps + _services_on(here, new)


def _change(here: ObservedGpu, old: ObservedSlice, new: SliceLayout) -> list[Step]:
    """The steps for the differences on a slice that stays."""
    steps = _differences(here, old, new)
    served = new.mps or any(new.replicas)
    foreign = old.foreign or any(one in new.computes for one in old.foreign_computes)
    # Nobody else's slice carries what a plan promises: who made it may destroy it, and its other users slow it down.
    taken = foreign and (new.planned or served)
    beside = old.strangers if new.planned and served and "evict" not in [step.action for step in steps] else ()
    if taken or beside:
        steps.insert(0, Step(action="adopt", gpu=here.uuid, slice=old, clients=beside, foreign=taken))
    return steps


def _differences(here: ObservedGpu, old: ObservedSlice, new: SliceLayout) -> list[Step]:
    gone = [one for one in old.computes if one not in new.computes]
    added = [one for one in new.computes if one not in old.computes]
    if gone or added or old.mps != new.mps or old.trouble:
        steps = _services_off(here, old, tears_down=bool(gone) or old.mps)
        steps += [_destroy_compute(here, old, one) for one in gone]
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
    """The steps, each with the workloads that are served below their demand after it."""
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
