"""Derives cuts from the sets of workloads that can share a GPU at any operating points.

All sets that pass a test are listed; no set that can share a GPU fails it. A linear program over these sets (Gilmore
and Gomory's, for bins with few items) gives every workload a weight. For least cost, no set weighs more than its GPU
costs; for max_throughput, every set weighs at least as much as it carries. From the weights, a program with explicit
GPUs gets one row per GPU, and their sum bounds the objective before any search.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from provision.formulations.assignment.points import Points
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import FORGIVEN, SOLVER
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import objective_of

MOST_SETS = 20_000
"""The most sets of workloads that are listed for one fleet entry; if there are more, there are no cuts."""
MOST_SPLITS = 5_000
"""The most ways of dividing the units of a GPU among a set of workloads that are tried to bound what the set carries.
"""


class SetCuts(NamedTuple):
    """``weight`` (workloads,) of each workload, ``gpu`` (entries,) of a GPU of each fleet entry, and a ``bound``, all
    in units of the objective.

    For least cost, ``gpu[e]`` is the price of a GPU of entry e, and no set of workloads on such a GPU weighs more. For
    max_throughput, a set on such a GPU carries at most the sum of its weights and ``gpu[e]``. ``bound`` is a lower
    bound on the objective, or for max_throughput on its negative.
    """

    weight: Floats
    gpu: Floats
    bound: float


class _Shared(NamedTuple):
    """A GPU of one fleet entry: the Points of every workload on it, and its units, MPS clients and memory."""

    points: Sequence[Points | None]
    units: int
    clients: int
    memory_gib: float

    def of(self, chosen: Sequence[int]) -> list[Points]:
        """The Points of the given workloads, without the workloads that have none."""
        return [points for w in chosen if (points := self.points[w]) is not None]


def set_cuts_of(
    instance: Instance, points: Sequence[Sequence[Points | None]], units: Sequence[int], clients: Sequence[int]
) -> SetCuts | None:
    """The SetCuts of an instance; None if there are too many sets. ``points[w][e]`` are the Points of workload w on
    fleet entry e; units and MPS clients are listed by entry.
    """
    gpus = [_Shared([row[e] for row in points], units[e], clients[e], entry.type.memory_gib)
            for e, entry in enumerate(instance.fleet)]
    sets = [_sets(gpu) for gpu in gpus]
    listed = [one for one in sets if one is not None]
    if len(listed) < len(sets):
        return None
    number = len(points)
    if instance.objective == THROUGHPUT:
        values = [np.array([_most_rps(gpu, one) for one in some]) for gpu, some in zip(gpus, listed, strict=True)]
        counts = np.array([float(entry.count or 0) for entry in instance.fleet])
        return _carrying(number, listed, values, counts)
    return _costing(number, listed, np.array([objective_of(instance).weight(entry) for entry in instance.fleet]))


def _sets(gpu: _Shared) -> list[tuple[int, ...]] | None:
    """The sets of workloads that may be able to share a GPU; None if there are more than MOST_SETS. A set is tested if
    all of its subsets with one workload less have passed.
    """
    level: list[tuple[int, ...]] = [(w,) for w in range(len(gpu.points)) if _may_share(gpu, (w,))]
    found = list(level)
    while level:
        known = set(level)
        level = [(*fewer, w) for fewer in level for w in range(fewer[-1] + 1, len(gpu.points))
                 if len(fewer) < gpu.clients and all(one in known for one in combinations((*fewer, w), len(fewer)))
                 and _may_share(gpu, (*fewer, w))]
        found += level
        if len(found) > MOST_SETS:
            return None
    return found


def _may_share(gpu: _Shared, chosen: tuple[int, ...]) -> bool:
    """Whether workloads may be able to share a GPU. If not, it is certain that they cannot.

    A point is removed if it misses its deadline even beside the least demands of the other workloads' points. That is
    repeated until no further point is removed. The least units and the least memory of the points that are left must
    fit the GPU.
    """
    members = gpu.of(chosen)
    left = [np.arange(len(points)) for points in members]
    while len(members) == len(chosen) and all(map(len, left)):
        least = np.array([points.demand[:, at].min(1) for points, at in zip(members, left, strict=True)])
        kept = [at[points.beside(at, len(chosen), _spread(least.sum(0) - own, at))[0]]
                for points, at, own in zip(members, left, least, strict=True)]
        if all(len(one) == len(at) for one, at in zip(kept, left, strict=True)):
            break
        left = kept
    else:
        return False
    pairs = list(zip(members, left, strict=True))
    return bool(sum(one.units[at].min() for one, at in pairs) <= gpu.units
                and sum(one.memory_gib[at].min() for one, at in pairs) <= gpu.memory_gib * (1 + FORGIVEN))


def _spread(others: Floats, at: Ints) -> Floats:
    """(resources, points) the demands ``others``, repeated for every point; negative ones become 0."""
    return np.broadcast_to(np.maximum(others, 0.0)[:, None], (len(others), len(at)))


def _most_rps(gpu: _Shared, chosen: tuple[int, ...]) -> float:
    """An upper bound on the requests/s that a set of workloads carries on a GPU.

    Numbers of units are put into *cells*: ranges of ``width`` successive numbers, wide enough that there are few ways
    to assign cells to workloads. All ways are tried in which the least numbers of the cells fit the GPU. In each, every
    workload takes the best of its points in its cell, beside the least demands of the points in the others' cells.
    """
    width = 1
    while _ways(-(-gpu.units // width), len(chosen)) > MOST_SPLITS:
        width += 1
    cells = -(-gpu.units // width)
    split = _splits(cells, len(chosen), width, gpu.units)
    members = gpu.of(chosen)
    tables = [_by_cell(points, cells, width) for points in members]
    least = np.array([demand[:, split[:, at]] for at, (_, demand) in enumerate(tables)])
    total = np.zeros(len(split))
    for at, (points, (rows, _)) in enumerate(zip(members, tables, strict=True)):
        mine = rows[split[:, at]]
        others = np.where(np.isfinite(least), least, 0.0).sum(0) - np.where(np.isfinite(least[at]), least[at], 0.0)
        keeps, rps = points.beside(np.maximum(mine, 0), len(chosen), np.maximum(others, 0.0)[..., None])
        total += np.where(keeps & (mine >= 0), rps, -np.inf).max(1)
    return float(total.max(initial=-np.inf))


def _ways(cells: int, parts: int) -> int:
    """An estimate of the number of ways in which ``parts`` workloads can have cells that fit together."""
    ways = 1
    for part in range(parts):
        ways = ways * (cells + part) // (part + 1)
    return ways


def _splits(cells: int, parts: int, width: int, units: int) -> Ints:
    """(ways, parts) the cell of each workload, in all ways in which the least numbers of units of the cells fit
    together.
    """
    split = np.zeros((1, 0), int)
    for _ in range(parts):
        split = np.column_stack([np.repeat(split, cells, axis=0), np.tile(np.arange(cells), len(split))])
        split = split[(split * width + 1).sum(1) <= units]
    return split


def _by_cell(points: Points, cells: int, width: int) -> tuple[Ints, Floats]:
    """Two arrays: (cells, most) the indices of the points in each cell, filled up with -1; and (resources, cells) the
    least demands of the points in each cell.
    """
    cell = ((points.units - 1) // width).astype(int)
    mine = [np.flatnonzero(cell == one) for one in range(cells)]
    rows = np.full((cells, max(1, *map(len, mine))), -1)
    demand = np.full((len(points.demand), cells), np.inf)
    for one, at in enumerate(mine):
        rows[one, : len(at)] = at
        if len(at):
            demand[:, one] = points.demand[:, at].min(1)
    return rows, demand


def _costing(workloads: int, sets: Sequence[Sequence[tuple[int, ...]]], price: Floats) -> SetCuts | None:
    """The SetCuts for least cost: the weights of largest sum such that no set weighs more than its GPU costs. None if a
    workload is in no set, a price is 0, or the linear program is not solved.
    """
    rows, dear = _rows(workloads, sets), np.repeat(price, [len(one) for one in sets])
    if not rows.any(axis=0).all() or (price <= 0).any():
        return None
    found = linprog(-np.ones(workloads), A_ub=rows, b_ub=dear, bounds=(0, None), method="highs")
    if found.status or found.x is None:
        return None
    weight = np.maximum(found.x, 0.0)
    weight /= max(1.0, float((rows @ weight / dear).max(initial=0.0))) * (1 + FORGIVEN)
    return SetCuts(weight, price, float(weight.sum()))


def _carrying(
    workloads: int, sets: Sequence[Sequence[tuple[int, ...]]], rps: Sequence[Floats], counts: Floats
) -> SetCuts | None:
    """The SetCuts for max_throughput: the weights and numbers ``gpu`` of smallest sum over workloads and fleet, such
    that no set carries more than its weights and its GPU's number together.
    """
    rows, carried = _rows(workloads, sets), np.concatenate(rps)
    entry = np.repeat(np.arange(len(sets)), [len(one) for one in sets])
    known = np.isfinite(carried)
    table = np.hstack([rows, entry[:, None] == np.arange(len(sets))])[known]
    scale = float(np.abs(carried[known]).max(initial=1.0))
    bounds = [(None, None)] * workloads + [(0, None)] * len(sets)
    found = linprog(np.concatenate([np.ones(workloads), counts]), A_ub=-table, b_ub=-carried[known] / scale,
                    bounds=bounds, method="highs")
    if found.status or found.x is None:
        return None
    weight, gpu = found.x[:workloads] * scale, np.maximum(found.x[workloads:], 0.0) * scale
    short = carried[known] - table @ np.concatenate([weight, gpu])
    for one in range(len(sets)):
        gpu[one] += max(0.0, float(short[entry[known] == one].max(initial=0.0)))
    return SetCuts(weight, gpu, -float(weight.sum() + counts @ gpu) * (1 + SOLVER))


def _rows(workloads: int, sets: Sequence[Sequence[tuple[int, ...]]]) -> Floats:
    """(sets, workloads) 1 where a workload is in a set."""
    rows = np.zeros((sum(map(len, sets)), workloads))
    for at, one in enumerate(one for some in sets for one in some):
        rows[at, list(one)] = 1.0
    return rows


