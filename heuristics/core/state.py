"""Keeps the state of a search: what GPUs hold, and the part of every rate that they do not carry."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.heuristics.core.tables import NONE, SliceTables
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.compiled import compiled, inner
from provision.models.base.tolerances import DUST


class State(NamedTuple):
    """The slices of GPUs and what they hold.

    Attributes
    ----------
    entry
        (GPUs,), the fleet entry.
    slice_type, setting, alone
        (GPUs, places), the type of the slice, its setting, and the row of its segment; NONE where there is none.
    ways, parts
        (GPUs, places, ways), the ways on a slice in the order in which they were added, then NONE; and the part of its
        row's rate that each way carries. The part of a segment is at index 0.
    on_gpu
        (GPUs, rows), the part of each rate that a GPU carries.
    left, replicas
        (rows,), the part of each rate that is not carried, and the number of replicas.
    """

    entry: Ints
    slice_type: Ints
    setting: Ints
    alone: Ints
    ways: Ints
    parts: Floats
    on_gpu: Floats
    left: Floats
    replicas: Ints


def empty_state(tables: SliceTables, entries: Sequence[int], rates: Bools) -> State:
    """A State of empty GPUs of some fleet entries; ``rates`` (rows,) tells which rows have a rate."""
    places, workloads = int(tables.slots.sum(axis=1).max(initial=1)), len(tables.rows)
    slice_type, setting, alone = np.full((3, len(entries), places), NONE)
    held = (len(entries), places, most_ways(tables))
    return State(np.array(entries, np.int64), slice_type, setting, alone, np.full(held, NONE), np.zeros(held),
                 np.zeros((len(entries), workloads)), rates.astype(float), np.zeros(workloads, np.int64))


def most_ways(tables: SliceTables) -> int:
    """An upper bound on the number of ways on a slice."""
    listed = tables.settings["end_pattern"] > tables.settings["first_pattern"]
    counted = int(tables.settings["processes"][~listed].max(initial=1))
    return max(counted, tables.patterns.shape[1])


def kept(state: State, gpus: Sequence[int]) -> State:
    """A copy of a State with only some of its GPUs, given by index, and with all rates as they are."""
    some = [np.take(field, np.array(gpus, np.int64), axis=0) for field in state[:-2]]
    return State._make([*some, state.left.copy(), state.replicas.copy()])


@inner
def copy_of(state: State) -> State:
    """A copy of a State; the fleet entries, which do not change, are shared."""
    return State(state.entry, state.slice_type.copy(), state.setting.copy(), state.alone.copy(), state.ways.copy(),
                 state.parts.copy(), state.on_gpu.copy(), state.left.copy(), state.replicas.copy())


@inner
def copy_gpus(source: State, target: State, gpus: Ints) -> None:
    """Copy some GPUs, and the rates that are not carried, from one State into another."""
    for gpu in gpus:
        for place in range(source.slice_type.shape[1]):
            target.slice_type[gpu, place] = source.slice_type[gpu, place]
            target.setting[gpu, place] = source.setting[gpu, place]
            target.alone[gpu, place] = source.alone[gpu, place]
            for at in range(source.ways.shape[2]):
                target.ways[gpu, place, at] = source.ways[gpu, place, at]
                target.parts[gpu, place, at] = source.parts[gpu, place, at]
        for w in range(len(source.left)):
            target.on_gpu[gpu, w] = source.on_gpu[gpu, w]
    for w in range(len(source.left)):
        target.left[w], target.replicas[w] = source.left[w], source.replicas[w]


@compiled
def uncarried(tables: SliceTables, state: State) -> float:
    """The price of the rates that are not carried and of the missing replicas."""
    total = 0.0
    for w in range(len(state.left)):
        missing = max(tables.rows[w].least - state.replicas[w], 0)
        total += price_of(tables, w, state.left[w]) + tables.schedule.replica * missing
    return total


@inner
def price_of(tables: SliceTables, w: int, left: float) -> float:
    """The price of what is left of a row's rate, interpolated between the entries of ``SliceTables.price``."""
    steps = tables.price.shape[1] - 1
    low = min(int(left * steps * (1 - DUST)), steps - 1)
    over = left * steps - low
    return tables.price[w, low] * (1 - over) + tables.price[w, low + 1] * over if left > DUST else 0.0


@inner
def account(tables: SliceTables, state: State, gpu: int, place: int, sign: int) -> None:
    """Record that a slice carries what it holds; if ``sign`` is -1, that it no longer does."""
    alone = state.alone[gpu, place]
    if alone != NONE:
        carry(state, gpu, alone, sign * state.parts[gpu, place, 0], sign)
        return
    for at in range(state.ways.shape[2] if state.setting[gpu, place] != NONE else 0):
        way, new = state.ways[gpu, place, at], 1
        if way == NONE:
            break
        for earlier in range(0 if tables.ways[way].apart else at):
            if state.ways[gpu, place, earlier] == way:
                new = 0
        carry(state, gpu, tables.ways[way].row, sign * state.parts[gpu, place, at], sign * new)


@inner
def carry(state: State, gpu: int, w: int, part: float, replicas: int) -> None:
    """Record that a GPU carries a part of a row's rate with a number of replicas; both numbers may be negative."""
    left = state.left[w] - part
    state.left[w] = left if left > DUST else 0.0
    state.on_gpu[gpu, w] += part
    state.replicas[w] += replicas
