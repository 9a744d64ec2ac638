"""Judges patterns that carry rates by the performance models themselves, and turns them into a plan.

In a plan, the replicas of patterns have been assigned their workloads and rates.
"""

from collections.abc import Sequence
from typing import NamedTuple

from provision.formulations.master.plans import plan_of
from provision.formulations.pricing.oracle import replica_of
from provision.formulations.pricing.rates import Member, Members
from provision.formulations.search.assemble import routed
from provision.formulations.search.problem import Group, Problem
from provision.models.base.arrays import Ints
from provision.models.base.tolerances import DUST
from provision.models.performance.operating_points import Prediction
from provision.models.plans.plan import Plan, Replica, Slice
from provision.models.problem.prediction import carried_rps, predict_slice, tokens_rps


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
    """The plan of GPUs with these partitions and patterns. None if the fleet is too small, or if the replicas cannot
    carry all rates within the limits per GPU.
    """
    workloads = _workloads(problem, patterns)
    slices = [(one.slice_type, tuple(replica_of(problem.instance, workloads[at, place], member.run, rps)
                                     for place, (member, rps) in enumerate(zip(one.members, one.rps, strict=True))))
              for at, one in enumerate(patterns)]
    plan = plan_of(problem, partitions, slices, method)
    return None if plan is None else routed(problem.instance, plan.gpus, method)


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
