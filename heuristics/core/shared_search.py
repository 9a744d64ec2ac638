"""Compiled ruin and recreate over packings of replicas that share GPUs."""

import math

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE
from provision.formulations.pricing.mps.tables import PointTables
from provision.heuristics.core.schedule import GpuSchedule
from provision.heuristics.core.shared_packing import Costs, Packing, Packings, Types, place
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled


@compiled
def ruin_and_recreate(
    types: Types,
    packings: Packings,
    before: Packings,
    costs: Costs,
    steps: int,
    schedule: GpuSchedule,
    draw: np.random.Generator,
) -> None:
    """Take a few GPUs apart and pack their replicas again, ``steps`` times; the packings change.

    The measure is the price of the GPUs in use less the worth of the squared free part of each; a step that raises it
    is undone. ``before`` are copies of the packings. With several GPU types, the preference for new GPUs of each is
    random.
    """
    slice_types, places = len(types), 0
    for slice_type in range(slice_types):
        places += packings[slice_type].members.size
    loose, keys, touched = np.empty(places, np.int64), np.empty(places), np.empty((2 * places, 2), np.int64)
    for _ in range(steps):
        loosened, many, in_use = np.int64(0), np.int64(0), 0
        for slice_type in range(slice_types):
            in_use += _in_use(packings[slice_type])
            if slice_types > 1:
                costs.lean[slice_type] = math.exp(_normal(draw))
        for _ in range(min(2 + int((schedule.most_gpus - 1) * draw.random()), in_use)):
            slice_type, gpu = _victim(types, packings, schedule.tournament, draw)
            packing = packings[slice_type]
            touched[many, 0], touched[many, 1] = slice_type, gpu
            many += 1
            for at in range(packing.size[gpu]):
                one = packing.members[gpu, at]
                loose[loosened] = one
                hardness = costs.least[slice_type, one] / types[slice_type].limit
                keys[loosened] = -hardness * (1 + schedule.shuffle * draw.random())
                loosened += 1
            packing.size[gpu], packing.used[gpu] = 0, 0
        fits = True
        _sort(loose, keys, loosened)
        for at in range(loosened):
            slice_type, gpu = place(types, packings, costs, loose[at], schedule.eager)
            if gpu == NONE:
                fits = False
                break
            touched[many, 0], touched[many, 1] = slice_type, gpu
            many += 1
        keep = fits and _change(types, packings, before, costs, touched, many) <= 0
        for at in range(many):
            slice_type, gpu = touched[at, 0], touched[at, 1]
            if keep:
                _copy_row(packings[slice_type], before[slice_type], gpu)
            else:
                _copy_row(before[slice_type], packings[slice_type], gpu)


@compiled
def _normal(draw: np.random.Generator) -> float:
    """A standard normal number (Box and Muller 1958); NumPy's own method takes long to compile."""
    return math.sqrt(-2 * math.log(1 - draw.random())) * math.cos(2 * math.pi * draw.random())


@compiled
def _sort(loose: Ints, keys: Floats, size: int) -> None:
    """Sort the first few replicas by their keys, by insertion."""
    for end in range(1, size):
        one, key, at = loose[end], keys[end], end
        while at > 0 and keys[at - 1] > key:
            loose[at], keys[at] = loose[at - 1], keys[at - 1]
            at -= 1
        loose[at], keys[at] = one, key


@compiled
def _victim(types: Types, packings: Packings, tournament: int, draw: np.random.Generator) -> tuple[int, int]:
    """The type and number of a random GPU in use, preferably an emptier one."""
    found, emptiest, tried, gpus = (NONE, NONE), np.inf, 0, 0
    for slice_type in range(len(types)):
        gpus += len(packings[slice_type].size)
    while tried < tournament or found[0] == NONE:
        gpu, slice_type = int(gpus * draw.random()), 0
        while gpu >= len(packings[slice_type].size):
            gpu -= len(packings[slice_type].size)
            slice_type += 1
        tried += 1
        part = packings[slice_type].used[gpu] / types[slice_type].limit
        if packings[slice_type].size[gpu] and part < emptiest:
            found, emptiest = (slice_type, gpu), part
    return found


@compiled
def _copy_row(source: Packing, target: Packing, gpu: int) -> None:
    for at in range(source.members.shape[1]):
        target.members[gpu, at], target.units[gpu, at] = source.members[gpu, at], source.units[gpu, at]
    target.size[gpu], target.used[gpu] = source.size[gpu], source.used[gpu]


@compiled
def _change(
    types: Types, packings: Packings, before: Packings, costs: Costs, touched: Ints, many: int
) -> float:
    """The change of the measure by the first ``many`` GPUs that were touched; a GPU may be listed twice."""
    change = 0.0
    for slice_type in range(len(types)):
        change += (
            costs.rent[slice_type, _in_use(packings[slice_type])] - costs.rent[slice_type, _in_use(before[slice_type])]
        )
    for at in range(many):
        slice_type, gpu, earlier = touched[at, 0], touched[at, 1], 0
        while touched[earlier, 0] != slice_type or touched[earlier, 1] != gpu:
            earlier += 1
        if earlier == at:
            free = _free(types[slice_type], packings[slice_type], gpu) - _free(
                types[slice_type], before[slice_type], gpu
            )
            change -= costs.worth[slice_type] * free
    return change


@compiled
def _in_use(packing: Packing) -> int:
    many = 0
    for size in packing.size:
        many += size > 0
    return many


@compiled
def _free(tables: PointTables, packing: Packing, gpu: int) -> float:
    """The squared free part of a GPU in use."""
    return ((tables.limit - packing.used[gpu]) / tables.limit) ** 2 if packing.size[gpu] else 0.0
