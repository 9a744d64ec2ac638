"""Turns a whole-number solution of the master program into a plan, and a plan back into the columns that it uses."""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from provision.formulations.master.role_columns import Chosen, ReplicaSet, RoleColumns
from provision.formulations.pricing.alone.assemble import Layout, assemble
from provision.formulations.pricing.alone.deal import deal
from provision.formulations.pricing.oracle import Pattern, PatternOracle, Running
from provision.formulations.pricing.register import oracles_of
from provision.formulations.search.problem import Problem
from provision.formulations.search.roles import serving
from provision.models.base.tolerances import DUST, TOLERANCE
from provision.models.plans.plan import Plan, Replica, Slice
from provision.models.problem.instance import Instance


class _Use(NamedTuple):
    """One replica that a replica set needs on a shared slice: the workload, the role, and the rate that is routed to
    it.
    """

    workload: int
    role: int
    rate_rps: float


def plan_of(problem: Problem, chosen: Chosen, forced: dict[int, int], method: str) -> Plan | None:
    """The plan of a solution. It is None if the fleet is too small, or if a GPU would carry more than its allowed share
    of a workload.

    Parameters
    ----------
    problem
        The Problem that was solved.
    chosen
        Its solution.
    forced
        The role of each group whose workloads have one replica each, by group.
    method
        The name to write into the plan.
    """
    gpus = [int(many.sum()) for many in chosen.partitions]
    if any(pool.count is not None and many > pool.count
           for pool, many in zip(problem.pools, gpus, strict=True)):
        return None
    alone, uses = _replicas(problem, chosen, forced)
    slices = list(_slices(problem, chosen, uses))
    rows = np.zeros((len(slices), alone.shape[1]), int)
    for at, (slice_type, _) in enumerate(slices):
        rows[at, slice_type] = 1
    layouts = dealt(problem, chosen.partitions, np.concatenate([alone, rows]))
    if layouts is None:
        return None
    plan = assemble(problem.instance, problem.segments, layouts, method, [replicas for _, replicas in slices])
    return plan if _shares_kept(problem, plan) else None


def dealt(problem: Problem, partitions: Sequence[NDArray[np.int64]], rows: NDArray[np.int64]) -> list[Layout] | None:
    """The GPUs of the chosen partitions, each with its segments; None if the fleet has too few GPUs.

    Parameters
    ----------
    problem
        The Problem that was solved.
    partitions
        For each pool, (partitions,) the number of GPUs with each partition.
    rows
        (rows, slice types) the number of slices: a row of segments for each workload, then a row for each shared slice.
    """
    return deal(problem.instance, problem.segments, problem.partitions, np.concatenate(partitions), rows)


class Standing(NamedTuple):
    """The columns that a plan uses.

    Attributes
    ----------
    gpus
        (GPUs,) slice types and valid patterns of the shared slices of each GPU.
    holds
        (GPUs,) whether all patterns of a GPU are valid.
    replica_sets
        The replica set of each workload, by name, unless it does not carry the rate.
    """

    gpus: list[list[tuple[int, Pattern]]]
    holds: list[bool]
    replica_sets: dict[str, ReplicaSet]


def standing(problem: Problem, plan: Plan) -> Standing:
    """The columns that a plan uses, as far as the Problem's roles can express them."""
    known, slice_types = _Known(problem), len(problem.segments.slice_types)
    uses: defaultdict[str, Counter[int]] = defaultdict(Counter)
    gpus: list[list[tuple[int, Pattern]]] = []
    holds: list[bool] = []
    for gpu in plan.gpus:
        shared: list[tuple[int, Pattern]] = []
        valid = True
        for piece in gpu.slices:
            slice_type = known.slice_types.get((gpu.gpu, gpu.mig, piece.profile), -1)
            pattern = known.pattern(piece) if slice_type in oracles_of(problem) else ()
            if pattern:
                row = tuple(sorted(pattern))
                if _first(oracles_of(problem)[slice_type], row) is not None:
                    shared.append((slice_type, row))
                else:
                    valid = False
                for one, role in zip(piece.replicas, pattern, strict=True):
                    uses[one.workload][slice_types + role] += 1
            elif len(piece.replicas) == 1 and slice_type >= 0:
                uses[piece.replicas[0].workload][slice_type] += 1
            elif piece.replicas:
                valid = False
        gpus.append(shared)
        holds.append(valid)
    sets = {name: ReplicaSet(known.group_of[name], tuple(sorted(rows.items()))) for name, rows in uses.items()
            if name in known.group_of}
    return Standing(gpus, holds, {name: one for name, one in sets.items() if carries(problem, one.group, one.uses)})


