"""Compiled packing of replicas onto GPUs that they share under interference."""

from typing import NamedTuple

import numpy as np

from provision.models.compiled import compiled
from provision.models.igniter_kernels import NONE, settle


class Packing(NamedTuple):
    """GPUs being filled: who is on each, (GPUs, places), with least units; how many, and their units together.

    Empty GPUs may stand anywhere.
    """

    members: np.ndarray
    units: np.ndarray
    size: np.ndarray
    used: np.ndarray


def empty_packing(gpus, tables):
    """No replicas on any of some GPUs."""
    members = np.zeros((gpus, tables.most + 1), np.int64)
    return Packing(members, np.zeros_like(members), np.zeros(gpus, np.int64), np.zeros(gpus, np.int64))


@compiled
def place(tables, packing, one, least, eager):
    """Put a replica where the units of all grow least, else on an empty GPU.

    Parameters
    ----------
    tables, packing
        Tables and Packing; the packing changes.
    one
        Class of the replica.
    least
        Units it needs at least.
    eager
        Weight of the units that the GPU then has left, against the growth.

    Returns
    -------
    int
        The GPU; NONE when there is none.
    """
    most = packing.members.shape[1]
    members, units, points = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    found, lowest, vacant = NONE, np.inf, NONE
    for gpu in range(len(packing.size)):
        size = packing.size[gpu]
        if size == 0:
            vacant = gpu if vacant == NONE else vacant
            continue
        if packing.used[gpu] + least > tables.limit:
            continue
        members[:size] = packing.members[gpu, :size]
        units[:size] = packing.units[gpu, :size]
        members[size], units[size] = one, least
        total = settle(tables, members, size + 1, units, points)
        if total == NONE:
            continue
        score = total - packing.used[gpu] + eager * (tables.limit - total)
        if score < lowest:
            found, lowest = gpu, score
    if found == NONE:
        found = vacant
    if found != NONE:
        size = packing.size[found]
        packing.members[found, size], packing.units[found, size] = one, least
        packing.size[found] = size + 1
        packing.used[found] = settle(tables, packing.members[found], size + 1, packing.units[found], points)
    return found


@compiled
def pack(tables, packing, order, least, eager):
    """Place replicas, given by class, one after the other; there must be a GPU for each."""
    for one in order:
        place(tables, packing, one, least[one], eager)
