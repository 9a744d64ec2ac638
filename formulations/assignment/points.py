"""Operating points of replicas that share whole GPUs by iGniter's model, and rows by which they keep their deadlines.

A point is a batch size, units of the SMs, and a *level*: the range of times for which a batch may hold its process
beside all neighbours. The longest time of the level is the point's deadline, which rows keep; the shortest time tells
the most requests/s that the point carries. So rows are exact where a replica must carry its workload's whole rate (one
level), and a relaxation elsewhere, which is refined where a solution claims more than its replicas carry (``edges``).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.linear.description import Description
from provision.formulations.pricing.mps.laws import slowed_ms
from provision.formulations.pricing.mps.rate_points import RatePoints, rate_points
from provision.formulations.pricing.oracle import Running, replica_of
from provision.formulations.pricing.rates import undominated
from provision.formulations.search.problem import Problem
from provision.models.base.arrays import Floats, Ints, Records
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.igniter import IgniterProfiles
from provision.models.performance.shared_gpus import share_of_units
from provision.models.plans.plan import Replica
from provision.models.problem.workload import FleetEntry

Edges = Mapping[Replica, set[float]]
"""Further ends of levels, in ms on the GPU, by how a replica runs."""


class Points(NamedTuple):
    """Operating points on whole GPUs of one fleet entry by one data file; arrays are (points,).

    Attributes
    ----------
    at
        Records RATE_POINT: batch size, units, and the terms of interference.
    limits
        The RatePoints that the points were chosen from, with the limits of the GPU and of the groups.
    workload, run
        The indices of workloads, and the replicas, without rates.
    memory
        The parts of the GPU's memory, 0 where they are not known.
    room_ms
        The longest times for which a batch may be on the GPU.
    rps, part
        The most requests/s that the points carry, and the fractions of planned rates that they are, at most 1.
    most
        The most replicas at a point that are of use on one GPU.
    """

    at: Records
    limits: RatePoints
    workload: Ints
    run: NDArray[Any]
    memory: Floats
    room_ms: Floats
    rps: Floats
    part: Floats
    most: Ints

    def only(self, rows: Ints) -> "Points":
        """The points with the given indices."""
        arrays: dict[str, Any] = {name: getattr(self, name)[rows] for name in self._fields if name != "limits"}
        return self._replace(**arrays)

    def undominated(self, *features: Floats | Ints) -> "Points":
        """The points that no other one of the same workload and model equals or exceeds in all ``features``, each
        (points,). Of equal points one is kept.
        """
        table, of = np.column_stack(features).astype(float), np.stack([self.workload, self.at.model])
        mine = [np.flatnonzero((of == one[:, None]).all(axis=0)) for one in np.unique(of, axis=1).T]
        return self.only(np.concatenate([rows[undominated(table[rows], most=len(rows))] for rows in mine]))

    def tolerance(self) -> Floats:
        """(points, 2) two numbers of each point. If neither is less than another point's of the same model, the point
        keeps its deadline beside all neighbours beside which the other does.

        With D the deadline, A the active time, S the scheduling time and s the sensitivity to the L2 cache, they are
        D - S - A and (D - S - A) / (s A). Proof: beside neighbours that leave the clock f/F, a point is feasible when
        x + A y <= D, where x >= S is its scheduling time and y >= 1 its cache factor, both divided by the clock; x and
        y are the same functions of the neighbours for all points of a model. The pairs (x, y) that a point tolerates
        form a triangle with the corners (S, 1), (D - A, 1) and (S, (D - S) / A). S and s are those of the model.
        """
        left_ms, cache_ms = self.room_ms - self.at.base_ms, self.at.cache_ms
        return np.column_stack([left_ms, left_ms / np.where(cache_ms > 0, cache_ms, 1)])


def points_of(problem: Problem, entry: FleetEntry, data: IgniterProfiles, edges: Edges) -> Points | None:
    """The points that no other point dominates; None if there are none. Each group has one workload."""
    instance, groups = problem.instance, problem.groups
    limits = rate_points(instance, data, groups)
    at, gpu = limits.at, limits.gpu[0]
    of = np.array([one.members[0] for one in groups], int)
    unit = float(gpu.unit_share)
    every = np.array([replica_of(instance, w, Running(model, batch, 1, share_of_units(unit, units)), 0.0)
                      for w, model, batch, units in zip(*(column.tolist() for column in (
                          of[at.group], at.model, at.batch, at.units.astype(float))), strict=True)], object)
    kept, high_ms, rps = list[int](), list[float](), list[float]()
    for point, first in enumerate(slowed_ms(gpu, at.base_ms, at.power_w).tolist()):
        line, after_ms, least_rps = at.line[point], at.after_ms[point], limits.groups[at.group[point]].least_rps
        hold_ms, each_ms = (np.append(0.0, row[np.isfinite(row)]) for row in limits.bends[line])
        last = float(at.room_ms[point])
        if least_rps > 0:
            last = min(last, float(np.interp(1000 / least_rps, each_ms, hold_ms) - after_ms))
        if first <= last:
            ends = [first, *sorted(one for one in edges.get(every[point], ()) if first < one < last), last]
            kept += [point] * (len(ends) - 1)
            high_ms += ends[1:]
            rps += (1000 / np.interp(np.array(ends[:-1]) + after_ms, hold_ms, each_ms)).tolist()
    if not kept:
        return None
    table = Points(at, limits, of[at.group], every, *np.zeros((5, len(every)))).only(np.array(kept))
    at, group = table.at, table.at.group
    asked_rps, share, least = np.array([(one.asked_rps, min(one.cap_rps / one.asked_rps, 1.0), max(one.least, 1))
                                        for one in groups])[group].T
    part = np.minimum(np.array(rps) / asked_rps, share)
    most = np.minimum(limits.limit // at.units, limits.groups.copies[group])
    if not problem.fills:
        most = np.minimum(most, np.maximum(np.ceil(share / part * (1 - TOLERANCE)), least).astype(int))
    gib = [data.stated[instance.model_of(one)].memory_gib(one.batch) or 0.0 for one in table.run]
    table = table._replace(memory=np.array(gib) / entry.type.memory_gib, room_ms=np.array(high_ms), rps=np.array(rps),
                           part=part, most=most)
    return table.undominated(-at.units, -table.memory, -at.cache, -at.power_w, table.tolerance(), part,
                             table.rps * problem.fills)


def keep_deadlines(program: Description, name: str, points: Points, x: Sequence[int], taken: Sequence[int]) -> None:
    """Add the rows of the replicas on one GPU (eqs. 1-11), which are exact: deadlines multiplied by clock / deadline.

    ``name`` is a name for the GPU. ``x`` and ``taken`` are for each point the variable of its number of replicas, and
    the one that is 1 if there are any. Levels of what slows replicas (neighbours, L2 utilisation, power above the cap)
    have only lower rows: a level above the true amount only makes other rows harder to keep.
    """
    at, gpu, room_ms = points.at, points.limits.gpu[0], points.room_ms
    others = program.level(f"others_{name}", [(1.0, one) for one in x], 1, points.limits.most)
    shared = program.whole(f"shared_{name}", 1)  # whether a replica has neighbours
    program.at_most([(1.0, others), (-(points.limits.most - 1), shared)], 0)
    program.at_most([(2.0, shared), *((-1.0, one) for one in x)], 0)
    cache = program.level(f"cache_{name}", list(zip(at.cache.tolist(), x, strict=True)), 0, _fullest(points, at.cache))
    power, left = at.power_w / gpu.cap_w, 1 - gpu.idle_w / gpu.cap_w
    excess = program.level(f"excess_{name}", list(zip(power.tolist(), x, strict=True)), left,
                           max(_fullest(points, power) - left, 0.0))
    per_neighbour = at.kernels * gpu.delay_slope_ms / room_ms
    per_sharing = at.kernels * (gpu.delay_slope_ms + gpu.delay_intercept_ms) / room_ms
    per_cache = at.cache_ms / room_ms
    room = 1 - at.base_ms / room_ms + per_cache * at.cache  # not its own
    for point, when in enumerate(taken):
        program.at_most([(per_neighbour[point], others), (per_sharing[point], shared), (per_cache[point], cache),
                         (gpu.clock_loss * gpu.cap_w, excess)], room[point], when)


def _fullest(points: Points, demand: Floats) -> float:
    """What no sum of a demand within the units of a GPU exceeds."""
    return float((demand / points.at.units).max(initial=0.0)) * points.limits.limit
