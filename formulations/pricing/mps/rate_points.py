"""Operating points for patterns that carry rates, on whole GPUs that replicas share under interference.

The rate that a replica carries beside its neighbours does not depend on the rates that are routed to any of them. It
depends only on the replica's operating point and on the number, cache demand and power of all replicas. So a pattern is
a vector of rates, and a workload can be split at any rates, not only at those of a grid.

Small patterns are listed. For each set of groups and each division of the units, batches begin at the largest that is
feasible alone. They are lowered as long as a replica violates its SLO or the next smaller batch carries no less. Under
random arrivals the largest feasible batch leaves no time to queue, so it carries nearly nothing; and where a batch
carries more than the rate that counts, a smaller one suffices. These are not all patterns, but a plan with few replicas
on each GPU rarely needs another one. Bounds come from exact pricing.
"""

import math
from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.mps.kernels import NONE, ROUNDED, busy_ms, clock_at
from provision.formulations.pricing.mps.laws import law_of
from provision.formulations.pricing.mps.tables import POINTS, Columns, every_point, records
from provision.formulations.search.problem import Group
from provision.models.base.arrays import Floats, Ints, Record, Records
from provision.models.base.compiled import compiled, inner
from provision.models.base.tolerances import LOOSE, MISSING
from provision.models.performance.catalogue import PerformanceFile
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.traffic.rule import LatencyRule

SLIGHT = 1e-9
"""The rounding error of sums of cache demand and of power (W)."""
MOST_RPS = 1e9
"""The requests/s of a replica that count where the objective is throughput: more than any replica carries."""
RATE_POINT = np.dtype([
    ("group", np.int64),
    ("model", np.int64),     # an index into the models of the group
    ("units", np.int64),
    ("batch", np.int64),
    *((name, np.float64) for name in POINTS),
    ("room_ms", np.float64),   # the longest time on the GPU that keeps the SLO
    ("after_ms", np.float64),  # how much longer than that time a batch holds its replica
    ("line", np.int64),        # a row of ``bends``
])
"""An operating point of a group."""
RATED_GROUP = np.dtype([
    ("most_rps", np.float64),   # the rate of one replica that counts
    ("least_rps", np.float64),  # what a replica must carry
    ("total_rps", np.float64),  # the rate of all replicas of the group in a pattern that counts
    ("copies", np.int64),       # the most replicas of the group in a pattern
])
"""The limits of a group."""


class RatePoints(NamedTuple):
    """Operating points on one GPU type.

    ``at`` (points,) are records RATE_POINT, sorted by group, model, units and batch; ``groups`` (groups,) are records
    RATED_GROUP. ``bends`` (lines, 2, bends) has the hold times of the bends of a latency rule, and the time per request
    at each (``Bends``), infinite beyond the last bend. ``together`` (2, counts) are upper bounds on the total cache
    demand and power of 0, 1, ... points that fit the GPU together; minus infinity if none fit. ``gpu`` is one record
    GPU (see ``laws``). The GPU has ``limit`` units, and holds at most ``most`` replicas.
    """

    at: Records
    groups: Records
    bends: Floats
    together: Floats
    gpu: Records
    limit: int
    most: int


def rate_points(instance: Instance, data: PerformanceFile, groups: Sequence[Group], rule: LatencyRule | None = None
                ) -> RatePoints:
    """The operating points of groups that are feasible alone, within the limits of bounds.

    Parameters
    ----------
    instance, data
        The problem, and the data that describes interference.
    groups
        The problem's groups.
    rule
        The latency rule of all groups; by default that of the first workload of each group.
    """
    throughput = objective_of(instance).counts_capacity
    grids, gpu, limit, most = law_of(data, {model for group in groups for model in group.models},
                                     instance.policy.rule.random_arrivals)
    columns: list[Columns] = []
    lines: list[tuple[Floats, Floats]] = []
    for at, group in enumerate(groups):
        budget_ms = group.slo_ms * instance.policy.part_of_slo * (1 + LOOSE)
        kept = rule or instance.policy.rule_for(instance.workloads[group.members[0]])
        for number, name in enumerate(group.models):
            if name not in grids:
                continue
            grid = grids[name]
            batch, load_ms, after_ms = grid.batch[0], grid.load_ms[0], grid.after_ms[0]
            bends = [kept.bends(int(size), float(load), budget_ms) for size, load in zip(batch, load_ms, strict=True)]
            room_ms = np.array([one.hold_ms[-1] if len(one.hold_ms) else -np.inf for one in bends])
            if group.most == 1 and throughput:  # its replica carries the whole rate
                room_ms = np.minimum(room_ms, kept.room_ms(batch, np.float64(group.rate_rps), load_ms, budget_ms)
                                     * (1 + LOOSE))
            points = every_point(number, grid, len(lines))
            points |= {"group": np.full(len(points["batch"]), at), "line": points["size"],
                       "room_ms": (room_ms - after_ms)[points["batch"] - 1], "after_ms": after_ms[points["batch"] - 1]}
            columns.append({name: values[points["alone_ms"] <= points["room_ms"]] for name, values in points.items()})
            lines += [(one.hold_ms, 1000 / one.rps) for one in bends]
    asked = [group.asked_rps for group in groups]
    most_rps = np.full(len(groups), MOST_RPS) if throughput else np.minimum(asked, [group.cap_rps for group in groups])
    members = np.array([len(group.members) for group in groups])
    every = records(RATE_POINT, *columns)
    together = np.stack([_most_together(every.units, demand, limit, most) for demand in (every.cache, every.power_w)])
    return RatePoints(every, records(RATED_GROUP, {
        "most_rps": most_rps * (1 + LOOSE), "total_rps": most_rps * members * (1 + LOOSE),
        "least_rps": np.array([rate * (1 - MISSING) if group.most == 1 else 0.0
                               for rate, group in zip(asked, groups, strict=True)]),
        "copies": np.minimum([group.most * len(group.members) for group in groups], most)}),
        _bends(lines), together, gpu, limit, most)


