"""Adds the rows of the co-location model: for deadlines, which are linear in norms, and for norms, which depend on sums
of demands.

With S the sum of the neighbours' demands of a resource (to the power r of the norm), a replica feels the norm N =
S^(1/r). A deadline is linear in the norms of all resources. The range of S is divided into segments; for every workload
and resource, binary variables choose the segment in which S lies. In each segment a linear row bounds N from below: for
bounds by a chord of the root, for plans by a tangent. Chords are below the root in their segment, so the rows for
bounds exclude no plan. Tangents are above the root everywhere, so the rows for plans admit only feasible plans.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from provision.formulations.assignment.colocated_points import ColocatedPoints
from provision.formulations.assignment.gpus import Level, LinearTerms, Program, Variable

SEGMENTS, RATIO = 6, 2.0
"""The number of segments of a sum of demands, from 0 on, and the ratio of the ends of successive segments."""

Chosen = Mapping[int, tuple[ColocatedPoints, Sequence[Variable]]]
"""The Points of the workloads that a GPU may hold, and the variables that choose them."""


def tolerate_demands(program: Program, name: str, mine: Chosen) -> None:
    """Add rows: every chosen point meets its deadline in spite of the other points on the same GPU. Names of variables
    begin with ``name``, which stands for the GPU.
    """
    if not mine:
        return
    points, _ = next(iter(mine.values()))
    totals = [_total(program, f"{name}_{k}", mine, k) for k in range(len(points.demand))]
    for w, (points, chosen) in mine.items():
        norms = [_norm(program, f"{name}_{w}_{k}", total, points.norm_order, _demands(points, chosen, k))
                 for k, total in enumerate(totals)]
        for o, x in enumerate(chosen):
            program.at_most([(float(points.per_norm[k, o]) * unit, level) for k, (unit, level) in enumerate(norms)], 1,
                            when=x)


class _Total(NamedTuple):
    """The sum of a GPU's demands of a resource, and the most that it can be."""

    level: Level
    most: float


def _total(program: Program, name: str, mine: Chosen, k: int) -> _Total:
    most = sum(float(points.demand[k].max()) for points, _ in mine.values())
    terms = [term for points, chosen in mine.values() for term in _demands(points, chosen, k)]
    return _Total(program.level(f"demand_{name}", terms, 0, most), most)


def _demands(points: ColocatedPoints, chosen: Sequence[Variable], k: int) -> LinearTerms:
    """The demand of a workload for resource ``k``, as linear terms."""
    return [(float(demand), x) for demand, x in zip(points.demand[k], chosen, strict=True)]


def _norm(program: Program, name: str, total: _Total, order: float, own: LinearTerms) -> Level:
    """A variable for the norm that a workload feels from its neighbours, with the rows that bound it from below.

    For plans it is at least the norm; for bounds at least a chord of the norm, which is lower. ``total`` is the sum of
    all demands on the GPU, ``own`` the workload's own demand.
    """
    if not total.most:
        return program.level(f"norm_{name}", [], 0, 0)
    unit, level = total.level
    others = program.level(f"others_{name}", [(unit, level), *((-demand, x) for demand, x in own)], 0, total.most)
    norm = program.level(f"norm_{name}", [], 0, 2 * total.most ** (1 / order))
    ends = [0.0, *(total.most / RATIO**step for step in range(SEGMENTS - 1, -1, -1))]
    here = [program.whole(f"segment_{name}_{s}", 1) for s in range(SEGMENTS)]
    program.exactly([(1, one) for one in here], 1)
    for one, (low, high) in zip(here, pairwise(ends), strict=True):
        program.at_most([others], high, when=one)
        slope, offset = _line(low, high, 1 / order, program.safe)
        program.at_most([(slope * others[0], others[1]), (-norm[0], norm[1])], -offset, when=one)
    return norm


def _line(low: float, high: float, root: float, safe: bool) -> tuple[float, float]:
    """The slope and the offset of a chord of the root over a segment or, if ``safe``, of a tangent in the middle of the
    segment.
    """
    if not safe:
        slope = (high**root - low**root) / (high - low)
        return slope, low**root - slope * low
    at = (low + high) / 2
    slope = root * at ** (root - 1)
    return slope, at**root - slope * at

