"""Patterns that hold for most throughput, judged by the models' scalar path."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.pricing.capacities import Member, Members, lowered
from provision.formulations.pricing.oracle import Running
from provision.formulations.search.problem import Group, Problem
from provision.models.base.tolerances import DUST
from provision.models.performance.operating_points import Prediction
from provision.models.plans.plan import Replica, Slice
from provision.models.problem.prediction import carried_rps, predict_slice, tokens_rps


class Column(NamedTuple):
    """A pattern of a slice type, and the requests/s that each of its replicas carries."""

    slice_type: int
    members: Members
    rps: tuple[float, ...]


class Judge:
    """Judges patterns of one Problem, each once; what replicas carry at a prediction is worked out once, too."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.known: dict[tuple[int, Running, Prediction], float] = {}
        self.judged: dict[tuple[int, Members], tuple[list[int], list[float]]] = {}

    def held(self, slice_type: int, members: Members, batches: Sequence[int]) -> Column | None:
        """A pattern with ever smaller batches for members that are late, until none is; None when that does not help.

        A workload with one replica needs it to carry its whole rate.
        """
        taken: Members | None = members
        while taken:
            if (slice_type, taken) not in self.judged:
                self.judged[slice_type, taken] = self._judged(slice_type, taken)
            late, rps = self.judged[slice_type, taken]
            if not late:
                return Column(slice_type, taken, tuple(rps))
            taken = lowered(taken, late, batches)
        return None

    def _judged(self, slice_type: int, members: Members) -> tuple[list[int], list[float]]:
        """The members whose batches must be lowered, none when all hold, and what they carry."""
        instance, place = self.problem.instance, self.problem.segments.slice_types[slice_type]
        entry, groups = instance.fleet[place.entry], [self.problem.groups[one.group] for one in members]
        piece = Slice(profile=place.profile, replicas=tuple(
            replica_of(self.problem, one, group.members[0]) for one, group in zip(members, groups, strict=True)))
        told = predict_slice(instance, entry.gpu, piece)
        tokens = len(members) == 1 and instance.workloads[groups[0].members[0]].tokens
        rps = [tokens_rps(instance, entry.gpu, piece)] if tokens and told[0] else [
            self._carried(one, found) for one, found in zip(members, told, strict=True)]
        late = [at for at, (one, group) in enumerate(zip(piece.replicas, groups, strict=True))
                if rps[at] <= 0 or (group.most == 1 and not self._keeps(one, group, told[at], rps[at]))]
        memory_gib = np.array([found.memory_gib or 0.0 if found else 0.0 for found in told])
        if not late and memory_gib.sum() > entry.type.slice_memory_gib(place.profile):
            late = [int(memory_gib.argmax())]
        return late, rps

    def _keeps(self, replica: Replica, group: Group, found: Prediction | None, rps: float) -> bool:
        """Whether the only replica of a workload carries its whole rate, and keeps the SLO at that rate."""
        if found is None or rps < group.rate_rps * (1 - DUST):
            return False
        policy = self.problem.instance.policy
        if policy.rule.random_arrivals:
            return True  # what it carries is what keeps the SLO
        told_ms = policy.rule.tail_ms(replica.batch, replica.processes, found, group.rate_rps, 0.0)
        return told_ms is None or told_ms <= group.slo_ms * policy.part_of_slo * (1 + DUST)

    def _carried(self, member: Member, found: Prediction | None) -> float:
        """Requests/s that a replica carries within its SLO; 0 where it cannot keep it."""
        instance = self.problem.instance
        workload = instance.workloads[self.problem.groups[member.group].members[0]]
        if found is None or found.latency_ms > instance.budget_ms(workload) * (1 + DUST):
            return 0.0
        key = (member.group, member.run, found)
        if key not in self.known:
            one = replica_of(self.problem, member, self.problem.groups[member.group].members[0])
            self.known[key] = carried_rps(instance, one, found)
        return self.known[key]


def replica_of(problem: Problem, member: Member, workload: int) -> Replica:
    """The replica of a member for a workload of its group, without a rate."""
    one, run = problem.instance.workloads[workload], member.run
    return Replica(workload=one.name, batch=run.batch, processes=run.processes, sm_share=run.sm_share, rate_rps=0.0,
                   turn=run.turn, model=one.named(run.model))
