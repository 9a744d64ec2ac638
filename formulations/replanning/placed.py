"""Turns a choice of replanning into a plan: kept slices stay in place, new slices get places, and replicas get rates.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from provision.formulations.assignment.dealt import plan_of
from provision.formulations.assignment.patterns import Criteria, SlicePattern
from provision.formulations.replanning.running import RunningPlan, Turn
from provision.formulations.search.partitions import Partitions
from provision.formulations.search.segments import Segments
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

NAME = "replan"
EMPTY = SlicePattern((), 0.0)


class Choice(NamedTuple):
    """The decision of replanning; a pool is a set of GPUs whose slices are counted together.

    Attributes
    ----------
    turns
        (pool, GPU of the running plan, its Turn) of every GPU that stays.
    on
        By slice (GPU, position), the pattern that it holds, if some of its replicas go on.
    anew
        By (pool, slice type), the patterns whose replicas are all started.
    opened
        (pool, partition) of every new GPU.
    """

    turns: list[tuple[int, int, Turn]]
    on: Mapping[tuple[int, int], SlicePattern]
    anew: Mapping[tuple[int, int], list[SlicePattern]]
    opened: list[tuple[int, int]]


class _Slot:
    """A slice of the new plan: its slice type and place, whether it exists already, and what it holds."""

    def __init__(
        self, slice_type: int, profile: str, start: int, kept: bool = False, pattern: SlicePattern = EMPTY
    ) -> None:
        self.slice_type, self.profile, self.start, self.kept, self.pattern = slice_type, profile, start, kept, pattern


def placed(instance: Instance, segments: Segments, partitions: Partitions, now: RunningPlan, choice: Choice
           ) -> Plan | None:
    """The Plan of a Choice; None if its replicas do not carry all rates exactly.

    Kept slices without a replica stay in the plan, empty. A new slice is made only if a replica starts on it. The GPUs
    of the running plan come first, in their order.
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
    held = [[(slot.profile, slot.start, slot.pattern) for slot in mine if slot.kept or slot.pattern.replicas]
            for mine in slots]
    return plan_of(Criteria(instance), entries, held, NAME)


def _kept(now: RunningPlan, gpu: int, position: int, on: Mapping[tuple[int, int], SlicePattern]) -> _Slot:
    """The slot of a slice that is kept."""
    piece = now.plan.gpus[gpu].slices[position]
    pattern = on.get((gpu, position), EMPTY)
    return _Slot(now.going[gpu][position].slice_type, piece.profile, piece.start, kept=True, pattern=pattern)


def _new(segments: Segments, places: Iterable[tuple[int, int]]) -> list[_Slot]:
    """A slot without a pattern for every slice that is to be made; ``places`` are (start, slice type)."""
    return [_Slot(slice_type, segments.slice_types[slice_type].profile, start) for start, slice_type in places]


def _places(segments: Segments, instance: Instance, partitions: Partitions, partition: int) -> list[tuple[int, int]]:
    """(start, slice type) of every slot of a new GPU."""
    entry = int(partitions.entry[partition])
    geometry, slice_types = segments.geometry(instance, entry), segments.of_entry(entry)
    if geometry is None:
        return [(0, slice_types[0])]
    state = geometry.state_of(partitions.slots[partition][slice_types])
    return [(start, slice_types[at]) for start, at in state]


def _start(pools: Sequence[int], slots: Sequence[list[_Slot]], anew: Mapping[tuple[int, int], list[SlicePattern]]
           ) -> None:
    """Put patterns whose replicas are all started into free slots of their pool and slice type.

    Existing slices are used first, then new slices on running GPUs, then slices of new GPUs.
    """
    free: dict[tuple[int, int], list[_Slot]] = defaultdict(list)
    idle = [(pool, slot) for pool, mine in zip(pools, slots, strict=True) for slot in mine if slot.pattern is EMPTY]
    for pool, slot in sorted(idle, key=lambda one: not one[1].kept):
        free[pool, slot.slice_type].append(slot)
    for place, patterns in anew.items():
        for pattern, slot in zip(patterns, free[place], strict=False):
            slot.pattern = pattern
