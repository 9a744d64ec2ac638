"""Repairs plans that do not hold: of an earlier demand, beyond the memory of shared GPUs, and refuted by replays.

A plan of an earlier demand is mended for a new one: GPUs that still hold stay, and greedy plans the rest of the demand.
If replays refute a plan, the whole instance is planned again with shorter SLOs for the late workloads.

No search under interference knows memory, which is a further resource. So a method plans without it, and its bound
stays valid. If its plan needs more memory than a GPU has, the instance is planned again with replicas whose part of the
memory is no larger than their part of the SMs: any set of such replicas fits. The same happens if there is no plan at
all, because some policies (`survive`, even replicas) keep only valid plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from provision.models.base.clock import Deadline
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.shared_gpus import SharedMemoryData
from provision.models.plans.plan import Plan, PlannedGpu, carried_rps
from provision.models.plans.simulation_report import SimulationReport
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.prediction import states_memory
from provision.models.problem.search import Outcome, Search
from provision.models.problem.workload import Workload
from provision.solving.replayed import refuted, reports_of, tightened, unsure
from provision.solving.schedule import SOLVE
from provision.solving.staged import planned
from provision.solving.steps import GREEDY, valid_for
from provision.verification.verify import verify

Rehearsed = tuple[Plan, list[SimulationReport]]
"""A plan and the reports of its replays."""


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
        found = GREEDY(others, search.apart()).plan
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


def within_memory(
    instance: Instance, method: Method, search: Search, outcome: Outcome, end: Deadline
) -> tuple[Outcome, tuple[str, ...]]:
    """The outcome with a plan that fits the memory, and a note if it was planned again.

    If no such plan is found until ``end``, the outcome has no plan and its status is unknown.
    """
    why = "none of the plans that were tried holds, perhaps for memory"
    if not states_memory(instance) or outcome.termination == "stopped":
        return outcome, ()
    if outcome.plan is not None:
        violations = verify(instance, outcome.plan).violations
        if {one.kind for one in violations} != {"memory"}:
            return outcome, ()
        why = violations[0].message
    elif outcome.status != "unknown":
        return outcome, ()
    narrow = instance.replace(performance=[
        data.within_share() if isinstance(data, SharedMemoryData) else data for data in instance.performance])
    plan = _again(instance, method, narrow, search, end.left_s)
    note = f"{why}; planned again with no larger part of the memory than of the SMs per replica"
    if plan is None:
        return replace(outcome, plan=None, status="unknown", termination="completed",
                       reason=f"no plan within the memory was found: {why}"), (note,)
    return replaced(instance, outcome, plan), (note,)


def _again(instance: Instance, method: Method, other: Instance, search: Search, seconds: float) -> Plan | None:
    """Plan another instance after the end of a search; return the plan if it is valid for the instance."""
    limit_s = max(seconds, SOLVE.least_s)
    return valid_for(instance, planned(method, other, search.apart().anew(time_limit_s=limit_s)).plan)


def replaced(instance: Instance, outcome: Outcome, plan: Plan) -> Outcome:
    """The outcome with another plan. The bound stays the same, and the status is adapted to the new plan."""
    objective = objective_of(instance)
    proved = objective.proved(objective.value(plan), outcome.bound)
    return replace(outcome, plan=plan, status="optimal" if proved else "feasible",
                   termination="proved" if proved else "completed" if outcome.termination == "proved"
                   else outcome.termination)


def repaired(instance: Instance, method: Method, search: Search, end: Deadline, tell: Callable[[str], None],
             first: Rehearsed) -> Rehearsed:
    """A plan in which replays show no workload late by ``policy.holds``, if one is found; else the first plan.

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
    first
        A plan, and the reports of its replays.
    """
    tight, holds = instance, instance.policy.holds
    late = unsure(first[1], holds)
    for _ in range(SOLVE.times):
        if end.left_s < SOLVE.least_s:
            break
        tight = tightened(tight, late)
        tell(f"planning again for {', '.join(late)}")
        plan = _again(instance, method, tight, search, end.left_s * SOLVE.planning)
        reports = [] if plan is None else reports_of(instance, plan, search.seed, end, tell)
        if plan is None or not reports:
            break
        late = unsure(reports, holds)
        if not late:
            return plan, reports
    return first


def notes(instance: Instance, before: Rehearsed, after: Rehearsed) -> Iterator[str]:
    """Yield notes: what replays refuted, how the repair ended, and what every minute costs beside the long run.

    Parameters
    ----------
    instance
        The problem.
    before, after
        The plan that was replayed first, and what ``repaired`` returned: the same object if it found no plan.
    """
    holds, value = instance.policy.holds, objective_of(instance).value
    late, unsafe = refuted(before[1]), unsure(before[1], holds)
    if unsafe:
        what = f"{', '.join(late)} late" if late else f"{', '.join(unsafe)} late by chance in some minute"
        ended = "no plan was found that repairs it" if after is before else "the plan was repaired"
        yield f"replays of a plan by the latency rule had {what}; {ended}"
    if holds == "every_minute" and not late and before is not after:
        yield (f"every minute holds for {value(after[0]):g}, the long run (policy.holds: long_run) for "
               f"{value(before[0]):g}")