def add_plan(program: RoleColumns, problem: Problem, plan: Plan) -> Standing:
    """Add the patterns and replica sets of a plan to a program; return them."""
    found = standing(problem, plan)
    for gpu in found.gpus:
        for slice_type, pattern in gpu:
            program.add_patterns(slice_type, [pattern])
    for one in found.replica_sets.values():
        if program.wanted[one.group]:
            program.add_replica_set(one, strict=True)
    return found


class _Known:
    """Maps the parts of plans to a Problem's indices: slice types, groups, and the roles of each class by ascending
    rate.
    """

    def __init__(self, problem: Problem) -> None:
        self.groups, fleet = problem.groups, problem.instance.fleet
        self.slice_types = {(fleet[one.entry].gpu, fleet[one.entry].partitioned, one.profile): at
                            for at, one in reversed(list(enumerate(problem.segments.slice_types)))}
        self.group_of = {problem.instance.workloads[member].name: at for at, group in enumerate(problem.groups)
                         for member in group.members}
        self.by_class: defaultdict[object, list[tuple[float, int]]] = defaultdict(list)
        for number, role in enumerate(problem.roles):
            insort(self.by_class[role.workload_class], (role.rate_rps, number))

    def pattern(self, piece: Slice) -> tuple[int, ...]:
        """For each replica of a slice the easiest role that carries its rate; empty if some replica has no such role.
        """
        groups = [self.group_of.get(one.workload) for one in piece.replicas]
        roles = [None if at is None else _easiest(self.by_class[self.groups[at].workload_class], one.rate_rps)
                 for at, one in zip(groups, piece.replicas, strict=True)]
        found = tuple(role for role in roles if role is not None)
        return found if len(found) == len(roles) else ()


def shared_rates(instance: Instance, plan: Plan) -> dict[tuple[tuple[str, ...], float], frozenset[float]]:
    """The rates of a plan's replicas on shared slices, in requests/s, by workload class (models and SLO)."""
    found: defaultdict[tuple[tuple[str, ...], float], set[float]] = defaultdict(set)
    for piece in (piece for gpu in plan.gpus for piece in gpu.slices if len(piece.replicas) > 1):
        for one in piece.replicas:
            workload = instance.workload[one.workload]
            found[workload.models, workload.slo_ms].add(one.rate_rps)
    return {one: frozenset(rates) for one, rates in found.items()}


def carries(problem: Problem, at: int, uses: tuple[tuple[int, int], ...]) -> bool:
    """Whether a replica set carries the rate of a group within its replica limits."""
    group, number = problem.groups[at], sum(many for _, many in uses)
    return group.least <= number <= group.most and _credit(problem, at, uses) >= group.rate_rps * (1 - 2 * DUST)


def _easiest(roles: Sequence[tuple[float, int]], rate_rps: float) -> int | None:
    """The easiest role that carries ``rate_rps``; None if there is none. ``roles`` are (rate, role) pairs, ascending.
    """
    at = bisect_left(roles, (rate_rps * (1 - DUST), -1))
    return roles[at][1] if at < len(roles) else None


def _replicas(problem: Problem, chosen: Chosen, forced: dict[int, int]) -> tuple[NDArray[np.int64], list[_Use]]:
    """Assign the chosen replica sets to workloads.

    Returns the numbers of replicas that have a slice to themselves, (workloads, slice types), and a list of the
    replicas that need places on shared slices.
    """
    slice_types = len(problem.segments.slice_types)
    alone, uses = np.zeros((len(problem.instance.workloads), slice_types), int), []
    waiting = [list(group.members) for group in problem.groups]
    for at, role in forced.items():
        uses += [_Use(member, role, problem.planned_rps(member)) for member in waiting[at]]
        waiting[at] = []
    for replica_set, many in chosen.replica_sets.items():
        group = problem.groups[replica_set.group]
        for _ in range(min(many, len(waiting[replica_set.group]))):
            member = waiting[replica_set.group].pop()
            factor = _factor(problem, replica_set, problem.planned_rps(member))
            for row, number in replica_set.uses:
                if row < slice_types:
                    alone[member, row] += number
                else:
                    credit = min(problem.roles[row - slice_types].rate_rps, group.cap_rps)
                    uses += [_Use(member, row - slice_types, credit * factor)] * number
    return alone, uses


def _factor(problem: Problem, replica_set: ReplicaSet, rate_rps: float) -> float:
    """The rate routed to the replicas of a replica set, relative to the rate that they are credited with."""
    total = _credit(problem, replica_set.group, replica_set.uses)
    return min(1.0, rate_rps / total) if total > 0 else 0.0


def _credit(problem: Problem, at: int, uses: tuple[tuple[int, int], ...]) -> float:
    """The requests/s that all replicas of a replica set of group ``at`` may carry in a plan."""
    slice_types, cap_rps = len(problem.segments.slice_types), problem.groups[at].cap_rps
    return sum(number * (float(problem.alone_rps[at, row]) if row < slice_types
                         else min(problem.roles[row - slice_types].rate_rps, cap_rps)) for row, number in uses)


