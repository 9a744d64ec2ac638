"""From the choice of replanning to a plan: kept slices stay where they are, new ones get places, replicas rates."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from provision.formulations.assignment.contents import SliceContent, Worth
from provision.formulations.assignment.dealt import plan_of
from provision.formulations.replanning.running import RunningPlan, Turn
from provision.formulations.search.partitions import Partitions
from provision.formulations.search.segments import Segments
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

NAME = "replan"
EMPTY = SliceContent((), 0.0)


class Choice(NamedTuple):
    """What replanning decides; a pool is a number of GPUs whose slices are counted together.

    Attributes
    ----------
    turns
        (pool, GPU of the running plan, its Turn) for the GPUs that stay.
    on
        Contents of slices (GPU, position) some of whose replicas go on.
    anew
        Contents whose replicas are all started, by pool and slice kind.
    opened
        (pool, partition) of new GPUs.
    """

    turns: list[tuple[int, int, Turn]]
    on: Mapping[tuple[int, int], SliceContent]
    anew: Mapping[tuple[int, int], list[SliceContent]]
    opened: list[tuple[int, int]]


class _Slot:
    """A slice of the new plan: its kind and place, whether it exists already, and what it holds."""

    def __init__(self, kind: int, profile: str, start: int, kept: bool = False, content: SliceContent = EMPTY) -> None:
        self.kind, self.profile, self.start, self.kept, self.content = kind, profile, start, kept, content


def placed(instance: Instance, segments: Segments, partitions: Partitions, now: RunningPlan, choice: Choice
           ) -> Plan | None:
    """The Plan of a Choice; None where its replicas do not carry all rates exactly.

    Kept slices without a replica stay in the plan, empty; new ones are made only where a replica starts. GPUs of the
    running plan come first, in their order.
    """
    pools, entries, slots = [], [], []
    for pool, gpu, turn in sorted(choice.turns, key=lambda one: one[1]):
        pools.append(pool)
        entries.append(now.entry[gpu])
        slots.append([_kept(now, gpu, at, choice.on) for at in turn.kept] + _new(segments, turn.new))
    for pool, partition in choice.opened:
        pools.append(pool)
        entries.append(int(partitions.entry[partition]))
        slots.append(_new(segments, _places(segments, instance, partitions, partition)))
    _start(pools, slots, choice.anew)
    held = [[(slot.profile, slot.start, slot.content) for slot in mine if slot.kept or slot.content.replicas]
            for mine in slots]
    return plan_of(Worth(instance), entries, held, NAME)


def _kept(now: RunningPlan, gpu: int, position: int, on: Mapping[tuple[int, int], SliceContent]) -> _Slot:
    """The slot of a slice that is kept."""
    piece = now.plan.gpus[gpu].slices[position]
    content = on.get((gpu, position), EMPTY)
    return _Slot(now.going[gpu][position].kind, piece.profile, piece.start, kept=True, content=content)


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


def _start(pools: Sequence[int], slots: Sequence[list[_Slot]], anew: Mapping[tuple[int, int], list[SliceContent]]
           ) -> None:
    """Put the contents that start into free slots of their pool and kind, existing slices first, then running GPUs."""
    free: dict[tuple[int, int], list[_Slot]] = defaultdict(list)
    idle = [(pool, slot) for pool, mine in zip(pools, slots, strict=True) for slot in mine if slot.content is EMPTY]
    for pool, slot in sorted(idle, key=lambda one: not one[1].kept):
        free[pool, slot.kind].append(slot)
    for place, contents in anew.items():
        for content, slot in zip(contents, free[place], strict=False):
            slot.content = content
