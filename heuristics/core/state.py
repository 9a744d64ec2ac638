"""Keeps the state of a search: what GPUs hold, and the part of every rate that they do not carry."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.heuristics.core.tables import NONE, SliceTables
from provision.models.base.arrays import Bools, Floats, Ints, Records
from provision.models.base.compiled import compiled, inner
from provision.models.base.tolerances import DUST

SLICE = np.dtype([
    ("slice_type", np.int64),
    ("setting", np.int64),
    ("alone", np.int64),        # the row of its segment
])
"""A slice of a GPU; NONE where it has no such thing."""
HELD = np.dtype([
    ("way", np.int64),
    ("part", np.float64),       # the part of its row's rate that it carries
])
"""A way on a slice; or the part of a slice's segment."""
REST = np.dtype([
    ("left", np.float64),       # the part of the rate that nothing carries
    ("replicas", np.int64),
])
"""What is left of a row's rate, and the number of its replicas."""


class State(NamedTuple):
    """The slices of GPUs and what they hold.

    Attributes
    ----------
    entry
        (GPUs,), the fleet entry.
    slices
        (GPUs, places), records of type SLICE.
    held
        (GPUs, places, ways), records of type HELD: the ways on a slice in the order in which they were added, then
        NONE. The part of a segment is at index 0.
    on_gpu
        (GPUs, rows), the part of each rate that a GPU carries.
    rest
        (rows,), records of type REST.
    """

    entry: Ints
    slices: Records
    held: Records
    on_gpu: Floats
    rest: Records


def empty_state(tables: SliceTables, entries: Sequence[int], rates: Bools) -> State:
    """A State of empty GPUs of some fleet entries; ``rates`` (rows,) tells which rows have a rate."""
    slices, rest = (len(entries), tables.partitions.shape[1] - 1), np.zeros(len(rates), REST)
    held = np.zeros((*slices, most_ways(tables)), HELD)
    held["way"], rest["left"] = NONE, rates
    return State(np.array(entries, np.int64), np.full(slices, NONE, SLICE), held,
                 np.zeros((len(entries), len(rates))), rest)


def most_ways(tables: SliceTables) -> int:
    """An upper bound on the number of ways on a slice."""
    listed = tables.settings["end_pattern"] > tables.settings["first_pattern"]
    counted = int(tables.settings["processes"][~listed].max(initial=1))
    return max(counted, tables.patterns.shape[1])


def kept(state: State, gpus: Sequence[int]) -> State:
    """A copy of a State with only some of its GPUs, given by index, and with all rates as they are."""
    some = [np.take(field, np.array(gpus, np.int64), axis=0) for field in state[:-1]]
    return State._make([*some, state.rest.copy()])


@inner
def copy_gpu(source: State, target: State, gpu: int) -> None:
    """Copy what a GPU holds from one State into another."""
    for place in range(source.slices.shape[1]):
        target.slices[gpu, place] = source.slices[gpu, place]
        for at in range(source.held.shape[2]):
            target.held[gpu, place, at] = source.held[gpu, place, at]
    for w in range(len(source.rest)):
        target.on_gpu[gpu, w] = source.on_gpu[gpu, w]


@inner
def copy_rest(source: State, target: State) -> None:
    """Copy the rates that are not carried from one State into another."""
    for w in range(len(source.rest)):
        target.rest[w] = source.rest[w]


@compiled
def uncarried(tables: SliceTables, state: State) -> float:
    """The price of the rates that are not carried and of the missing replicas."""
    total = 0.0
    for w in range(len(state.rest)):
        missing = max(tables.rows[w].least - state.rest[w].replicas, 0)
        total += price_of(tables, w, state.rest[w].left) + tables.schedule.replica * missing
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
    piece = state.slices[gpu, place]
    if piece.alone != NONE:
        carry(state, gpu, piece.alone, sign * state.held[gpu, place, 0].part, sign)
        return
    for at in range(state.held.shape[2] if piece.setting != NONE else 0):
        one, new = state.held[gpu, place, at], 1
        if one.way == NONE:
            break
        for earlier in range(0 if tables.ways[one.way].apart else at):
            if state.held[gpu, place, earlier].way == one.way:
                new = 0
        carry(state, gpu, tables.ways[one.way].row, sign * one.part, sign * new)


@inner
def carry(state: State, gpu: int, w: int, part: float, replicas: int) -> None:
    """Record that a GPU carries a part of a row's rate with a number of replicas; both numbers may be negative."""
    left = state.rest[w].left - part
    state.rest[w].left = left if left > DUST else 0.0
    state.on_gpu[gpu, w] += part
    state.rest[w].replicas += replicas