def _slices(problem: Problem, chosen: Chosen, uses: list[_Use]) -> Iterator[tuple[int, tuple[Replica, ...]]]:
    """Yield the slice type and the replicas of every shared slice that has replicas."""
    patterns = [one for one, many in chosen.patterns.items() for _ in range(many)]
    offered = Counter(role for _, pattern in patterns for role in pattern)
    takers = _takers(problem, offered, uses)
    for slice_type, pattern in patterns:
        taken: list[_Use | None] = []
        for role in pattern:
            taken.append(_next(takers.get(role, []), taken))
        replicas = _running(problem, slice_type, pattern, taken)
        if replicas:
            yield slice_type, replicas


def _next(waiting: list[_Use], beside: list[_Use | None]) -> _Use | None:
    """Remove and return the next use of a role, preferably of a workload that has no replica on the same slice yet."""
    here = {use.workload for use in beside if use is not None}
    for at in range(len(waiting) - 1, max(len(waiting) - 50, 0) - 1, -1):
        if waiting[at].workload not in here:
            return waiting.pop(at)
    return waiting.pop() if waiting else None


def _takers(problem: Problem, offered: Counter[int], uses: list[_Use]) -> dict[int, list[_Use]]:
    """For each role, the uses that take its places: a maximum flow from places to uses along the dominance order of
    roles.
    """
    asked: dict[int, list[_Use]] = {}
    for use in uses:
        asked.setdefault(use.role, []).append(use)
    places, wants = sorted(offered), sorted(asked)
    if not wants:
        return {}
    serves = serving([problem.roles[at] for at in places], [problem.roles[at] for at in wants])
    source, sink = len(places) + len(wants), len(places) + len(wants) + 1
    rows, columns = np.nonzero(serves)
    capacity = np.concatenate([np.minimum([offered[places[at]] for at in rows],
                                          [len(asked[wants[at]]) for at in columns]),
                               [offered[at] for at in places], [len(asked[at]) for at in wants]]).astype(np.int32)
    start = np.concatenate([rows, np.full(len(places), source), len(places) + np.arange(len(wants))])
    end = np.concatenate([len(places) + columns, np.arange(len(places)), np.full(len(wants), sink)])
    flow = maximum_flow(csr_array((capacity, (start, end)), (sink + 1, sink + 1)), source, sink).flow.tocoo()
    found: dict[int, list[_Use]] = {}
    for at, to, many in zip(flow.row.tolist(), flow.col.tolist(), flow.data.tolist(), strict=True):
        if many > 0 and at < len(places) and to < source:
            found.setdefault(places[at], []).extend(asked[wants[to - len(places)]].pop() for _ in range(int(many)))
    return found


def _running(problem: Problem, slice_type: int, pattern: Pattern, taken: list[_Use | None]) -> tuple[Replica, ...]:
    """The replicas of a pattern, for the uses that take its places.

    First the operating points are those of the roles that the uses ask for. If these roles are not valid together, the
    operating points are those of the pattern's own roles.
    """
    used = [use for use in taken if use is not None]
    if not used:
        return ()
    used.sort(key=lambda use: use.role)
    runs = _first(oracles_of(problem)[slice_type], tuple(use.role for use in used))
    if runs is None:
        pairs = zip(_first(oracles_of(problem)[slice_type], pattern) or (), taken, strict=True)
        runs, used = map(list, zip(*((run, use) for run, use in pairs if use is not None), strict=True))
    return tuple(_replica(problem, use, run) for use, run in zip(used, runs, strict=True))


def _first(oracles: list[PatternOracle], pattern: Pattern) -> list[Running] | None:
    """The operating points of a pattern, from the first oracle that finds some; None if no oracle does."""
    return next((found for oracle in oracles if (found := oracle.running(pattern)) is not None), None)


def _replica(problem: Problem, use: _Use, run: Running) -> Replica:
    workload = problem.instance.workloads[use.workload]
    return Replica(workload=workload.name, batch=run.batch, processes=run.processes, sm_share=run.sm_share,
                   rate_rps=use.rate_rps, turn=run.turn, model=workload.named(run.model))


def _shares_kept(problem: Problem, plan: Plan) -> bool:
    """Whether no GPU carries more than its allowed share of any workload."""
    on_gpu: defaultdict[tuple[int, str], float] = defaultdict(float)
    for at, _, _, replica in plan.replicas():
        on_gpu[at, replica.workload] += replica.rate_rps
    caps = {problem.instance.workloads[member].name: group.cap_rps for group in problem.groups
            for member in group.members}
    return all(rate <= caps.get(name, np.inf) * (1 + TOLERANCE) for (_, name), rate in on_gpu.items())
