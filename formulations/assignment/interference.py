"""Linear rows of interference: the replicas on a GPU keep their deadlines beside each other.

Levels of what slows replicas (neighbours, L2 utilisation, power above the cap, demands) have only lower rows: a level
above the true amount only makes other rows harder to keep.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from provision.formulations.assignment.description import Description
from provision.formulations.assignment.points import Points, per_norm
from provision.models.base.arrays import Floats
from provision.models.base.tolerances import LOOSE, RELAXED
from provision.models.performance.colocation import Colocation

SEGMENTS, RATIO = 6, 2.0
"""The segments of a sum of demands, each with its chord of the norm, and the ratio of their successive ends."""


def keep_deadlines(program: Description, name: str, points: Points, x: Sequence[int], taken: Sequence[int]) -> None:
    """Add the rows of the replicas on one GPU.

    Parameters
    ----------
    program, name
        The program, and a name for the GPU.
    points
        The operating points.
    x, taken
        For each point the variable of its number of replicas, and the one that is 1 if there are any.
    """
    if isinstance(points.data, Colocation):
        _keep_colocated(program, name, points, x, taken)
    else:
        _keep_igniter(program, name, points, x, taken)


def _keep_igniter(program: Description, name: str, points: Points, x: Sequence[int], taken: Sequence[int]) -> None:
    """Add the rows of iGniter's model (eqs. 1-11), which are exact: deadlines multiplied by clock / deadline.
    """
    hardware, terms = points.data.hardware, points.terms
    deadline_ms = points.room_ms - terms.feedback_ms
    others = _level(program, f"others_{name}", [(1.0, one) for one in x], 1, points.clients)
    shared = program.whole(f"shared_{name}", 1)  # whether a replica has neighbours
    program.at_most([(1.0, others), (-(points.clients - 1), shared)], 0)
    program.at_most([(2.0, shared), *((-1.0, one) for one in x)], 0)
    cache = _level(program, f"cache_{name}", list(zip(terms.cache.tolist(), x, strict=True)), 0,
                   _fullest(points, terms.cache))
    power, left = terms.power_w / hardware.power_cap_w, 1 - hardware.idle_power_w / hardware.power_cap_w
    excess = _level(program, f"excess_{name}", list(zip(power.tolist(), x, strict=True)), left,
                    max(_fullest(points, power) - left, 0.0))
    per_neighbour = terms.kernels * hardware.scheduling_slope_ms / deadline_ms
    per_sharing = terms.kernels * hardware.extra_delay_ms(2) / deadline_ms - per_neighbour
    per_cache = terms.active_ms * terms.cache_sensitivity / deadline_ms
    per_excess = -hardware.clock_slope_mhz_per_w * hardware.power_cap_w / hardware.max_clock_mhz
    room = 1 - (terms.scheduling_ms + terms.active_ms) / deadline_ms + per_cache * terms.cache  # not its own
    for at, when in enumerate(taken):
        program.at_most([(per_neighbour[at], others), (per_sharing[at], shared), (per_cache[at], cache),
                         (per_excess, excess)], room[at], when)


def _keep_colocated(program: Description, name: str, points: Points, x: Sequence[int], taken: Sequence[int]) -> None:
    """Add the rows of the co-location model, which are linear in norms of the neighbours' demands.

    With S the sum of the neighbours' demands of a resource, a replica feels the norm S^(1/r). The range of S is
    divided into segments; binary variables choose the one in which S lies, and there the chord of the root, which lies
    below it, bounds the norm. So the rows exclude no plan. Neighbours of the same workload count beyond their points'
    demands, once each.
    """
    felt, demands = per_norm(points), points.demand.T
    most = [_fullest(points, demand) for demand in demands]
    totals = [_level(program, f"demand_{name}_{k}", list(zip(demand.tolist(), x, strict=True)), 0, most[k])
              for k, demand in enumerate(demands)]
    for w in np.unique(points.workload).tolist():
        mine = np.flatnonzero(points.workload == w).tolist()
        norms = []
        for k, total in enumerate(totals):
            own = [(-float(demands[k, at]), taken[at]) for at in mine]
            others = _level(program, f"others_{name}_{w}_{k}", [(1.0, total), *own], 0, most[k])
            norms.append(_norm(program, f"{name}_{w}_{k}", others, most[k], points.data.norm_order))
        for at in mine:
            largest = max(1.0, float(felt[at].max()))
            program.at_most([(float(per) / largest, norm) for per, norm in zip(felt[at], norms, strict=True)],
                            (1 + LOOSE) / largest, taken[at])


def _norm(program: Description, name: str, others: int, most: float, order: float) -> int:
    """A variable that is at least a chord of the norm of ``others``, which are at most ``most``."""
    norm = program.amount(f"norm_{name}", most ** (1 / order))
    ends = [0.0, *(most / RATIO**step for step in range(SEGMENTS - 1, -1, -1))]
    here = [program.whole(f"segment_{name}_{at}", 1) for at in range(SEGMENTS)]
    program.at_most([(-1.0, one) for one in here], -1)
    for one, (low, high) in zip(here, pairwise(ends), strict=True):
        if high > low:
            slope = (high ** (1 / order) - low ** (1 / order)) / (high - low)
            program.at_most([(1.0, others)], high * (1 + RELAXED), one)
            program.at_most([(slope, others), (-1.0, norm)], slope * low - low ** (1 / order), one)
    return norm


def _level(program: Description, name: str, terms: Sequence[tuple[float, int]], beyond: float, most: float) -> int:
    """An amount that is at least ``terms - beyond``, and at most ``most``."""
    level = program.amount(name, most * (1 + RELAXED))
    program.at_most([*terms, (-1.0, level)], beyond)
    return level


def _fullest(points: Points, demand: Floats) -> float:
    """The largest sum of a demand within the units of a GPU, by any replicas: an unbounded knapsack."""
    best, densest = np.zeros((2, points.limit + 1))
    np.maximum.at(densest, points.units, demand)
    for units in range(1, points.limit + 1):
        best[units] = max(best[units - own] + densest[own] for own in range(1, units + 1))
    return float(best.max(initial=0.0))
