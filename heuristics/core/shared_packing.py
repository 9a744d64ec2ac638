"""Compiled packing of replicas onto GPUs of one or more types that they share under interference."""

from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE, settle
from provision.formulations.pricing.mps.tables import PointTables
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled


class Packing(NamedTuple):
    """GPUs of one type being filled; empty ones may stand anywhere.

    ``members`` (GPUs, places) are the classes of the replicas on each GPU and ``units`` (GPUs, places) their units;
    ``size`` (GPUs,) is the number of replicas and ``used`` (GPUs,) the sum of their units.
    """

    members: Ints
    units: Ints
    size: Ints
    used: Ints


Types = tuple[PointTables, ...]
Packings = tuple[Packing, ...]
"""One for each GPU type."""


class Costs(NamedTuple):
    """What replicas need and GPUs cost, as parts of the dearest GPU's price.

    ``least`` is (types, classes) units that a replica needs at least; ``rent`` is (types, GPUs + 1) price of 0, 1, 2,
    ... GPUs of a type; ``worth`` is (types,) value of a GPU that is in use already; ``lean`` is (types,) factor on the
    price of a new GPU, by which a search prefers some types.
    """

    least: Ints
    rent: Floats
    worth: Floats
    lean: Floats


def empty_packing(gpus: int, tables: PointTables) -> Packing:
    """A Packing of empty GPUs."""
    members = np.zeros((gpus, tables.most + 1), np.int64)
    return Packing(members, np.zeros_like(members), np.zeros(gpus, np.int64), np.zeros(gpus, np.int64))


@compiled
def place(
    types: Types, packings: Packings, costs: Costs, one: int, eager: float
) -> tuple[int, int]:
    """Put a replica on the GPU in use where the worth of all units grows least, else on an empty one.

    Parameters
    ----------
    types, packings
        PointTables and Packing of each type; the packings change.
    costs
        Costs.
    one
        Class of the replica.
    eager
        Weight of the units that the GPU has left afterwards, against the growth.

    Returns
    -------
    tuple
        The type and the GPU; NONE when there is none.
    """
    slice_type, gpu, lowest = int(NONE), int(NONE), np.inf
    for other in range(len(types)):
        found, score = _least_growth(types[other], packings[other], one, costs.least[other, one], eager)
        score *= costs.worth[other] / types[other].limit
        if found != NONE and (gpu == NONE or score < lowest):
            slice_type, gpu, lowest = other, found, score
    for other in range(len(types) if gpu == NONE else 0):
        vacant, price = _vacant(types[other], packings[other], costs, other, one)
        if vacant != NONE and (slice_type == NONE or price < lowest):
            slice_type, lowest = other, price
            gpu = vacant
    if gpu != NONE:
        put(types[slice_type], packings[slice_type], gpu, one, costs.least[slice_type, one])
    return slice_type, gpu


@compiled
def put(tables: PointTables, packing: Packing, gpu: int, one: int, least: int) -> None:
    """Put a replica on a GPU."""
    size = packing.size[gpu]
    points = np.empty(packing.members.shape[1], np.int64)
    packing.members[gpu, size], packing.units[gpu, size] = one, least
    packing.size[gpu] = size + 1
    packing.used[gpu] = settle(tables, packing.members[gpu], size + 1, packing.units[gpu], points)


@compiled
def _least_growth(tables: PointTables, packing: Packing, one: int, least: int, eager: float) -> tuple[int, float]:
    """The GPU in use on which the units of all grow least, and the score; NONE when there is none."""
    most = packing.members.shape[1]
    members, units, points = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    found, lowest = NONE, np.inf
    for gpu in range(len(packing.size)):
        size = packing.size[gpu]
        if size == 0 or packing.used[gpu] + least > tables.limit:
            continue
        for at in range(size):
            members[at], units[at] = packing.members[gpu, at], packing.units[gpu, at]
        members[size], units[size] = one, least
        total = settle(tables, members, size + 1, units, points)
        if total == NONE:
            continue
        score = total - packing.used[gpu] + eager * (tables.limit - total)
        if score < lowest:
            found, lowest = gpu, score
    return found, lowest


@compiled
def _vacant(tables: PointTables, packing: Packing, costs: Costs, slice_type: int, one: int) -> tuple[int, float]:
    """An empty GPU, NONE when there is none, and what the units of a replica on it would cost."""
    units, many, vacant = costs.least[slice_type, one], 0, NONE
    for gpu in range(len(packing.size)):
        if packing.size[gpu]:
            many += 1
        elif vacant == NONE:
            vacant = gpu
    if units > tables.limit or vacant == NONE:
        return NONE, np.inf
    return vacant, (costs.rent[slice_type, many + 1] - costs.rent[slice_type, many]) * costs.lean[
        slice_type
    ] * units / tables.limit


@compiled
def pack(types: Types, packings: Packings, costs: Costs, order: Ints, eager: float) -> None:
    """Place replicas one after the other; ``order`` holds their classes. There must be a GPU for each."""
    for one in order:
        place(types, packings, costs, one, eager)
