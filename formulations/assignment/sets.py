"""Worths of workloads from the sets that can share a GPU, where each workload has one replica."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.sparse import csr_array

from provision.formulations.assignment.points import Points
from provision.formulations.linear.highs import Rows, solve_linear
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import FORGIVEN

MOST_SETS = 20_000
"""The most sets of workloads that are listed for one fleet entry; if there are more, there are no worths."""


def worths_of(workloads: int, gpus: Sequence[Points | None], prices: Floats, until: Deadline) -> Floats | None:
    """(entries, workloads) worths, those on one GPU of an entry at most 1 together; None if there are too many sets, or
    a workload is in none.

    They are the prices of a linear program over all sets of workloads that pass a test (Gilmore and Gomory's, for bins
    with few items); no set that can share a GPU fails it. ``gpus`` are the points of each fleet entry, ``prices``
    (entries,) the amounts that its GPUs add to the objective.
    """
    listed, entries = list[tuple[int, ...]](), list[int]()
    for e, points in enumerate(gpus):
        sets = [] if points is None else _sets(points, workloads, until)
        if sets is None:
            return None
        listed += sets
        entries += [e] * len(sets)
    rows = np.zeros((len(listed), workloads))
    for at, one in enumerate(listed):
        rows[at, list(one)] = 1.0
    if not rows.any(axis=0).all() or (prices <= 0).any():
        return None
    dear = prices[entries]
    found = solve_linear(Rows(-np.ones(workloads), csr_array(-rows), -dear, np.zeros(workloads),
                              np.full(workloads, np.inf)))
    if found is None:
        return None
    worths = np.maximum(found.x, 0.0)
    most = max(1.0, float((rows @ worths / dear).max(initial=0.0))) * (1 + FORGIVEN)
    return np.asarray(worths / (most * prices[:, None]))


def _sets(points: Points, workloads: int, until: Deadline) -> list[tuple[int, ...]] | None:
    """The sets of workloads that may be able to share a GPU; None if there are more than MOST_SETS, or at the deadline.
    A set is tested if all of its subsets with one workload less have passed.
    """
    mine = [np.flatnonzero(points.workload == w) for w in range(workloads)]
    level: list[tuple[int, ...]] = [(w,) for w in range(workloads) if len(mine[w])]
    found = list(level)
    while level:
        known, longer = set(level), list[tuple[int, ...]]()
        for fewer in level:
            for chosen in ((*fewer, w) for w in range(fewer[-1] + 1, workloads)):
                if (len(fewer) < points.clients and all(one in known for one in combinations(chosen, len(fewer)))
                        and _may_share(points, [mine[w] for w in chosen])):
                    longer.append(chosen)
            if until.over or len(found) + len(longer) > MOST_SETS:
                return None
        found, level = found + longer, longer
    return found


def _may_share(points: Points, left: list[Ints]) -> bool:
    """Whether workloads may be able to share a GPU, ``left`` with their points. If not, it is certain that they cannot.

    A point is removed if it misses its deadline even beside the least demands of the other workloads' points. That is
    repeated until no further point is removed. The least units and memory that are left must fit the GPU.
    """
    while all(map(len, left)):
        least = np.array([points.demand[at].min(axis=0) for at in left])
        kept = []
        for at, own in zip(left, least, strict=True):
            others = np.broadcast_to(np.maximum(least.sum(axis=0) - own, 0.0), (len(at), least.shape[1]))
            kept.append(at[points.hold_ms(at, len(left), others) <= points.room_ms[at] * (1 + FORGIVEN)])
        if all(len(one) == len(at) for one, at in zip(kept, left, strict=True)):
            return bool(sum(points.units[at].min() for at in left) <= points.limit
                        and sum(points.memory_gib[at].min() for at in left) <= points.memory_limit_gib * (1 + FORGIVEN))
        left = kept
    return False
