"""A plan of an earlier demand mended for a new one: GPUs that still hold stay, greedy plans the rest of the demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from provision.heuristics.core import greedy
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan, PlannedGpu, carried_rps
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Search
from provision.models.problem.workload import Workload
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
    report = verify(instance, plan)
    if report.ok:
        return instance.adopted(plan)
    broken = {one.gpu for one in report.violations}
    stay = [gpu for at, gpu in enumerate(plan.gpus) if at not in broken]
    rest = tuple(rest_of(instance, stay))
    fleet = objective_of(instance).fleet_without(instance.plan_of("", stay))
    left = tuple(one for one in fleet if one.count != 0)
    if rest and left:
        others = instance.replace(workloads=rest, workflows=(), fleet=left)
        if needs(others) - greedy.METHODS[0].features:
            return None
        found = greedy.solve(others, search.apart()).plan
        stay += [] if found is None else found.gpus
    whole = instance.plan_of(plan.method or "", stay)
    return whole if verify(instance, whole).ok else None


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
