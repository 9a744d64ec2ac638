"""Ruins and recreates plans on given GPUs, in compiled code, until the GPUs carry every rate.

A slice holds one segment, or replicas at one setting (``tables``). Each step empties one or two GPUs, or some of their
slices. Emptied GPUs are partitioned anew at random. Their slices are then filled greedily with rates that no other
slice carries, in the order of the prices of these rates times random factors. The step is kept if the price of the
rates that are not carried falls, or hardly rises.
"""

import numpy as np

from provision.heuristics.core.filling import occupy
from provision.heuristics.core.state import State, account, copy_gpus, copy_of, kept, uncarried
from provision.heuristics.core.tables import NONE, SliceTables
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled, inner


@compiled
def improve(tables: SliceTables, state: State, least: float, steps: int, draw: np.random.Generator) -> float:
    """Ruin and recreate GPUs of ``state`` in place, at most ``steps`` times; return the least price of uncarried rates
    that was reached, 0 if all rates are carried.

    ``least`` is the least price that was reached before.
    """
    factor, before, schedule = np.empty(len(tables.rows)), copy_of(state), tables.schedule
    for _ in range(steps):
        if least == 0:
            break
        chosen = one_or_two(len(state.entry), draw)
        for w in range(len(factor)):
            factor[w] = 1 - schedule.spread + 2 * schedule.spread * draw.random()
        if draw.random() < schedule.anew:
            for gpu in chosen:
                clear(tables, state, gpu)
            for gpu in chosen:
                furnish(tables, state, gpu, factor, draw)
        else:
            refill(tables, state, chosen, factor, draw)
        now = uncarried(tables, state)
        if now > least + schedule.worse * draw.random():
            copy_gpus(before, state, chosen)
        else:
            copy_gpus(state, before, chosen)
        least = min(least, now)
    return least


@inner
def one_or_two(gpus: int, draw: np.random.Generator) -> Ints:
    """(1 or 2,), the indices of one or two random GPUs out of ``gpus``."""
    first, other = int(gpus * draw.random()), int((gpus - 1) * draw.random())
    chosen = np.array([first, other + (other >= first)])
    return chosen[: 1 if gpus == 1 else 1 + int(2 * draw.random())]


@inner
def shuffle(numbers: Ints, draw: np.random.Generator) -> None:
    """Bring numbers into a random order, in place."""
    for at in range(len(numbers) - 1, 0, -1):
        other = int((at + 1) * draw.random())
        numbers[at], numbers[other] = numbers[other], numbers[at]


@inner
def refill(tables: SliceTables, state: State, gpus: Ints, factor: Floats, draw: np.random.Generator) -> None:
    """Empty some slices of some GPUs and fill them again: half of them, or the slice of a GPU that has only one."""
    places, many = state.slice_type.shape[1], 0
    chosen = np.empty(len(gpus) * places, np.int64)
    for gpu in gpus:
        there = np.flatnonzero(state.slice_type[gpu] != NONE)
        for place in there:
            if len(there) == 1 or draw.random() < 0.5:
                vacate(tables, state, gpu, place)
                chosen[many] = gpu * places + place
                many += 1
    shuffle(chosen[:many], draw)
    for one in chosen[:many]:
        occupy(tables, state, one // places, one % places, factor)


@compiled
def clear(tables: SliceTables, state: State, gpu: int) -> None:
    """Empty a GPU and remove its partition."""
    for place in range(state.slice_type.shape[1]):
        vacate(tables, state, gpu, place)
        state.slice_type[gpu, place] = NONE


@inner
def vacate(tables: SliceTables, state: State, gpu: int, place: int) -> None:
    """Empty a slice."""
    account(tables, state, gpu, place, np.int64(-1))
    state.setting[gpu, place] = state.alone[gpu, place] = NONE


@compiled
def furnish(tables: SliceTables, state: State, gpu: int, factor: Floats, draw: np.random.Generator) -> None:
    """Partition an empty GPU at random and fill its slices; a GPU on which nothing can run stays empty."""
    partition: int | np.int64 = np.int64(NONE)
    seen = 0
    for other in range(len(tables.entry)):
        if tables.entry[other] == state.entry[gpu]:
            seen += 1
            partition = other if draw.random() * seen < 1 else partition
    if partition == NONE:
        return
    slice_types = np.arange(tables.slots.shape[1])
    shuffle(slice_types, draw)
    divide(tables, state, gpu, partition, slice_types, factor)


@inner
def divide(tables: SliceTables, state: State, gpu: int, partition: int | np.int64, order: Ints, factor: Floats
           ) -> float:
    """Partition an empty GPU and fill its slices, slice types in the given order; return the worth of its replicas."""
    place, gain = np.int64(0), 0.0
    for slice_type in order:
        for _ in range(tables.slots[partition, slice_type]):
            state.slice_type[gpu, place] = slice_type
            gain += occupy(tables, state, gpu, place, factor)
            place += 1
    return gain


@compiled
def best_division(tables: SliceTables, state: State, gpu: int, factor: Floats) -> float:
    """Give an empty GPU the partition whose slices are worth most, filled from large to small; return their worth."""
    best: int | np.int64 = np.int64(NONE)
    order, most, many = np.arange(tables.slots.shape[1])[::-1].copy(), 0.0, 0
    for partition in range(len(tables.entry)):
        if tables.entry[partition] == state.entry[gpu]:
            many, best = many + 1, partition
    for partition in range(len(tables.entry) if many > 1 else 0):
        if tables.entry[partition] == state.entry[gpu]:
            gain = divide(tables, state, gpu, partition, order, factor)
            clear(tables, state, gpu)
            if gain > most:
                most, best = gain, partition
    return divide(tables, state, gpu, best, order, factor) if many else 0.0


def without(tables: SliceTables, state: State, gpu: int, entry: int) -> State:
    """A copy of a State without a GPU; or, unless ``entry`` is NONE, with an empty GPU of this fleet entry in its
    place.
    """
    gpus = list(range(len(state.entry)))
    copy = kept(state, gpus)
    clear(tables, copy, gpu)
    copy.entry[gpu] = entry
    return kept(copy, gpus[:gpu] + gpus[gpu + 1:]) if entry == NONE else copy
