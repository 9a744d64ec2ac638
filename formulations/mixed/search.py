"""Ruin and recreate on given GPUs: slices are emptied and filled again until the GPUs carry every rate.

A slice holds one segment, or processes of several workloads at one setting (``tables``). In each step one or two GPUs
are emptied and partitioned again at random. Their slices are filled greedily with rates that no other slice carries, in
the order of what these are worth, times random factors. The step is kept if the worth of the rates that are not carried
falls, or hardly rises.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.mixed.tables import SettingTables
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled
from provision.models.base.tolerances import DUST

NONE = -1
SPREAD = 0.7
"""The random factors on the worth of rates lie within this of 1."""
WORSE = 0.01
"""A step is kept if it is worse than the best by up to this worth, in GPUs."""
ANEW = 0.3
"""Probability that a step partitions its GPUs again, rather than filling some of their slices again."""
REPLICA = 0.02
"""The worth of a missing replica, in GPUs."""


class State(NamedTuple):
    """What stands on GPUs.

    Attributes
    ----------
    entry
        (GPUs,) fleet entry.
    kind, setting, alone
        (GPUs, places) kind of the slice, its setting, the workload of its segment; NONE where there is none.
    parts, counts
        (GPUs, places, ways) part of the rate and number of processes of each way of the setting; a segment has them
        first.
    left, lacking
        (workloads,) part of each rate that is not carried, and number of missing replicas.
    """

    entry: Ints
    kind: Ints
    setting: Ints
    alone: Ints
    parts: Floats
    counts: Ints
    left: Floats
    lacking: Ints


def empty_state(tables: SettingTables, entries: Sequence[int], rates: Sequence[bool], replicas: Sequence[int]) -> State:
    """Empty GPUs of some fleet entries; ``rates`` flags workloads with a rate, ``replicas`` is their least number."""
    places = int(tables.slots.sum(axis=1).max(initial=1))
    ways = int(np.diff(tables.first).max(initial=1))
    kind, setting, alone = np.full((3, len(entries), places), NONE)
    parts, counts = np.zeros((len(entries), places, ways)), np.zeros((len(entries), places, ways), np.int64)
    return State(np.array(entries, np.int64), kind, setting, alone, parts, counts, np.array(rates, float),
                 np.array(replicas, np.int64))


@compiled
def improve(tables: SettingTables, state: State, rounds: int, seed: int) -> float:
    """Ruin and recreate, in place; returns the worth of what is not carried, 0 once everything is."""
    np.random.seed(seed)
    least, gpus = uncarried(tables, state), np.arange(len(state.entry))
    before = State(state.entry, state.kind.copy(), state.setting.copy(), state.alone.copy(), state.parts.copy(),
                   state.counts.copy(), state.left.copy(), state.lacking.copy())
    worth = np.empty(len(tables.worth))
    for _ in range(rounds):
        if least == 0:
            break
        shuffle(gpus)
        chosen = gpus[: 1 + int(2 * np.random.random())]
        for w in range(len(worth)):
            worth[w] = tables.worth[w] * (1 - SPREAD + 2 * SPREAD * np.random.random())
        if np.random.random() < ANEW:
            for gpu in chosen:
                clear(tables, state, gpu)
            for gpu in chosen:
                furnish(tables, state, gpu, worth)
        else:
            refill(tables, state, chosen, worth)
        now = uncarried(tables, state)
        if now > least + WORSE * np.random.random():
            copy_gpus(before, state, chosen)
        else:
            copy_gpus(state, before, chosen)
        least = min(least, now)
    return least


@compiled
def copy_gpus(source: State, target: State, gpus: Ints) -> None:
    """Make some GPUs of a State, and what is not carried, those of another."""
    for gpu in gpus:
        for place in range(source.kind.shape[1]):
            target.kind[gpu, place], target.setting[gpu, place] = source.kind[gpu, place], source.setting[gpu, place]
            target.alone[gpu, place] = source.alone[gpu, place]
            for way in range(source.parts.shape[2]):
                target.parts[gpu, place, way] = source.parts[gpu, place, way]
                target.counts[gpu, place, way] = source.counts[gpu, place, way]
    for w in range(len(source.left)):
        target.left[w], target.lacking[w] = source.left[w], source.lacking[w]


@compiled
def shuffle(numbers: Ints) -> None:
    """Bring numbers into a random order, in place."""
    for at in range(len(numbers) - 1, 0, -1):
        other = int((at + 1) * np.random.random())
        numbers[at], numbers[other] = numbers[other], numbers[at]


@compiled
def refill(tables: SettingTables, state: State, gpus: Ints, worth: Floats) -> None:
    """Empty some slices of some GPUs and fill them again."""
    places, many = state.kind.shape[1], 0
    chosen = np.empty(len(gpus) * places, np.int64)
    for gpu in gpus:
        for place in range(places):
            if state.kind[gpu, place] != NONE and np.random.random() < 0.5:
                vacate(tables, state, gpu, place)
                chosen[many] = gpu * places + place
                many += 1
    shuffle(chosen[:many])
    for one in chosen[:many]:
        occupy(tables, state, one // places, one % places, worth)


def take_off(tables: SettingTables, state: State, gpu: int, entry: int) -> State:
    """A copy of a State without a GPU, or with an empty one of another fleet entry in its place (NONE for none)."""
    copy = State._make(field.copy() for field in state)
    clear(tables, copy, gpu)
    if entry != NONE:
        copy.entry[gpu] = entry
        return copy
    kept = [np.delete(field, gpu, axis=0) for field in copy[:-2]]
    return State._make([*kept, copy.left, copy.lacking])


@compiled
def uncarried(tables: SettingTables, state: State) -> float:
    """The worth of the rates that are not carried and of the missing replicas."""
    rates, replicas = 0.0, 0
    for w in range(len(state.left)):
        rates += tables.worth[w] * state.left[w]
        replicas += max(state.lacking[w], 0)
    return rates + REPLICA * replicas


@compiled
def clear(tables: SettingTables, state: State, gpu: int) -> None:
    """Take everything off a GPU, its partition too."""
    for place in range(state.kind.shape[1]):
        vacate(tables, state, gpu, place)
        state.kind[gpu, place] = NONE


@compiled
def vacate(tables: SettingTables, state: State, gpu: int, place: int) -> None:
    """Take everything off a slice."""
    setting, alone = state.setting[gpu, place], state.alone[gpu, place]
    if alone != NONE:
        carry(tables, state, alone, -state.parts[gpu, place, 0], -1.0)
    elif setting != NONE:
        account(tables, state, setting, state.parts[gpu, place], state.counts[gpu, place], -1.0)
    state.setting[gpu, place] = state.alone[gpu, place] = NONE


@compiled
def account(tables: SettingTables, state: State, setting: int, parts: Floats, counts: Ints, sign: float) -> None:
    """Record that the ways of a setting carry their parts, or with ``sign`` -1.0 that they no longer do."""
    begin, seen = tables.first[setting], np.zeros(len(state.left), np.bool_)
    for here in range(tables.first[setting + 1] - begin):
        w = tables.workload[begin + here]
        if counts[here]:
            replicas = counts[here] if tables.split[w] else 0 if seen[w] else 1
            carry(tables, state, w, sign * parts[here], sign * replicas)
            seen[w] = True


@compiled
def carry(tables: SettingTables, state: State, w: int, part: float, replicas: float) -> None:
    """Record that a part of a workload's rate is carried, by a whole number of replicas; both may be negative."""
    left = state.left[w] - part
    state.left[w] = left if left > DUST else 0.0
    state.lacking[w] -= int(replicas)


