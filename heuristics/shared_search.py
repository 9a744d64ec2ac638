"""Compiled ruin and recreate over a packing of replicas that share GPUs."""

import numpy as np

from provision.heuristics.shared_packing import place
from provision.models.compiled import compiled
from provision.models.igniter_kernels import NONE

TOURNAMENT = 3
"""Of so many random GPUs the emptiest is taken apart."""


@compiled
def ruin_and_recreate(tables, packing, least, steps, most_gpus, eager, draw):
    """Take a few GPUs apart and pack their replicas again, ``steps`` times; the packing changes.

    A step that makes the GPUs in use, less the squared part of each that is free, grow is undone.
    """
    gpus = len(packing.size)
    before = (packing.members.copy(), packing.units.copy(), packing.size.copy(), packing.used.copy())
    loose, keys = np.empty(gpus + packing.members.size, np.int64), np.empty(packing.members.size)
    touched = np.empty(packing.members.size + gpus, np.int64)
    for _ in range(steps):
        loosened, many = 0, 0
        for _ in range(min(draw.integers(2, most_gpus + 1), (packing.size > 0).sum())):
            gpu = _victim(packing, draw)
            touched[many] = gpu
            many += 1
            for at in range(packing.size[gpu]):
                loose[loosened] = packing.members[gpu, at]
                keys[loosened] = -least[loose[loosened]] * (1 + 0.3 * draw.random())
                loosened += 1
            packing.size[gpu], packing.used[gpu] = 0, 0
        change, fits = 0.0, True
        for at in np.argsort(keys[:loosened]):
            one = loose[at]
            gpu = place(tables, packing, one, least[one], eager)
            if gpu == NONE:
                fits = False
                break
            touched[many] = gpu
            many += 1
        change = _change(tables, packing, before, touched[:many])
        keep = fits and change <= 0
        for gpu in touched[:many]:
            if keep:
                _copy_row(packing, before, gpu)
            else:
                packing.members[gpu], packing.units[gpu] = before[0][gpu], before[1][gpu]
                packing.size[gpu], packing.used[gpu] = before[2][gpu], before[3][gpu]


@compiled
def _victim(packing, draw):
    """A random GPU in use, rather an empty one."""
    found, tried = NONE, 0
    while tried < TOURNAMENT or found == NONE:
        gpu = draw.integers(0, len(packing.size))
        tried += 1
        if packing.size[gpu] and (found == NONE or packing.used[gpu] < packing.used[found]):
            found = gpu
    return found


@compiled
def _copy_row(packing, before, gpu):
    before[0][gpu], before[1][gpu] = packing.members[gpu], packing.units[gpu]
    before[2][gpu], before[3][gpu] = packing.size[gpu], packing.used[gpu]


@compiled
def _change(tables, packing, before, touched):
    """How much the measure grew on the GPUs that were touched, some perhaps named twice."""
    change = 0.0
    for at in range(len(touched)):
        gpu = touched[at]
        if not (touched[:at] == gpu).any():
            new = 1 - ((tables.limit - packing.used[gpu]) / tables.limit) ** 2 if packing.size[gpu] else 0.0
            old = 1 - ((tables.limit - before[3][gpu]) / tables.limit) ** 2 if before[2][gpu] else 0.0
            change += new - old
    return change
