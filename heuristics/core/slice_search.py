"""Compiled ruin and recreate on given GPUs: slices are emptied and filled again until the GPUs carry every rate.

A slice holds one segment, or ways of several workloads at one setting (``slice_tables``). In each step one or two GPUs
are emptied and partitioned again at random. Their slices are filled greedily with rates that no other slice carries, in
the order of what these are worth, times random factors. The step is kept if the worth of the rates that are not carried
falls, or hardly rises.
"""

from collections.abc import Sequence

import numpy as np

from provision.heuristics.core.slice_filling import State, account, occupy
from provision.heuristics.core.slice_tables import NONE, SettingTables
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled


def empty_state(tables: SettingTables, entries: Sequence[int], rates: Sequence[bool]) -> State:
    """Empty GPUs of some fleet entries; ``rates`` flags workloads with a rate."""
    places, workloads = int(tables.slots.sum(axis=1).max(initial=1)), len(tables.worth)
    slice_type, setting, alone = np.full((3, len(entries), places), NONE)
    held = (len(entries), places, int(tables.clients.max(initial=1)))
    return State(np.array(entries, np.int64), slice_type, setting, alone, np.full(held, NONE), np.zeros(held),
                 np.zeros((len(entries), workloads)), np.array(rates, float), np.zeros(workloads, np.int64))


@compiled
def improve(tables: SettingTables, state: State, least: float, steps: int, draw: np.random.Generator) -> float:
    """Ruin and recreate, in place; returns the worth of what is not carried at best, 0 once everything is.

    ``least`` is that worth so far.
    """
    worth, before, schedule = np.empty(len(tables.worth)), copy_of(state), tables.schedule
    for _ in range(steps):
        if least == 0:
            break
        chosen = one_or_two(len(state.entry), draw)
        for w in range(len(worth)):
            worth[w] = tables.worth[w] * (1 - schedule.spread + 2 * schedule.spread * draw.random())
        if draw.random() < schedule.anew:
            for gpu in chosen:
                clear(tables, state, gpu)
            for gpu in chosen:
                furnish(tables, state, gpu, worth, draw)
        else:
            refill(tables, state, chosen, worth, draw)
        now = uncarried(tables, state)
        if now > least + schedule.worse * draw.random():
            copy_gpus(before, state, chosen)
        else:
            copy_gpus(state, before, chosen)
        least = min(least, now)
    return least


@compiled
def copy_of(state: State) -> State:
    """A copy of all but the fleet entries, which do not change."""
    return State(state.entry, state.slice_type.copy(), state.setting.copy(), state.alone.copy(), state.ways.copy(),
                 state.parts.copy(), state.on_gpu.copy(), state.left.copy(), state.replicas.copy())


@compiled
def copy_gpus(source: State, target: State, gpus: Ints) -> None:
    """Make some GPUs of a State, and what is not carried, those of another."""
    for gpu in gpus:
        for place in range(source.slice_type.shape[1]):
            target.slice_type[gpu, place], target.setting[gpu, place] = (
                source.slice_type[gpu, place],
                source.setting[gpu, place],
            )
            target.alone[gpu, place] = source.alone[gpu, place]
            for at in range(source.ways.shape[2]):
                target.ways[gpu, place, at] = source.ways[gpu, place, at]
                target.parts[gpu, place, at] = source.parts[gpu, place, at]
        for w in range(len(source.left)):
            target.on_gpu[gpu, w] = source.on_gpu[gpu, w]
    for w in range(len(source.left)):
        target.left[w], target.replicas[w] = source.left[w], source.replicas[w]


@compiled
def one_or_two(gpus: int, draw: np.random.Generator) -> Ints:
    """One or two random GPUs of so many."""
    first, other = int(gpus * draw.random()), int((gpus - 1) * draw.random())
    chosen = np.array([first, other + (other >= first)])
    return chosen[: 1 if gpus == 1 else 1 + int(2 * draw.random())]


@compiled
def shuffle(numbers: Ints, draw: np.random.Generator) -> None:
    """Bring numbers into a random order, in place."""
    for at in range(len(numbers) - 1, 0, -1):
        other = int((at + 1) * draw.random())
        numbers[at], numbers[other] = numbers[other], numbers[at]


@compiled
def refill(tables: SettingTables, state: State, gpus: Ints, worth: Floats, draw: np.random.Generator) -> None:
    """Empty some slices of some GPUs and fill them again."""
    places, many = state.slice_type.shape[1], 0
    chosen = np.empty(len(gpus) * places, np.int64)
    for gpu in gpus:
        for place in range(places):
            if state.slice_type[gpu, place] != NONE and draw.random() < 0.5:
                vacate(tables, state, gpu, place)
                chosen[many] = gpu * places + place
                many += 1
    shuffle(chosen[:many], draw)
    for one in chosen[:many]:
        occupy(tables, state, one // places, one % places, worth)


@compiled
def uncarried(tables: SettingTables, state: State) -> float:
    """The worth of the rates that are not carried and of the missing replicas."""
    total = 0.0
    for w in range(len(state.left)):
        missing = max(tables.fewest[w] - state.replicas[w], 0)
        total += tables.worth[w] * state.left[w] + tables.schedule.replica * missing
    return total


@compiled
def clear(tables: SettingTables, state: State, gpu: int) -> None:
    """Take everything off a GPU, its partition too."""
    for place in range(state.slice_type.shape[1]):
        vacate(tables, state, gpu, place)
        state.slice_type[gpu, place] = NONE


@compiled
def vacate(tables: SettingTables, state: State, gpu: int, place: int) -> None:
    """Take everything off a slice."""
    account(tables, state, gpu, place, -1)
    state.setting[gpu, place] = state.alone[gpu, place] = NONE


@compiled
def furnish(tables: SettingTables, state: State, gpu: int, worth: Floats, draw: np.random.Generator) -> None:
    """Partition an empty GPU at random and fill its slices; one on which nothing can run stays empty."""
    partition, seen = NONE, 0
    for other in range(len(tables.entry)):
        if tables.entry[other] == state.entry[gpu]:
            seen += 1
            partition = other if draw.random() * seen < 1 else partition
    if partition == NONE:
        return
    slice_types, place = np.arange(tables.slots.shape[1]), np.int64(0)
    shuffle(slice_types, draw)
    for slice_type in slice_types:
        for _ in range(tables.slots[partition, slice_type]):
            state.slice_type[gpu, place] = slice_type
            occupy(tables, state, gpu, place, worth)
            place += 1


def without(tables: SettingTables, state: State, gpu: int, entry: int) -> State:
    """A copy of a State without a GPU, or with an empty one of another fleet entry in its place (NONE for none)."""
    copy = State._make(field.copy() for field in state)
    clear(tables, copy, gpu)
    if entry != NONE:
        copy.entry[gpu] = entry
        return copy
    kept = [np.delete(field, gpu, axis=0) for field in copy[:-2]]
    return State._make([*kept, copy.left, copy.replicas])