@compiled
def furnish(tables: SettingTables, state: State, gpu: int, worth: Floats) -> None:
    """Partition an empty GPU at random and fill its slices."""
    partition, seen = 0, 0
    for other in range(len(tables.entry)):
        if tables.entry[other] == state.entry[gpu]:
            seen += 1
            partition = other if np.random.random() * seen < 1 else partition
    kinds, place = np.arange(tables.slots.shape[1]), np.int64(0)
    shuffle(kinds)
    for kind in kinds:
        for _ in range(tables.slots[partition, kind]):
            state.kind[gpu, place] = kind
            occupy(tables, state, gpu, place, worth)
            place += 1


@compiled
def occupy(tables: SettingTables, state: State, gpu: int, place: int, worth: Floats) -> None:
    """Put the most valuable on a slice: a segment, or a setting filled in either order."""
    kind, best = state.kind[gpu, place], 0.0
    parts, counts = np.zeros(state.parts.shape[2]), np.zeros(state.parts.shape[2], np.int64)
    for w in range(len(worth)):
        part = min(tables.segment[w, kind], state.left[w])
        gain = worth[w] * part + (REPLICA if state.lacking[w] > 0 and tables.segment[w, kind] > 0 else 0.0)
        if gain > best:
            best, state.alone[gpu, place], state.parts[gpu, place, 0] = gain, w, part
    for setting in range(len(tables.kind)):
        if tables.kind[setting] != kind:
            continue
        for dense in (False, True):
            gain = fill(tables, state, setting, worth, dense, parts, counts)
            if gain > best:
                best, state.alone[gpu, place], state.setting[gpu, place] = gain, NONE, setting
                for way in range(len(parts)):
                    state.parts[gpu, place, way], state.counts[gpu, place, way] = parts[way], counts[way]
    if state.alone[gpu, place] != NONE:
        carry(tables, state, state.alone[gpu, place], state.parts[gpu, place, 0], 1.0)
    elif state.setting[gpu, place] != NONE:
        account(tables, state, state.setting[gpu, place], state.parts[gpu, place], state.counts[gpu, place], 1.0)


