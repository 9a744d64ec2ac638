"""Ruins and recreates plans on given GPUs, in compiled code, until the GPUs carry every rate.

A slice holds one segment, or replicas at one setting (``tables``). Each step empties one or two GPUs, or some of their
slices. Emptied GPUs are partitioned anew at random. Their slices are then filled greedily with rates that no other
slice carries, in the order of the prices of these rates times random factors. The step is kept if the price of the
rates that are not carried falls, or hardly rises.
"""

import numpy as np

from provision.heuristics.core.filling import Slot, occupy
from provision.heuristics.core.state import State, account, copy_gpu, copy_rest, kept, uncarried
from provision.heuristics.core.tables import NONE, SliceTables
from provision.models.base.arrays import Ints
from provision.models.base.compiled import compiled, inner


@compiled
def improve(tables: SliceTables, state: State, before: State, slot: Slot, least: float, steps: int,
            draw: np.random.Generator) -> float:
    """Ruin and recreate GPUs of ``state`` in place, at most ``steps`` times; return the least price of uncarried rates
    that was reached, 0 if all rates are carried.

    ``before`` is a copy of the state, ``slot`` a Slot for its slices, and ``least`` the least price that was reached
    before.
    """
    schedule, gpus = tables.schedule, len(state.entry)
    for _ in range(steps):
        if least == 0:
            break
        first, other = int(gpus * draw.random()), int((gpus - 1) * draw.random())
        other += other >= first
        last = other if gpus > 1 and draw.random() < 0.5 else first
        for w in range(len(slot.rows)):
            slot.rows[w].factor = 1 - schedule.spread + 2 * schedule.spread * draw.random()
        if draw.random() < schedule.anew:
            clear(tables, state, first)
            clear(tables, state, last)
            furnish(tables, state, slot, first, draw)
            if last != first:
                furnish(tables, state, slot, last, draw)
        else:
            refill(tables, state, slot, first, last, draw)
        now = uncarried(tables, state)
        source, target = (before, state) if now > least + schedule.worse * draw.random() else (state, before)
        copy_gpu(source, target, first)
        copy_gpu(source, target, last)
        copy_rest(source, target)
        least = min(least, now)
    return least


@inner
def shuffle(numbers: Ints, many: int, draw: np.random.Generator) -> None:
    """Bring the first ``many`` numbers into a random order, in place."""
    for at in range(many - 1, 0, -1):
        other = int((at + 1) * draw.random())
        numbers[at], numbers[other] = numbers[other], numbers[at]


@inner
def refill(tables: SliceTables, state: State, slot: Slot, first: int, last: int, draw: np.random.Generator) -> None:
    """Empty some slices of one or two GPUs and fill them again: half of them, or the slice of a GPU that has only one.
    """
    places, many = state.slices.shape[1], 0
    for number in range(1 if first == last else 2):
        gpu, there = (last if number else first), 0
        for place in range(places):
            there += state.slices[gpu, place].slice_type != NONE
        for place in range(places):
            if state.slices[gpu, place].slice_type != NONE and (there == 1 or draw.random() < 0.5):
                vacate(tables, state, gpu, place)
                slot.order[many] = gpu * places + place
                many += 1
    shuffle(slot.order, many, draw)
    for at in range(many):
        occupy(tables, state, slot, slot.order[at] // places, slot.order[at] % places)


@compiled
def clear(tables: SliceTables, state: State, gpu: int) -> None:
    """Empty a GPU and remove its partition."""
    for place in range(state.slices.shape[1]):
        vacate(tables, state, gpu, place)
        state.slices[gpu, place].slice_type = NONE


@inner
def vacate(tables: SliceTables, state: State, gpu: int, place: int) -> None:
    """Empty a slice."""
    account(tables, state, gpu, place, np.int64(-1))
    state.slices[gpu, place].setting = state.slices[gpu, place].alone = NONE


@inner
def furnish(tables: SliceTables, state: State, slot: Slot, gpu: int, draw: np.random.Generator) -> None:
    """Partition an empty GPU at random and fill its slices; a GPU on which nothing can run stays empty."""
    places, partition, seen = state.slices.shape[1], np.int64(NONE), 0
    for other in range(len(tables.partitions)):
        if tables.partitions[other, 0] == state.entry[gpu]:
            seen += 1
            partition = np.int64(other) if draw.random() * seen < 1 else partition
    for at in range(places):
        slot.order[at] = at
    shuffle(slot.order, places, draw)
    if partition != NONE:
        divide(tables, state, slot, gpu, partition)


@inner
def divide(tables: SliceTables, state: State, slot: Slot, gpu: int, partition: int) -> float:
    """Partition an empty GPU and fill its slices in the order of ``slot.order``; return the worth of its replicas."""
    gain = 0.0
    for at in range(state.slices.shape[1]):
        place = slot.order[at]
        if tables.partitions[partition, 1 + place] != NONE:
            state.slices[gpu, place].slice_type = tables.partitions[partition, 1 + place]
            gain += occupy(tables, state, slot, gpu, place)
    return gain


@compiled
def furnished(tables: SliceTables, state: State, slot: Slot, gpu: int, place: int) -> float:
    """Fill an empty slice of a GPU; or, if ``place`` is NONE, give an empty GPU the partition whose slices are worth
    most, filled from large to small. Returns their worth.
    """
    if place != NONE:
        return occupy(tables, state, slot, gpu, place)
    best, most = np.int64(NONE), -1.0
    for at in range(state.slices.shape[1]):
        slot.order[at] = at
    for partition in range(len(tables.partitions)):
        if tables.partitions[partition, 0] == state.entry[gpu]:
            gain = divide(tables, state, slot, gpu, partition)
            clear(tables, state, gpu)
            if gain > most:
                most, best = gain, np.int64(partition)
    return divide(tables, state, slot, gpu, best) if best != NONE else 0.0


def without(tables: SliceTables, state: State, gpu: int, entry: int) -> State:
    """A copy of a State without a GPU; or, unless ``entry`` is NONE, with an empty GPU of this fleet entry in its
    place.
    """
    gpus = list(range(len(state.entry)))
    copy = kept(state, gpus)
    clear(tables, copy, gpu)
    copy.entry[gpu] = entry
    return kept(copy, gpus[:gpu] + gpus[gpu + 1:]) if entry == NONE else copy