def _bends(lines: Sequence[tuple[Floats, Floats]]) -> Floats:
    """(lines, 2, bends) the bends of all lines, infinite beyond the last bend of each line."""
    width = max((len(hold_ms) for hold_ms, _ in lines), default=0) + 1
    filled = np.full((max(len(lines), 1), 2, width), np.inf)
    for at, line in enumerate(lines):
        filled[at, :, : len(line[0])] = line
    return filled


def _most_together(units: Ints, demand: Floats, limit: int, most: int) -> Floats:
    """(counts,) an upper bound on the total demand of 0, 1, ... points that fit the units of the GPU together."""
    of_units = np.full(limit + 1, -np.inf)
    np.maximum.at(of_units, units, demand)
    own = np.arange(limit + 1)
    rest = own[:, None] - own
    together, found = np.zeros(limit + 1), [0.0]
    for _ in range(most):
        together = np.where(rest >= 0, together[rest] + of_units, -np.inf).max(axis=1)
        found.append(together[limit])
    return np.array(found) * (1 + SLIGHT) + SLIGHT


@inner
def gpu_ms(points: RatePoints, here: Record, count: int, cache: float, power_w: float, rounded: float) -> float:
    """The time of a batch on the GPU, in ms, among ``count`` replicas with the total demands ``cache`` and ``power_w``.

    It is rounded as in ``busy_ms``, and infinite if no clock remains.
    """
    others, beside_w = max(cache - here.cache, 0.0), max(power_w - here.power_w, 0.0)
    clock = clock_at(points.gpu, beside_w + here.power_w)
    return busy_ms(points.gpu, here, count, others, beside_w, rounded) / clock if clock > 0 else np.inf


@inner
def steps_to(ascending: Floats, value: float) -> int:
    """The number of entries that are at most a value (``np.searchsorted(..., side="right")``, which compiles
    slowly).
    """
    least, end = 0, len(ascending)
    while least < end:
        middle = (least + end) // 2
        if ascending[middle] <= value:
            least = middle + 1
        else:
            end = middle
    return least


@inner
def carried_rps(points: RatePoints, at: int, busy: float) -> float:
    """The requests/s of a point whose batches take ``busy`` ms on the GPU; 0 if that violates its SLO."""
    here = points.at[at]
    if busy > here.room_ms:
        return 0.0
    hold, bends, each = busy + here.after_ms, points.bends[here.line, 0], points.bends[here.line, 1]
    bend = steps_to(bends, hold)
    if bend == len(bends) or bends[bend] == np.inf:
        bend -= 1
    if bend == 0:
        return 1000 * bends[0] / (each[0] * hold)
    part = min((hold - bends[bend - 1]) / max(bends[bend] - bends[bend - 1], 1e-300), 1.0)
    return 1000 / (each[bend - 1] + part * (each[bend] - each[bend - 1]))


@compiled
def together_rps(points: RatePoints, members: Ints) -> Floats:
    """(patterns, places) the requests/s of each replica that count for its group, by the looser limits of bounds.

    ``members`` (patterns, places) are the indices of operating points, negative at empty places.
    """
    found = np.zeros(members.shape)
    for row in range(len(members)):
        count, cache, power_w = 0, 0.0, 0.0
        for at in members[row]:
            if at >= 0:
                count, cache, power_w = count + 1, cache + points.at[at].cache, power_w + points.at[at].power_w
        for place in range(members.shape[1]):
            at = members[row, place]
            if at >= 0:
                carried = carried_rps(points, at, gpu_ms(points, points.at[at], count, cache, power_w, -ROUNDED))
                found[row, place] = min(carried, points.groups[points.at[at].group].most_rps)
    return found


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
    """Divide units among replicas in all ways, (divisions, replicas). Units come in steps, the smallest that give no
    more than ``most`` divisions; the last replica gets the rest.
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
