"""Small patterns that carry rates: few replicas that share a whole GPU, for all divisions of its units among them.

For each set of groups and each division, batches begin at the largest that is feasible alone. They are lowered as long
as a replica violates its SLO or the next smaller batch carries no less. Under random arrivals the largest feasible
batch leaves no time to queue, so it carries nearly nothing; and where a batch carries more than the rate that counts, a
smaller one suffices. These are not all patterns, but a plan with few replicas on each GPU rarely needs another one.
Bounds come from exact pricing.
"""

import math
from itertools import combinations, combinations_with_replacement

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE
from provision.formulations.pricing.mps.rate_points import RatePoints, together_rps
from provision.models.base.arrays import Ints


def small_patterns(points: RatePoints, replicas: int, most: int) -> Ints:
    """Patterns of up to ``replicas`` replicas: (patterns, places) operating points, NONE at empty places. Units are
    divided in steps that give about ``most`` patterns of each size; sizes with more sets of replicas than that are left
    out.
    """
    at, group_of = _indexed(points)
    largest, smaller = at.max(axis=2), np.full(len(points.at), NONE)
    there = at[:, :, 1:] != NONE
    smaller[at[:, :, 1:][there]] = at[:, :, :-1][there]
    found = list[Ints]()
    for size in range(1, min(replicas, points.most) + 1):
        sets = math.comb(len(group_of) + size - 1, size)
        if sets > most and found:
            break
        rows = np.array(list(combinations_with_replacement(range(len(group_of)), size)), int).reshape(-1, size)
        group = group_of[rows]
        times = (group[:, :, None] == group[:, None, :]).sum(axis=2)
        rows = rows[(times <= points.groups.copies[group]).all(axis=1)]
        units = _divisions(points.limit, size, most // max(sets, 1))
        members = largest[rows[:, None], units].reshape(-1, size)
        members = _lowered(points, members[(members != NONE).all(axis=1)], smaller)
        found.append(np.pad(members, ((0, 0), (0, replicas - size)), constant_values=NONE))
    return np.concatenate(found)


def _indexed(points: RatePoints) -> tuple[Ints, Ints]:
    """Two arrays, with a row for each group with one of its models: (rows, units, batches) the indices of operating
    points, NONE where there is none, and (rows,) the groups.
    """
    rows, of_row = np.unique(np.stack([points.at.group, points.at.model]), axis=1, return_inverse=True)
    at = np.full((rows.shape[1], points.limit + 1, int(points.at.batch.max(initial=1)) + 1), NONE)
    at[of_row.ravel(), points.at.units, points.at.batch] = np.arange(len(points.at))
    return at, rows[0]


def _divisions(limit: int, size: int, most: int) -> Ints:
    """(divisions, replicas) the units of each replica: multiples of the least step that gives no more than ``most``
    divisions. The last replica gets the rest.
    """
    step = 1
    while step < limit // size and math.comb(limit // step - 1, size - 1) > most:
        step += 1
    ends = np.array(list(combinations(range(step, limit // step * step, step), size - 1)), int)
    return np.diff(ends, axis=1, prepend=0, append=limit)


def _lowered(points: RatePoints, members: Ints, smaller: Ints) -> Ints:
    """Patterns with smaller batches: batches are lowered until all replicas are feasible together, and no next smaller
    batch carries as much. Patterns in which a replica then carries less than its group must are left out.

    ``smaller`` (points,) are the points with the next smaller batches, NONE if there are none.
    """
    rps, active = together_rps(points, members), np.arange(len(members))
    while len(active):
        changed = np.zeros(len(members), bool)
        for place in range(members.shape[1]):
            rows = active[smaller[members[active, place]] != NONE]
            tried = members[rows]
            tried[:, place] = smaller[tried[:, place]]
            carried = together_rps(points, tried)
            lower = (rps[rows, place] <= 0) | (carried[:, place] >= rps[rows, place])
            members[rows[lower]], rps[rows[lower]], changed[rows[lower]] = tried[lower], carried[lower], True
        active = np.flatnonzero(changed)
    return members[((rps > 0) & (rps >= points.groups.least_rps[points.at.group[members]])).all(axis=1)]
