"""Judges patterns that carry rates by the performance models themselves, and turns solutions of programs into plans."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.oracle import replica_of
from provision.formulations.pricing.rates import Member, Members
from provision.formulations.search.assemble import assemble, deal, routed
from provision.formulations.search.problem import Group, Problem
from provision.models.base.arrays import Ints
from provision.models.base.tolerances import DUST
from provision.models.performance.operating_points import Prediction
from provision.models.plans.plan import Plan, Replica, Slice
from provision.models.problem.prediction import carried_rps, predict_slice, tokens_rps

RunningSlice = tuple[int, tuple[Replica, ...]]
"""A slice type, and the replicas that run on a slice of it."""


def slices_of(problem: Problem, plan: Plan) -> Iterator[RunningSlice]:
    """Yield the slice type (-1 for none of the Problem's) and the replicas of every slice of a plan."""
    fleet, every = problem.instance.fleet, list(enumerate(problem.segments.slice_types))
    slice_types = {(fleet[one.entry].gpu, fleet[one.entry].partitioned, one.profile): at
                   for at, one in reversed(every)}
    for gpu in plan.gpus:
        for piece in gpu.slices:
            yield slice_types.get((gpu.gpu, gpu.mig, piece.profile), -1), piece.replicas


class Column(NamedTuple):
    """A pattern on a slice type, and the requests/s that each of its replicas carries."""

    slice_type: int
    members: Members
    rps: tuple[float, ...]


class Judge:
    """Judges patterns of one Problem by the performance models, and caches the results."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.judged: dict[tuple[int, Members], Column | None] = {}

    def held(self, slice_type: int, members: Members) -> Column | None:
        """The pattern with the rates of its replicas; None if it is not feasible.

        If a workload may have only one replica, that replica must carry its whole rate.
        """
        if (slice_type, members) not in self.judged:
            self.judged[slice_type, members] = self._judged(slice_type, members)
        return self.judged[slice_type, members]

    def _judged(self, slice_type: int, members: Members) -> Column | None:
        """The pattern by the performance models; None if a member is late, or all of them need too much memory."""
        instance, place = self.problem.instance, self.problem.segments.slice_types[slice_type]
        entry, groups = instance.fleet[place.entry], [self.problem.groups[one.group] for one in members]
        piece = Slice(profile=place.profile, replicas=tuple(
            replica_of(instance, group.members[0], one.run) for one, group in zip(members, groups, strict=True)))
        told = predict_slice(instance, entry.gpu, piece)
        tokens = len(members) == 1 and instance.workloads[groups[0].members[0]].tokens
        rps = [tokens_rps(instance, entry.gpu, piece)] if tokens and told[0] else [
            self._carried(one, found) for one, found in zip(members, told, strict=True)]
        late = any(rps[at] <= 0 or (group.most == 1 and not self._keeps(one, group, told[at], rps[at]))
                   for at, (one, group) in enumerate(zip(piece.replicas, groups, strict=True)))
        memory_gib = sum(found.memory_gib or 0.0 for found in told if found)
        fits = not late and memory_gib <= entry.type.slice_memory_gib(place.profile)
        return Column(slice_type, members, tuple(rps)) if fits else None

    def _keeps(self, replica: Replica, group: Group, found: Prediction | None, rps: float) -> bool:
        """Whether a replica carries the whole rate of its workload, and keeps the SLO at that rate."""
        if found is None or rps < group.rate_rps * (1 - DUST):
            return False
        policy = self.problem.instance.policy
        if policy.rule.random_arrivals:
            return True  # such a rule gives the highest rate that keeps the SLO
        told_ms = policy.rule.tail_ms(replica.batch, replica.processes, found, group.rate_rps, 0.0)
        return told_ms is None or told_ms <= group.slo_ms * policy.part_of_slo * (1 + DUST)

    def _carried(self, member: Member, found: Prediction | None) -> float:
        """The requests/s that a replica carries within its SLO; 0 if it cannot keep the SLO."""
        instance = self.problem.instance
        workload = instance.workloads[self.problem.groups[member.group].members[0]]
        if found is None or found.latency_ms > instance.budget_ms(workload) * (1 + DUST):
            return 0.0
        one = replica_of(instance, self.problem.groups[member.group].members[0], member.run)
        return carried_rps(instance, one, found)


def rated_plan(problem: Problem, partitions: Sequence[Ints], patterns: Sequence[Column], method: str) -> Plan | None:
    """The plan of a solution; None if the fleet is too small, or if the replicas cannot carry all rates within the
    limits per GPU.

    Parameters
    ----------
    problem
        The Problem that was solved.
    partitions
        For each pool, (partitions,) the number of GPUs with each partition.
    patterns
        The patterns of slices; other slices stay empty.
    method
        The name to write into the plan.
    """
    if any(pool.count is not None and many.sum() > pool.count
           for pool, many in zip(problem.pools, partitions, strict=True)):
        return None
    instance, workloads = problem.instance, _workloads(problem, patterns)
    slices = [tuple(replica_of(instance, workloads[at, place], member.run, rps)
                    for place, (member, rps) in enumerate(zip(one.members, one.rps, strict=True)))
              for at, one in enumerate(patterns)]
    rows = np.eye(len(problem.segments.slice_types), dtype=int)[[one.slice_type for one in patterns]]
    alone = np.zeros((len(instance.workloads), rows.shape[1]), int)
    layouts = deal(instance, problem.segments, problem.partitions, np.concatenate(partitions),
                   np.concatenate([alone, rows]))
    if layouts is None:
        return None
    return routed(instance, assemble(instance, problem.segments, layouts, method, slices).gpus, method)


def _workloads(problem: Problem, patterns: Sequence[Column]) -> dict[tuple[int, int], int]:
    """The workload of every replica, by (pattern, place in the pattern).

    Replicas are assigned in order of falling rate, each to the workload of its group that still lacks most requests/s.
    Workloads with fewer replicas than their least number come first.
    """
    found: dict[tuple[int, int], int] = {}
    lacks = {member: group.rate_rps for group in problem.groups for member in group.members}
    number = dict.fromkeys(lacks, 0)
    replicas = sorted(((one.rps[place], at, place) for at, one in enumerate(patterns)
                       for place in range(len(one.members))), reverse=True)
    for rps, at, place in replicas:
        group = problem.groups[patterns[at].members[place].group]
        free = [one for one in group.members if number[one] < group.most]
        _, _, best = max((number[one] < group.least, lacks[one], one) for one in free)
        found[at, place] = best
        lacks[best] -= rps
        number[best] += 1
    return found
