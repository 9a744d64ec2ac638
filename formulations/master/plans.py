"""Turns a whole-number solution of the master program into a plan, and a plan into columns of the program."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from provision.formulations.master.columns import PatternColumns
from provision.formulations.pricing.oracle import Pattern, PatternOracle, Running, oracles_of, replica_of
from provision.formulations.pricing.rate_oracles import running_alone
from provision.formulations.search.assemble import assemble, deal
from provision.formulations.search.problem import Problem
from provision.formulations.search.roles import serving
from provision.models.base.arrays import Ints
from provision.models.plans.plan import Plan, Replica
from provision.models.problem.kept_columns import SliceKey

RunningSlice = tuple[int, tuple[Replica, ...]]
"""A slice type, and the replicas that run on a slice of it."""


class _Use(NamedTuple):
    """A replica of a workload: the row of the places that it needs, and its rate (requests/s)."""

    workload: int
    row: int
    rate_rps: float


def plan_of(problem: Problem, partitions: Sequence[Ints], slices: Sequence[RunningSlice], method: str) -> Plan | None:
    """The plan of a solution; None if the fleet is too small.

    Parameters
    ----------
    problem
        The Problem that was solved.
    partitions
        For each pool, (partitions,) the number of GPUs with each partition.
    slices
        What runs on the slices; those that are not listed stay empty.
    method
        The name to write into the plan.
    """
    if any(pool.count is not None and many.sum() > pool.count
           for pool, many in zip(problem.pools, partitions, strict=True)):
        return None
    rows = np.eye(len(problem.segments.slice_types), dtype=int)[[slice_type for slice_type, _ in slices]]
    alone = np.zeros((len(problem.instance.workloads), rows.shape[1]), int)
    layouts = deal(problem.instance, problem.segments, problem.partitions, np.concatenate(partitions),
                   np.concatenate([alone, rows]))
    if layouts is None:
        return None
    return assemble(problem.instance, problem.segments, layouts, method, [held for _, held in slices])


def slice_keys(problem: Problem) -> list[SliceKey]:
    """(slice types,) their names."""
    fleet = problem.instance.fleet
    return [(fleet[one.entry].gpu, fleet[one.entry].partitioned, one.profile) for one in problem.segments.slice_types]


def slices_of(problem: Problem, plan: Plan) -> Iterator[RunningSlice]:
    """Yield the slice type (-1 for none of the Problem's) and the replicas of every slice of a plan."""
    slice_types = {key: at for at, key in reversed(list(enumerate(slice_keys(problem))))}
    for gpu in plan.gpus:
        for piece in gpu.slices:
            yield slice_types.get((gpu.gpu, gpu.mig, piece.profile), -1), piece.replicas


def add_plan(columns: PatternColumns, plan: Plan) -> None:
    """Add the patterns of a plan to the columns, as far as they are valid for whole workloads."""
    problem = columns.problem
    row_of = {problem.instance.workloads[member].name: row for group, row in zip(
        problem.groups, columns.row_of, strict=True) for member in group.members}
    for slice_type, replicas in slices_of(problem, plan):
        oracles = oracles_of(problem).get(slice_type, [])
        pattern = tuple(sorted(row_of.get(one.workload, len(problem.roles)) for one in replicas))
        if pattern and pattern[-1] < len(problem.roles) and _first(oracles, pattern) is not None:
            columns.add(slice_type, [pattern])


def role_slices(columns: PatternColumns, patterns: Mapping[tuple[int, Pattern], int]) -> list[RunningSlice]:
    """Give the places of patterns, each with the number of its uses, to workloads. Slices without replicas are left
    out.
    """
    problem = columns.problem
    uses = [_Use(member, row, group.rate_rps) for group, row in zip(problem.groups, columns.row_of, strict=True)
            for member in group.members]
    every = [one for one, many in patterns.items() for _ in range(many)]
    takers = _takers(problem, Counter(row for _, pattern in every for row in pattern), uses)
    found = list[RunningSlice]()
    for slice_type, pattern in every:
        taken: list[_Use | None] = []
        for row in pattern:
            taken.append(_next(takers.get(row, []), taken))
        if replicas := _running(columns, slice_type, pattern, taken):
            found.append((slice_type, replicas))
    return found


def _next(waiting: list[_Use], beside: list[_Use | None]) -> _Use | None:
    """Remove and return the next use of a role, preferably of a workload that has no replica on the same slice yet."""
    here = {use.workload for use in beside if use is not None}
    for at in range(len(waiting) - 1, max(len(waiting) - 50, 0) - 1, -1):
        if waiting[at].workload not in here:
            return waiting.pop(at)
    return waiting.pop() if waiting else None


def _takers(problem: Problem, offered: Counter[int], uses: list[_Use]) -> dict[int, list[_Use]]:
    """For each row, the replicas that take its places: a maximum flow from places to replicas along the dominance order
    of roles. Replicas whose row is of no role take only their own places.
    """
    asked: defaultdict[int, list[_Use]] = defaultdict(list)
    for use in uses:
        asked[use.row].append(use)
    own = [row for row in asked if row >= len(problem.roles)]
    found = {row: asked.pop(row) for row in own}
    places, wants = sorted(row for row in offered if row < len(problem.roles)), sorted(asked)
    if not wants:
        return found
    serves = serving([problem.roles[at] for at in places], [problem.roles[at] for at in wants])
    source, sink = len(places) + len(wants), len(places) + len(wants) + 1
    rows, columns = np.nonzero(serves)
    capacity = np.concatenate([np.minimum([offered[places[at]] for at in rows],
                                          [len(asked[wants[at]]) for at in columns]),
                               [offered[at] for at in places], [len(asked[at]) for at in wants]]).astype(np.int32)
    start = np.concatenate([rows, np.full(len(places), source), len(places) + np.arange(len(wants))])
    end = np.concatenate([len(places) + columns, np.arange(len(places)), np.full(len(wants), sink)])
    flow = maximum_flow(csr_array((capacity, (start, end)), (sink + 1, sink + 1)), source, sink).flow.tocoo()
    for at, to, many in zip(flow.row.tolist(), flow.col.tolist(), flow.data.tolist(), strict=True):
        if many > 0 and at < len(places) and to < source:
            found.setdefault(places[at], []).extend(asked[wants[to - len(places)]].pop() for _ in range(int(many)))
    return found


def _running(columns: PatternColumns, slice_type: int, pattern: Pattern, taken: list[_Use | None]
             ) -> tuple[Replica, ...]:
    """The replicas of a pattern, for the uses that take its places.

    First the operating points are those of the roles that the uses ask for. If these roles are not valid together, the
    operating points are those of the pattern's own roles.
    """
    problem, used = columns.problem, [use for use in taken if use is not None]
    if not used:
        return ()
    used.sort(key=lambda use: use.row)
    if len(pattern) == 1 and columns.alone[pattern[0], slice_type]:
        runs: list[Running] | None = [running_alone(problem, used[0].workload, slice_type)]
    else:
        runs = _first(oracles_of(problem)[slice_type], tuple(use.row for use in used))
    if runs is None:
        pairs = zip(_first(oracles_of(problem)[slice_type], pattern) or (), taken, strict=True)
        runs, used = map(list, zip(*((run, use) for run, use in pairs if use is not None), strict=True))
    return tuple(replica_of(problem.instance, use.workload, run, use.rate_rps)
                 for use, run in zip(used, runs, strict=True))


def _first(oracles: list[PatternOracle], pattern: Pattern) -> list[Running] | None:
    """The operating points of a pattern, from the first oracle that finds some; None if no oracle does."""
    return next((found for oracle in oracles if (found := oracle.running(pattern)) is not None), None)
