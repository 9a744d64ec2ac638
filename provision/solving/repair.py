"""Repairs plans that no longer hold, and keeps what still holds of them: for a new demand, or after replays.

A plan of an earlier demand is mended for a new one: GPUs that still hold stay, and greedy plans the rest of the demand.

If replays refute a plan, its late workloads keep a part of their rate on their replicas, and the rest goes to new
replicas on further GPUs. In the remaining time, the whole instance is planned again with shorter SLOs for the late
workloads. The cheaper plan is returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from provision.heuristics.core import greedy
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan, PlannedGpu, Replica, carried_rps
from provision.models.plans.simulation_report import SimulationReport
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Search
from provision.models.problem.stages import as_deployed
from provision.models.problem.workload import Workload
from provision.solving.replayed import named, refuted, reports_of, tightened, unsure, widened
from provision.solving.schedule import REPLAYS
from provision.solving.staged import planned
from provision.solving.steps import valid_for, where_able
from provision.verification.verify import verify


def mended(instance: Instance, plan: Plan, search: Search) -> Plan | None:
    """The mended plan; None if it is not valid, for example because the fleet has too few GPUs.

    Parameters
    ----------
    instance, plan
        The Instance with the new demand, and a plan with the workloads and about the rates of the instance.
    search
        Its time limit is that of greedy.
    """
    broken = {one.gpu for one in verify(instance, plan).violations}
    stay = [gpu for at, gpu in enumerate(plan.gpus) if at not in broken]
    rest = tuple(rest_of(instance, stay))
    fleet = objective_of(instance).fleet_without(instance.plan_of("", stay))
    left = tuple(one for one in fleet if one.count != 0)
    if rest and left:
        others = instance.replace(workloads=rest, workflows=(), fleet=left)
        found = where_able(greedy.METHODS[0])(others, search.apart()).plan
        stay += [] if found is None else found.gpus
    return valid_for(instance, instance.plan_of(plan.method or "", stay))


def rest_of(instance: Instance, gpus: Sequence[PlannedGpu]) -> Iterator[Workload]:
    """The workloads that still lack rate or replicas beside some GPUs, each with the rate and the replicas lacking."""
    carried, replicas = carried_rps(gpus), Counter(one.workload for gpu in gpus for one in gpu.replicas)
    for workload in instance.workloads:
        planned = instance.planned_rps(workload)
        lacking = max(planned - carried[workload.name], 0.0)
        least = max(workload.min_replicas - replicas[workload.name], 0)
        if lacking <= planned * TOLERANCE and not least:
            continue
        most = None if workload.max_replicas is None else max(workload.max_replicas - replicas[workload.name], 1)
        share = min(workload.max_share_per_gpu * planned / lacking, 1.0) if lacking else 1.0
        yield workload.model_copy(update={
            "rate_rps": lacking / instance.policy.planned_rps(1.0), "min_replicas": least, "max_replicas": most,
            "max_share_per_gpu": share})


class Rehearsed(NamedTuple):
    """A plan and the reports of its replays."""

    plan: Plan
    reports: list[SimulationReport]


@dataclass(frozen=True)
class Repair:
    """Repairs of plans of an instance.

    Parameters
    ----------
    instance, method
        The problem, and the method that plans it.
    search
        The Search of the method, for its seed and parameters.
    end
        The Deadline after which nothing more is tried.
    tell
        Called with a text that names the current activity.
    """

    instance: Instance
    method: Method
    search: Search
    end: Deadline
    tell: Callable[[str], None] = lambda text: None

    def repaired(self, first: Rehearsed) -> Rehearsed:
        """A plan in which no workload is late by ``policy.holds``, if one is found; else the given plan."""
        beside = self.beside(first, self.instance.policy.holds)
        again = self._anew(first, beside)
        return again or beside or first

    def beside(self, first: Rehearsed, holds: str) -> Rehearsed | None:
        """The plan with new replicas for late workloads, such that none is late; None if none is found."""
        late = named(self.instance, unsure(first.reports, holds))
        for kept in REPLAYS.kept:
            if self.end.left_s <= 0:
                break
            found = self._rehearsed(self._offloaded(first.plan, late, kept))
            if found is not None and not unsure(found.reports, holds):
                return found
        return None

    def _anew(self, first: Rehearsed, best: Rehearsed | None) -> Rehearsed | None:
        """A plan of the instance with shorter SLOs that is cheaper than the best so far; None if none is found."""
        tight, reports, holds = self.instance, first.reports, self.instance.policy.holds
        for left in range(REPLAYS.times, 0, -1):
            late = unsure(reports, holds)
            tight = tightened(tight, widened(self.instance, late) if left == REPLAYS.times else late)
            if self.end.left_s < REPLAYS.least_plan_s:
                return None
            self.tell(f"planning again for {', '.join(late)}")
            limit_s = max(self.end.left_s * REPLAYS.planning / min(left, REPLAYS.shared), REPLAYS.least_plan_s)
            start = valid_for(tight, None if best is None else best.plan)
            found = planned(self.method, tight, self.search.apart().anew(time_limit_s=limit_s, start=start))
            again = self._rehearsed(found.plan)
            if again is None or (best is not None and not self._cheaper(again, best)):
                return None
            if not unsure(again.reports, holds):
                return again
            reports = again.reports
        return None

    def _cheaper(self, one: Rehearsed, other: Rehearsed) -> bool:
        objective = objective_of(self.instance)
        return objective.better(objective.value(one.plan), objective.value(other.plan))

    def _rehearsed(self, plan: Plan | None) -> Rehearsed | None:
        """Replay a plan under the traffic of the instance; None if it is not valid for it, or if there is none."""
        held = valid_for(self.instance, plan)
        reports = [] if held is None else reports_of(self.instance, held, self.search.seed, self.end, self.tell)
        return Rehearsed(held, reports) if held is not None and reports else None

    def _offloaded(self, plan: Plan, late: Mapping[str, float], kept: float) -> Plan | None:
        """The plan in which late workloads keep the fraction ``kept`` of their rates, and new replicas carry the rest;
        or None.
        """
        instance = self.instance
        if instance.policy.survive or instance.policy.even_replicas:
            return None

        def less(one: Replica) -> Replica | None:
            left = kept if one.workload in late else 1.0
            return one.model_copy(update={"rate_rps": one.rate_rps * left}) if left else None

        remaining = plan.with_replicas(less)
        tight = tightened(as_deployed(instance, plan, limited=True), late)
        rest = [one for one in rest_of(tight, remaining.gpus) if one.name in late]
        if not rest:
            return None
        others = tight.replace(workloads=rest, workflows=(), fleet=objective_of(instance).fleet_without(remaining))
        limit_s = min(max(self.end.left_s, REPLAYS.least_plan_s), REPLAYS.beside_s)
        found = self.method.run(others, self.search.apart().anew(time_limit_s=limit_s)).plan
        return found and remaining.model_copy(update={"gpus": (*remaining.gpus, *found.gpus)})


def notes(repair: Repair, before: Rehearsed, after: Rehearsed) -> Iterator[str]:
    """Yield notes: what replays refuted, how the repair ended, and how much more it costs to keep SLOs in every minute
    than in the long run, if both plans are known.
    """
    holds, value = repair.instance.policy.holds, objective_of(repair.instance).value
    late, unsafe = refuted(before.reports), unsure(before.reports, holds)
    if unsafe:
        what = f"{', '.join(late)} late" if late else f"{', '.join(unsafe)} late by chance in some minute"
        left = unsure(after.reports, holds)
        ended = f"; still not sure: {', '.join(left)}" if left else ""
        yield f"replays of a plan by the latency rule had {what}; the plan was repaired{ended}"
    if holds == "every_minute":
        if not late and before.plan is not after.plan:
            yield (f"every minute holds for {value(after.plan):g}, the long run (policy.holds: long_run) for "
                   f"{value(before.plan):g}")
    elif not refuted(after.reports) and unsure(after.reports):
        found = repair.beside(after, "every_minute")
        if found is not None:
            yield (f"the long run holds for {value(after.plan):g}, every minute (policy.holds: every_minute) for "
                   f"at most {value(found.plan):g}")