@compiled
def fill(
    tables: SettingTables, state: State, setting: int, worth: Floats, dense: bool, parts: Floats, counts: Ints
) -> float:
    """Fill ``parts`` and ``counts`` of a setting greedily; returns their worth, 0 for fewer than two workloads.

    The most valuable processes come first, or where ``dense`` those of the most value per utilisation.
    """
    begin, end = tables.first[setting], tables.first[setting + 1]
    room, free, memory_gib = tables.room[setting], tables.clients[setting], tables.memory_gib[setting]
    parts[:], counts[:] = 0.0, 0
    left, lacking, seen = state.left.copy(), state.lacking.copy(), np.zeros(len(worth), np.bool_)
    total, workloads = 0.0, 0
    while free >= 1:
        best, found, taken, gained = 0.0, NONE, 0.0, 0.0
        for at in range(begin, end):
            w, here = tables.workload[at], at - begin
            part = min(tables.most[at], left[w])
            if tables.busy[at] > 0:
                part = min(part, room / tables.busy[at])
            replicas = counts[here] + 1 if tables.split[w] else 1
            if (tables.held_gib[at] > memory_gib or counts[here] >= tables.processes[at]
                    or parts[here] + part < tables.least[at] * replicas):
                continue
            new = lacking[w] > 0 and (tables.split[w] or not seen[w])
            gain = worth[w] * part + (REPLICA if new else 0.0)
            key = gain / (tables.busy[at] * part + DUST) if dense else gain
            if key > best:
                best, found, taken, gained = key, at, part, gain
        if found == NONE:
            break
        w, here = tables.workload[found], found - begin
        lacking[w] -= 1 if tables.split[w] or not seen[w] else 0
        workloads += not seen[w]
        seen[w] = True
        total += gained
        parts[here] += taken
        counts[here] += 1
        left[w] = max(left[w] - taken, 0.0)
        room -= tables.busy[found] * taken
        memory_gib -= tables.held_gib[found]
        free -= 1
    return total if workloads > 1 else 0.0
